"""What happens inside a worker: one program is built, kept loaded and timed whenever it is asked for.

A worker may crash, hang or use up its memory: nothing but its one program is lost. It never exports the program: what
was built runs where it was built.
"""

from __future__ import annotations

import math
import resource
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.records import Outcome, Workload
from kernelcast.tvm_compat import load_tvm, make_target, runnable_module, scheduled_module

MESSAGE_LINES = 4
"""Lines of an error that are kept."""


@dataclass(frozen=True)
class Build:
    """Asks for the program that `trace` makes of `workload`; answered by `Built`."""

    workload: Workload
    trace: str
    target: dict[str, Any]


@dataclass(frozen=True)
class Built:
    """The program is machine code now."""

    build_seconds: float


@dataclass(frozen=True)
class Prepare:
    """Asks for random inputs and a first run, whose results must be finite; answered by `Prepared`."""

    seed: int


@dataclass(frozen=True)
class Prepared:
    """The program has run; `call_seconds` is a rough time of one call."""

    call_seconds: float


@dataclass(frozen=True)
class Repeat:
    """Asks for one repeat, `calls` calls in a row after one that does not count; answered by `Repeated`."""

    calls: int


@dataclass(frozen=True)
class Repeated:
    """Mean seconds a call, and when the repeat ended (seconds since 1970)."""

    run_seconds: float
    ended_at: float


@dataclass(frozen=True)
class Failed:
    """The program cannot be measured; the worker ends after this."""

    outcome: Outcome
    message: str


def warm_up() -> None:
    """Loads TVM and everything a build touches, in the server, so that no worker has to. Starts no thread."""
    load_tvm()
    import tvm.s_tir.schedule
    import tvm.s_tir.transform  # noqa: F401


def serve_program(connection: Connection, memory_limit_bytes: int) -> None:
    """Answers the requests for one program until the other side is gone or the program failed."""
    _limit_memory(memory_limit_bytes)
    program: LoadedProgram | None = None
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        building = isinstance(request, Build)
        try:
            reply: Any
            if isinstance(request, Build):
                started = time.perf_counter()
                program = LoadedProgram(request)
                reply = Built(time.perf_counter() - started)
            else:
                assert program is not None, "a program must be built first"
                reply = program.prepare(request.seed) if isinstance(request, Prepare) else program.repeat(request.calls)
        except BaseException as error:  # whatever it is, it is this program's and gets recorded
            reply = explain(error, building)
        connection.send(reply)
        if isinstance(reply, Failed):
            return


class LoadedProgram:
    """A built program with its inputs."""

    def __init__(self, request: Build) -> None:
        tvm = load_tvm()
        module = runnable_module(scheduled_module(request.workload, request.trace))
        self._buffers = list(module["main"].params)
        self._executable = tvm.compile(module, target=make_target(request.target)).mod
        # LLVM makes machine code only when a function is first asked for
        self._function = self._executable["main"]
        self._arguments: list[Any] = []

    def prepare(self, seed: int) -> Prepared | Failed:
        """Fills the arguments, runs once or twice and looks at the results."""
        tvm = load_tvm()
        generator = np.random.default_rng(seed)
        self._arguments = [tvm.runtime.tensor(_random_array(generator, buffer)) for buffer in self._buffers]
        started = time.perf_counter()
        self._function(*self._arguments)
        first = time.perf_counter()
        for buffer, argument in zip(self._buffers, self._arguments, strict=True):
            if "float" in str(buffer.dtype) and not np.isfinite(argument.numpy()).all():
                return Failed(Outcome.WRONG_RESULT, f"the results in `{buffer.name}` are not all finite numbers")
        # the first call also pays for cold caches and new threads: take the second, which is cheap where that matters
        again = time.perf_counter()
        self._function(*self._arguments)
        return Prepared(min(first - started, time.perf_counter() - again))

    def repeat(self, calls: int) -> Repeated:
        """Times `calls` calls in a row."""
        tvm = load_tvm()
        evaluator = self._executable.time_evaluator("main", tvm.cpu(), number=calls, repeat=1)
        seconds = float(evaluator(*self._arguments).results[0])
        return Repeated(seconds, time.time())


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


def _random_array(generator: np.random.Generator, buffer: Any) -> np.ndarray:
    shape = [int(extent) for extent in buffer.shape]
    if "float" in str(buffer.dtype):
        return generator.uniform(-1.0, 1.0, shape).astype(str(buffer.dtype))
    return generator.integers(0, 2, shape).astype(str(buffer.dtype))


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
