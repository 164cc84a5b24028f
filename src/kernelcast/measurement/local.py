"""Programs run on this machine: each in a worker of its own, one timed at a time on each set of cores."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.machine import Host
from kernelcast.measurement.devices import Device, Loading
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.host import cores_of_machine, flush_bytes, identity, probe_host
from kernelcast.measurement.messages import (
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
from kernelcast.measurement.pool import ProgramProcess
from kernelcast.measurement.reference import ReferenceKernel
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import Cache, RunnerSettings, require_positive_integer
from kernelcast.records import Outcome, Workload
from kernelcast.tvm_compat import check_runs_here, reference_target

logger = logging.getLogger(__name__)

SAMPLE_LIMIT_SECONDS = 600.0
"""For a piece of a workload's candidates: the space of a large kernel takes seconds, an evolution tens of seconds."""

MOST_BUILT = 128
"""Programs that wait built; each takes some 20 MB. Those above are built again where they are to run."""


@dataclass(frozen=True)
class LocalRunner:
    """Programs run on the machine that measures.

    Attributes:
        slots: programs timed at the same time, each on cores of its own; they share the memory, so 1 is the most exact.
    """

    slots: int = 1

    def __post_init__(self) -> None:
        require_positive_integer("runner.devices.slots", self.slots)

    def check(self, target: dict[str, Any]) -> None:
        """Refuses targets whose programs cannot be timed here."""
        check_runs_here(target)
        cores = sum(len(threads) for threads in cores_of_machine())
        if target["kind"] == "llvm" and self.slots * target["num-cores"] > cores:
            raise ConfigError(
                f"runner.devices.slots: {self.slots} programs of {target['num-cores']} threads (target.num-cores) "
                f"do not fit on {cores} cores; lower one of the two"
            )

    def identity(self, target: dict[str, Any]) -> str:
        """The processor or the GPU."""
        return identity(target)

    def host(self, target: dict[str, Any]) -> Host:
        """Describes the machine and measures its best speeds."""
        return probe_host(target)

    @contextmanager
    def open(
        self, target: dict[str, Any], settings: RunnerSettings, seed: int, folder: Path
    ) -> Iterator[OpenLocalRunner]:
        """Starts the fork server and a reference kernel for each slot."""
        timed, building = share_cores(cores_of_machine(), target.get("num-cores", 1), self.slots)
        with ExitStack() as stack:
            server = stack.enter_context(ForkServer(target, building, folder))
            overlaps = not any(set(cores) & set(building) for cores in timed)
            bench = Bench(server, target, settings, seed, folder)
            devices: list[Device] = [
                LocalDevice("local" if self.slots == 1 else f"local-{number}", overlaps, bench, cores)
                for number, cores in enumerate(timed)
            ]
            if overlaps:
                where = " and ".join(_named(cores) for cores in timed)
                logger.info("programs are timed on %s and built on %s meanwhile", where, _named(building))
            else:
                logger.info("building and timing take turns: a program needs %s", _named(timed[0]))
            yield OpenLocalRunner(devices, bench)


def share_cores(groups: list[list[int]], threads: int, slots: int) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Which cores time programs and which build them.

    Args:
        groups: the physical cores of this process, each with its hardware threads.
        threads: threads of a program.
        slots: programs timed at the same time.

    Returns:
        The cores of each slot, one hardware thread of a physical core as long as there are enough; and the cores for
        building: all hardware threads of the physical cores that time nothing, or all cores where none is left.
    """
    wanted = threads * slots
    # the last ones: the system's own work prefers the first
    physical = groups[::-1]
    first_threads = [group[0] for group in physical]
    others = [thread for group in physical for thread in group[1:]]
    timed = (first_threads + others)[:wanted]
    busy = [group for group in groups if set(group) & set(timed)]
    free = [thread for group in groups if group not in busy for thread in group]
    every = [thread for group in groups for thread in group]
    slots_cores = [tuple(timed[slot * threads : (slot + 1) * threads]) for slot in range(slots)]
    return slots_cores, tuple(sorted(free or every))


@dataclass(frozen=True)
class Bench:
    """What all devices of this machine share.

    Attributes:
        server: forks the workers.
        target: the complete TVM target.
        settings: limits and timing.
        seed: of the random inputs.
        folder: for results that workers compare with.
        cores: all that this process may use.
        built: workers with programs that were built for their code and cannot run yet, by keys of workload and program,
            and the seconds that this took.
    """

    server: ForkServer
    target: dict[str, Any]
    settings: RunnerSettings
    seed: int
    folder: Path
    cores: tuple[int, ...] = field(default_factory=lambda: tuple(chain.from_iterable(cores_of_machine())))
    built: dict[tuple[str, str], tuple[ProgramProcess, float]] = field(default_factory=dict)

    def worker(self) -> ProgramProcess:
        """A new worker."""
        return ProgramProcess(self.server, self.settings.memory_limit_bytes)

    def build(self, worker: ProgramProcess, request: Build | ReadCode | Finish, limit_seconds: float = inf) -> Any:
        """Has a worker build a program within the limit of all builds, or a smaller one."""
        return worker.ask(request, min(limit_seconds, self.settings.build_timeout_seconds), Outcome.BUILD_TIMEOUT)

    def run(self, worker: ProgramProcess, request: Any) -> Any:
        """Has a worker run its program within the limit."""
        return worker.ask(request, self.settings.run_timeout_seconds, Outcome.RUN_TIMEOUT)


class OpenLocalRunner:
    """The started fork server with its slots."""

    _runs_here = True

    def __init__(self, devices: list[Device], bench: Bench) -> None:
        self.devices = devices
        self._bench = bench
        self._expected: dict[str, Path | None] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def sample(
        self, workload: Workload, count: int, seed: int, measured: tuple[tuple[str, float], ...]
    ) -> Generator[Candidate, None, None]:
        """Draws candidates in a worker."""
        with self._bench.worker() as worker:
            request: Any = Sample(workload, self._bench.target, count, seed, measured)
            while request is not None:
                reply = worker.ask(request, SAMPLE_LIMIT_SECONDS, Outcome.BUILD_TIMEOUT)
                if isinstance(reply, Failed):
                    raise MeasurementError(
                        f"workload {workload.name}: no schedules can be drawn for {self._bench.target}: "
                        f"{' '.join(reply.message.split())}; leave it out with '~workload.{workload.name}'"
                    )
                assert isinstance(reply, Sampled), reply
                yield from reply.candidates
                request = SampleMore() if reply.more else None

    def expected(self, workload: Workload) -> Path | None:
        """The results of the unscheduled workload, computed when first asked for."""
        with self._lock:
            lock = self._locks.setdefault(workload.key, threading.Lock())
        with lock:
            if workload.key not in self._expected:
                self._expected[workload.key] = self._compute(workload)
            return self._expected[workload.key]

    def read_code(self, workload: Workload, candidate: Candidate, limit_seconds: float) -> str | Failed:
        """Builds the program in a worker, which keeps it where programs run here."""
        worker = self._bench.worker()
        # nothing is timed meanwhile
        request = Build(workload, candidate.trace, self._bench.target, at_once=False, cores=self._bench.cores)
        built = self._bench.build(worker, request, limit_seconds)
        if isinstance(built, Failed):
            return built
        code = self._bench.build(worker, ReadCode(), max(limit_seconds - built.build_seconds, 0.0))
        if isinstance(code, Failed):
            return code
        assert isinstance(code, Code), code
        if self._runs_here and len(self._bench.built) < MOST_BUILT:
            self._bench.built[candidate.workload_key, candidate.program_key] = worker, built.build_seconds
        else:
            worker.close()
        return code.listing

    def has_built(self, candidate: Candidate) -> bool:
        """Whether a worker waits with the program."""
        return (candidate.workload_key, candidate.program_key) in self._bench.built

    def forget_built(self) -> None:
        """Ends the workers that wait with a program."""
        while self._bench.built:
            _, (worker, _) = self._bench.built.popitem()
            worker.close()

    def replace(self, device: Device) -> Device | None:
        """There is no other machine."""
        return None

    def _unscheduled_target(self) -> dict[str, Any]:
        return reference_target(self._bench.target)

    def _compute(self, workload: Workload) -> Path | None:
        path = self._bench.folder / f"{workload.key}.npz"
        target = self._unscheduled_target()
        with self._bench.worker() as worker:
            reply = self._bench.build(worker, Build(workload, None, target))
            if isinstance(reply, Built):
                reply = self._bench.run(worker, WriteResults(self._bench.seed, path))
        if isinstance(reply, Failed):
            logger.warning(
                "%s: its programs cannot be checked, the unscheduled module does not run (%s: %s)",
                workload.name,
                reply.outcome,
                " ".join(reply.message.split()),
            )
            return None
        return path


class LocalDevice:
    """A set of cores of this machine."""

    def __init__(self, name: str, overlaps: bool, bench: Bench, cores: tuple[int, ...]) -> None:
        self.name = name
        self.overlaps = overlaps
        self._bench = bench
        self._cores = cores
        self._flush_bytes = flush_bytes(bench.target) if bench.settings.timing.cache is Cache.cold else 0
        self._reference = ReferenceKernel(bench.server, bench.target, bench.settings.memory_limit_bytes, cores)

    def load(self, workload: Workload, candidate: Candidate, expected: Path | None) -> Loading:
        """Builds the program in a worker of its own, which keeps it."""
        kept = self._bench.built.pop((workload.key, candidate.program_key), None)
        built: Any = None
        if kept is not None:
            worker, earlier = kept
            built = self._bench.build(worker, Finish())
        if kept is None or isinstance(built, Failed):
            # a worker that was lost while it waited says nothing about its program
            worker, earlier = self._bench.worker(), 0.0
            built = self._bench.build(worker, Build(workload, candidate.trace, self._bench.target))
        if isinstance(built, Failed):
            return Loading(built)
        build_seconds = earlier + built.build_seconds
        prepared = self._bench.run(worker, Prepare(self._bench.seed, expected))
        if isinstance(prepared, Failed):
            # nothing else is found out by comparing
            compared = expected is not None and prepared.outcome is Outcome.WRONG_RESULT
            return Loading(prepared, build_seconds, checked=compared)
        assert isinstance(prepared, Prepared), prepared
        program = LocalProgram(worker, self._bench, self._cores, self._flush_bytes)
        return Loading(program, build_seconds, prepared.call_seconds, expected is not None)

    def reference_seconds(self) -> float:
        """One repeat of the reference kernel on the same cores."""
        return self._reference.seconds()


@dataclass(frozen=True)
class LocalProgram:
    """A worker that holds a program."""

    worker: ProgramProcess
    bench: Bench
    cores: tuple[int, ...]
    flush_bytes: int

    def repeat(self, calls: int) -> Repeated | Failed:
        """Times one repeat."""
        reply: Repeated | Failed = self.bench.run(self.worker, Repeat(calls, self.cores, self.flush_bytes))
        return reply

    def close(self) -> None:
        """Ends the worker."""
        self.worker.close()


def _named(cores: tuple[int, ...]) -> str:
    return f"core{'s' if len(cores) > 1 else ''} {', '.join(map(str, sorted(cores)))}"
