"""What happens inside a worker: one program is built, kept loaded and timed whenever it is asked for.

A worker may crash, hang or use up its memory: nothing but its one program is lost. Unless asked to, it never exports
the program: what was built runs where it was built.
"""

from __future__ import annotations

import importlib
import math
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.measurement.checking import difference, random_array, read_results, write_results
from kernelcast.measurement.messages import (
    Argument,
    Build,
    Built,
    Code,
    Failed,
    Finish,
    Prepare,
    Prepared,
    ReadCode,
    Repeat,
    Repeated,
    Sample,
    Sampled,
    SampleMore,
    WriteResults,
)
from kernelcast.measurement.sampling import PIECE, Candidate, draw_candidates
from kernelcast.records import Outcome
from kernelcast.tvm_compat import (
    device_of,
    layout_changes,
    listing_of,
    load_tvm,
    make_target,
    parse_module,
    prepare_for,
    runnable_module,
    scheduled_module,
    structural_key,
)

MESSAGE_LINES = 4
"""Lines of an error that are kept."""

LONG_SECONDS = 0.1
"""A first call this long is not repeated for a better estimate."""

UNWARMED_SECONDS = 0.25
"""A call this long is timed without a call before it: caches fill in a hundredth of that, and a program that takes ten
seconds would run into its limit for nothing."""


def warm_up(target: dict[str, Any]) -> None:
    """Loads TVM and everything a build touches, in the server, so that no worker has to.

    Starts no thread and asks no device: neither would survive the fork.
    """
    load_tvm()
    prepare_for(target)
    # NumPy and zipfile load these when first needed: 60 ms in every worker
    for name in ("numpy.random", "numpy.ma", "encodings.cp437"):
        importlib.import_module(name)
    import tvm.s_tir.meta_schedule
    import tvm.s_tir.schedule
    import tvm.s_tir.transform  # noqa: F401

    import kernelcast.measurement.remote_session  # noqa: F401


def serve_program(connection: Connection, memory_limit_bytes: int) -> None:
    """Answers the requests for one program until the other side is gone or the program failed."""
    from kernelcast.measurement.remote_session import OpenSession, RemoteSession

    _limit_memory(memory_limit_bytes)
    program: BuiltProgram | RemoteSession | Sampling | None = None
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        reply: Any
        try:
            if isinstance(request, Sample):
                program = Sampling(request)
                reply = program.answer(request)
            elif isinstance(request, Build | Finish):
                started = time.perf_counter()
                if isinstance(request, Build):
                    program = BuiltProgram(request)
                else:
                    assert isinstance(program, BuiltProgram), "a program must be built first"
                    program.finish()
                reply = Built(time.perf_counter() - started, program.exported, program.is_whole)
            elif isinstance(request, OpenSession):
                program = RemoteSession()
                reply = program.open(request)
            else:
                assert program is not None, "a program must be built first"
                reply = program.answer(request)
        except BaseException as error:  # whatever it is, it is this program's and gets recorded
            reply = explain(error, building=isinstance(request, Build | ReadCode | Finish))
        connection.send(reply)
        if isinstance(reply, Failed):
            return


class Sampling:
    """Candidates of one workload, a piece at a time: random ones, or such as evolve from those that were measured."""

    def __init__(self, request: Sample) -> None:
        arguments = (request.workload, request.target, request.count, request.seed)
        self._candidates: Iterator[Candidate]
        if request.measured:
            from kernelcast.measurement.evolution import evolve_candidates

            self._candidates = iter(evolve_candidates(*arguments, request.measured))
        else:
            self._candidates = draw_candidates(*arguments)

    def answer(self, request: Any) -> Sampled:
        """The next piece."""
        assert isinstance(request, Sample | SampleMore), request
        piece = tuple(islice(self._candidates, PIECE))
        return Sampled(piece, more=len(piece) == PIECE)


class BuiltProgram:
    """A built program with its inputs."""

    def __init__(self, request: Build) -> None:
        tvm = load_tvm()
        self._request = request
        self._building = move_to(request.cores)
        # with the change of layouts that a network's compilation would do beforehand, if there is one
        self._whole: Any = None
        if request.trace is None:
            module = parse_module(request.workload.module)
        else:
            scheduled = scheduled_module(request.workload, request.trace)
            module = scheduled if request.whole else runnable_module(scheduled)
            # shapes do not tell: a square matrix that was turned over has the same
            if structural_key(module) != structural_key(scheduled):
                self._whole = scheduled
        self.is_whole = self._whole is None
        self._buffers = list(module["main"].params)
        compiled = tvm.compile(module, target=make_target(request.target))
        self.exported: tuple[Argument, ...] = ()
        if request.export is not None:
            compiled.export_library(str(request.export), fcompile=_linker(request.linker))
            self.exported = tuple(
                Argument(str(buffer.name), tuple(int(n) for n in buffer.shape), str(buffer.dtype))
                for buffer in self._buffers
            )
            return
        self._executable = compiled.mod
        self._device = device_of(request.target)
        self._function: Any = None
        if request.at_once:
            self.finish()
        self._arguments: list[Any] = []
        self._cores: tuple[int, ...] = ()
        self._call_seconds = 0.0
        self._timing: tuple[tuple[int, int], Any] | None = None

    def finish(self) -> None:
        """Makes it ready to run: LLVM makes machine code only when a function is first asked for."""
        self._function = self._executable["main"]

    def answer(self, request: Any) -> Any:
        """The reply to one request about this program."""
        if isinstance(request, Prepare):
            return self.prepare(request)
        if isinstance(request, WriteResults):
            return self.write_results(request)
        if isinstance(request, ReadCode):
            code = Code(listing_of(self._executable))
            move_to(self._building)
            return code
        assert isinstance(request, Repeat), request
        return self.repeat(request)

    def prepare(self, request: Prepare) -> Prepared | Failed:
        """Fills the arguments, runs once or twice and looks at the results."""
        expected = None if request.expected is None else read_results(request.expected)
        if expected is None or self._whole is None:
            arrays = random_arrays(self._buffers, request.seed)
        else:
            # a schedule that changes the layout of weights: compare on the workload's own weights, in that layout
            arrays = random_arrays(list(self._whole["main"].params), request.seed)
            self._change_layouts(arrays, expected)
        call_seconds = self._first_run(arrays)
        names = [str(buffer.name) for buffer in self._buffers]
        results = [argument.numpy() for argument in self._arguments]
        wrong = difference(names, results, expected)
        if wrong:
            return Failed(Outcome.WRONG_RESULT, wrong)
        if call_seconds < LONG_SECONDS:
            # the first call also pays for cold caches and new threads
            call_seconds = min(call_seconds, self._call())
        self._call_seconds = call_seconds
        return Prepared(call_seconds)

    def write_results(self, request: WriteResults) -> Prepared:
        """Runs once and writes what comes out."""
        call_seconds = self._first_run(random_arrays(self._buffers, request.seed))
        write_results(request.path, [argument.numpy() for argument in self._arguments])
        return Prepared(call_seconds)

    def repeat(self, request: Repeat) -> Repeated:
        """Times calls in a row, after one that does not count; or one call after each flush of the caches."""
        if request.cores and request.cores != self._cores:
            pin_threads(request.cores)
            self._cores = request.cores
        if request.calls == 1 and not request.flush_bytes and self._call_seconds >= UNWARMED_SECONDS:
            return Repeated(self._call(), time.time())
        seconds = float(np.mean(self._evaluator(request)(*self._arguments).results))
        return Repeated(seconds, time.time())

    def _evaluator(self, request: Repeat) -> Any:
        """TVM's timing loop; usually the one of the last repeat."""
        wanted = (request.calls, request.flush_bytes)
        if self._timing is None or self._timing[0] != wanted:
            cold = request.flush_bytes > 0
            evaluator = self._executable.time_evaluator(
                "main",
                self._device,
                number=1 if cold else request.calls,
                repeat=request.calls if cold else 1,
                cache_flush_bytes=request.flush_bytes,
            )
            self._timing = (wanted, evaluator)
        return self._timing[1]

    def _first_run(self, arrays: Sequence[np.ndarray]) -> float:
        tvm = load_tvm()
        self._arguments = [tvm.runtime.tensor(array, device=self._device) for array in arrays]
        return self._call()

    def _call(self) -> float:
        """Seconds of one call; a GPU only begins it, so its end is waited for."""
        started = time.perf_counter()
        self._function(*self._arguments)
        self._device.sync()
        return time.perf_counter() - started

    def _change_layouts(self, *of_arguments: list[np.ndarray]) -> None:
        """Gives the weights among the arguments the layout in which this program takes them."""
        tvm = load_tvm()
        for position, module in layout_changes(self._whole).items():
            change = tvm.compile(module, target=make_target(self._request.target)).mod["main"]
            taken = module["main"].params[1]
            for arrays in of_arguments:
                changed = tvm.runtime.empty([int(n) for n in taken.shape], str(taken.dtype), self._device)
                change(tvm.runtime.tensor(arrays[position], device=self._device), changed)
                arrays[position] = changed.numpy()


def move_to(cores: tuple[int, ...]) -> tuple[int, ...]:
    """Has this process, as long as it has one thread, run on `cores`, and gives those that it ran on before.

    Empty stands for no move, where one is not wanted or the system has none.
    """
    if not cores or sys.platform != "linux":
        return ()
    before = tuple(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores)
    return before


def pin_threads(cores: tuple[int, ...]) -> None:
    """Gives every thread of this process one of `cores`, in turn: threads that wander cannot be timed."""
    if sys.platform != "linux":
        return
    tasks = Path("/proc/self/task")
    # the allocator's housekeeping computes nothing
    threads = sorted(int(task.name) for task in tasks.iterdir() if "jemalloc" not in (task / "comm").read_text())
    for index, thread in enumerate(threads):
        os.sched_setaffinity(thread, {cores[index % len(cores)]})


def explain(error: BaseException, building: bool) -> Failed:
    """The outcome that an exception means, with the first lines of its message."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()][:MESSAGE_LINES]
    message = "\n".join([f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__, *lines[1:]])
    traceback.print_exception(error)
    if isinstance(error, MemoryError) or says_out_of_memory(str(error)):
        return Failed(Outcome.OUT_OF_MEMORY, message)
    return Failed(Outcome.BUILD_ERROR if building else Outcome.RUN_ERROR, message)


def says_out_of_memory(text: str) -> bool:
    """Whether an error text of C++, LLVM, NumPy or the system speaks of memory that was refused."""
    phrases = ("bad_alloc", "out of memory", "cannot allocate memory", "unable to allocate", "memoryerror")
    return any(phrase in text.lower() for phrase in phrases)


def _linker(program: str | None) -> Any:
    """What `export_library` links with; None for the compiler of this machine."""
    if program is None:
        return None
    from tvm.support.cc import cross_compiler

    return cross_compiler(program)


def random_arrays(buffers: Sequence[Any], seed: int) -> list[np.ndarray]:
    """Arguments from `seed`, each from a stream of its own: a changed layout of one leaves the others as they are."""
    return [
        random_array(np.random.default_rng([seed, position]), tuple(int(n) for n in buffer.shape), str(buffer.dtype))
        for position, buffer in enumerate(buffers)
    ]


def _limit_memory(limit_bytes: int) -> None:
    """Refuses this worker more than `limit_bytes` on top of what the server had, and any core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # writable private memory (data and stacks); address space that is only reserved does not count
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        limit = pages * resource.getpagesize() + limit_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def calls_per_repeat(call_seconds: float, repeat_seconds: float) -> int:
    """Calls that fill `repeat_seconds`, at least one."""
    return max(1, math.ceil(repeat_seconds / max(call_seconds, 1e-9)))
