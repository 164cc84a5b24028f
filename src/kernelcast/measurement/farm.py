"""What the devices of one key share: programs built here, sessions, and who is to blame for those that break."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.measurement.devices import DeviceLost
from kernelcast.measurement.local import Bench
from kernelcast.measurement.messages import Argument, Build, Built, Failed
from kernelcast.measurement.pool import ProgramProcess
from kernelcast.measurement.remote_session import Load, NotOpened, Opened, OpenSession, Refused, SessionLost
from kernelcast.measurement.tracker import Tracker
from kernelcast.records import Outcome, Workload
from kernelcast.tvm_compat import load_tvm, missing_instructions

logger = logging.getLogger(__name__)

TRANSFER_SECONDS = 60.0
"""For a program and its arguments to get to the device, and for results to come back."""

CONNECT_SECONDS = 30.0
"""For a device that is free to answer."""


@dataclass(frozen=True)
class Library:
    """A program for a device.

    Attributes:
        number: distinct among the programs of a campaign's process.
        path: the shared library, here.
        arguments: what it takes.
        build_seconds: time of the build.
        is_whole: whether it computes all that the workload does: a schedule may change the layout of weights, and the
            block that does so is not timed.
    """

    number: int
    path: Path
    arguments: tuple[Argument, ...]
    build_seconds: float
    is_whole: bool

    def load(self, seed: int | None) -> Load:
        """The request that brings it to a device."""
        return Load(self.number, self.path, self.arguments, seed)


class UnfitDevice(ConfigError):  # noqa: N818, what the device is
    """A device cannot run programs of the target, or is not like the others of its key."""


class LostSession(Exception):  # noqa: N818, what happened to the session
    """A session broke or hung while a program ran; `failed` is what that means if it is the program's fault."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class Session:
    """A session with one device, held by a worker of its own."""

    def __init__(self, worker: ProgramProcess, opened: Opened) -> None:
        self._worker = worker
        self.opened = opened
        self.opened_at = time.monotonic()
        self.loaded: set[int] = set()

    def ask(self, request: Any, limit_seconds: float) -> Any:
        """The device's reply; a `Failed` where the program failed and the session goes on.

        Raises:
            LostSession: the session is gone, and so is its worker.
        """
        reply = self._worker.ask(request, limit_seconds, Outcome.RUN_TIMEOUT)
        if isinstance(reply, Refused):
            return reply.failed
        if isinstance(reply, SessionLost):
            reply = Failed(Outcome.CRASH, f"the session with the device broke while running: {reply.reason}")
        elif isinstance(reply, Failed) and reply.outcome is not Outcome.RUN_TIMEOUT:
            # the worker itself died, whatever of: the broken session
            reply = Failed(Outcome.CRASH, reply.message)
        if isinstance(reply, Failed):
            self.close()
            raise LostSession(reply)
        if isinstance(request, Load):
            self.loaded.add(request.number)
        return reply

    def close(self) -> None:
        """Ends it; the device is free then."""
        self._worker.close()


@dataclass
class Farm:
    """Everything that the devices share.

    Attributes:
        bench: forks workers; limits, target, seed and folder.
        tracker: where devices are asked for.
        key: of the devices.
        linker: of the libraries; None for this machine's.
        session_seconds: how long a session may last.
        wait_seconds: how long to wait for a device.
        held: addresses of the devices in use.
        strikes: how many sessions broke while a program ran, by its key.
        processor: LLVM's name of the devices' processor, once it is known.
    """

    bench: Bench
    tracker: Tracker
    key: str
    linker: str | None
    session_seconds: float
    wait_seconds: float
    held: set[str] = field(default_factory=set)
    strikes: dict[str, int] = field(default_factory=dict)
    processor: str = ""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def build(self, workload: Workload, trace: str | None, whole: bool = False) -> Library | Failed:
        """Builds a program here, in a worker."""
        number = next(self._numbers)
        path = self.bench.folder / f"{number}.so"
        request = Build(workload, trace, self.bench.target, path, self.linker, whole)
        with self.bench.worker() as worker:
            built = self.bench.build(worker, request)
        if isinstance(built, Failed):
            return built
        assert isinstance(built, Built), built
        return Library(number, path, built.arguments, built.build_seconds, built.is_whole)

    def connect(self, wanted: str | None, wait_seconds: float | None = None) -> Session:
        """A new session with a device.

        Args:
            wanted: its address; None: any that is not in use.
            wait_seconds: how long to wait for it; None: as the farm does.

        Raises:
            DeviceLost: none got free in time, or it does not answer.
            UnfitDevice: it cannot run programs of the target.
        """
        with self._lock:
            avoided = frozenset(self.held)
        threads = self.bench.target["num-cores"]
        wait = self.wait_seconds if wait_seconds is None else wait_seconds
        request = OpenSession(self.tracker, self.key, wanted, avoided, wait, self.session_seconds, threads)
        worker = self.bench.worker()
        opened = worker.ask(request, wait + CONNECT_SECONDS, Outcome.RUN_TIMEOUT)
        if isinstance(opened, Failed | NotOpened):
            worker.close()
            raise DeviceLost(opened.message if isinstance(opened, Failed) else opened.reason)
        session = Session(worker, opened)
        try:
            self._require_fit(opened)
        except UnfitDevice:
            session.close()
            raise
        with self._lock:
            self.held.add(opened.address)
        return session

    def release(self, address: str) -> None:
        """Nobody uses a device any more."""
        with self._lock:
            self.held.discard(address)

    def strike(self, program_key: str) -> int:
        """Counts one more session that broke while a program ran."""
        with self._lock:
            self.strikes[program_key] = self.strikes.get(program_key, 0) + 1
            return self.strikes[program_key]

    def forgive(self, program_key: str) -> None:
        """A program went through after all."""
        with self._lock:
            self.strikes.pop(program_key, None)

    def require(self, reply: Any, kind: type, what: str, address: str) -> Any:
        """A reply of `kind` to a request about one of the project's own kernels.

        Raises:
            MeasurementError: it failed, which no other device would change.
        """
        if isinstance(reply, Failed):
            raise MeasurementError(
                f"{what} does not run on {address} ({reply.outcome}: {reply.message}); check that target.mtriple, "
                "target.mcpu and runner.devices.linker are the device's, and that its server has the same TVM"
            )
        assert isinstance(reply, kind), reply
        return reply

    def _require_fit(self, opened: Opened) -> None:
        theirs, ours = opened.description.get("tvm"), str(load_tvm().__version__)
        if theirs is not None and theirs.split(".")[:2] != ours.split(".")[:2]:
            raise UnfitDevice(
                f"{opened.address} runs TVM {theirs}, programs are built by {ours} here, and neither understands the "
                f"other's; install apache-tvm {ours} there"
            )
        target = self.bench.target
        if target["num-cores"] > opened.threads:
            raise UnfitDevice(
                f"target.num-cores: {opened.address} runs {opened.threads} threads, got {target['num-cores']}; set "
                "target.num-cores to the cores of the devices, or start its server with another TVM_NUM_THREADS"
            )
        missing = missing_instructions(target, opened.description.get("instructions", {}))
        if missing:
            raise UnfitDevice(
                f"target.mcpu: {opened.address}, a {opened.processor}, does not have instructions that programs for "
                f"{target.get('mcpu', 'this target')} use ({', '.join(missing)}); set target.mcpu to its processor"
            )
        with self._lock:
            self.processor = self.processor or opened.processor
        if opened.processor and opened.processor != self.processor:
            raise UnfitDevice(
                f"runner.devices.key: {opened.address} is a {opened.processor}, others of key {self.key!r} are "
                f"{self.processor}: their times do not compare; start its server with another key"
            )
