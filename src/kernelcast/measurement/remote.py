"""Programs run on devices behind TVM's RPC tracker: built here, sent to a device, one timed at a time on each.

All programs of a device live in one session, which is a process on the device. When it breaks or hangs while a program
runs, a new session with the same device is asked for and has to run the reference kernel: if it cannot, the device is
lost and its programs go to another one; if it can, the program is tried again, and a program that breaks a second
session, on whichever device, is the cause. The other programs are loaded again when their turn comes.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.machine import Host
from kernelcast.measurement.devices import Device, DeviceLost, Loading
from kernelcast.measurement.farm import TRANSFER_SECONDS, Farm, Library, LostSession, Session, UnfitDevice
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.host import cores_of_machine
from kernelcast.measurement.local import Bench, OpenLocalRunner
from kernelcast.measurement.messages import Failed, Prepared, Repeat, Repeated
from kernelcast.measurement.reference import REPEAT_SECONDS, reference_workload
from kernelcast.measurement.remote_host import DESCRIBING, describe_device
from kernelcast.measurement.remote_session import Call, Check, Forget, Ready, RepeatOf
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import (
    Cache,
    RunnerSettings,
    require_positive_integer,
    require_seconds,
)
from kernelcast.measurement.tracker import Tracker
from kernelcast.measurement.worker import LONG_SECONDS, calls_per_repeat
from kernelcast.records import Workload
from kernelcast.tvm_compat import is_of_this_machine, resolve_target

logger = logging.getLogger(__name__)

STRIKES = 2
"""Sessions that break while a program runs before it is taken for the cause: one may be a coincidence."""

LOOK_SECONDS = 2.0
"""For a look whether there is a free device."""

FLUSH_BYTES = 64 * 1024**2
"""Written before each call when caches shall be cold: twice the last cache of common processors."""


@dataclass(frozen=True)
class RpcRunner:
    """Programs run on the devices of one key behind an RPC tracker.

    Attributes:
        tracker_host: where the tracker listens.
        tracker_port: its port.
        key: the devices' key; devices of one key are the same.
        slots: devices to use; None: all of the key that are registered at the start.
        session_timeout_seconds: after which a server ends a session, as TVM's own does when a program hangs; sessions
            are renewed before.
        wait_seconds: how long a device may take to be free, or to come back, before it counts as lost.
        linker: the compiler that links programs for the devices, for example `aarch64-linux-gnu-g++`; None for this
            machine's.
    """

    tracker_host: str
    tracker_port: int
    key: str
    slots: int | None
    session_timeout_seconds: float
    wait_seconds: float
    linker: str | None

    def __post_init__(self) -> None:
        for name in ("tracker_host", "key"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value or set(value) & set(" \t\n"):
                raise ConfigError(
                    f"runner.devices.{name} must be a word, got {value!r}; it is what the servers were started with"
                    if name == "key"
                    else f"runner.devices.{name} must be a name or an address, got {value!r}"
                )
        require_positive_integer("runner.devices.tracker_port", self.tracker_port)
        if self.tracker_port > 65535:
            raise ConfigError(f"runner.devices.tracker_port must be 65535 at most, got {self.tracker_port}")
        if self.slots is not None:
            require_positive_integer("runner.devices.slots", self.slots)
        require_seconds("runner.devices.session_timeout_seconds", self.session_timeout_seconds)
        require_seconds("runner.devices.wait_seconds", self.wait_seconds)

    @property
    def tracker(self) -> Tracker:
        """The tracker's address."""
        return Tracker(self.tracker_host, self.tracker_port)

    def check(self, target: dict[str, Any]) -> None:
        """Refuses targets whose programs cannot be built here for the devices."""
        if target["kind"] != "llvm":
            raise ConfigError(f"target.kind: runner=rpc measures programs of kind llvm alone, got {target['kind']!r}")
        if self.linker is None and not is_of_this_machine(target):
            raise ConfigError(
                f"runner.devices.linker: programs for {target['mtriple']} need a compiler that links them; install one "
                "and name it, for example runner.devices.linker=aarch64-linux-gnu-g++"
            )
        if self.linker is not None and shutil.which(self.linker) is None:
            raise ConfigError(f"runner.devices.linker: there is no program {self.linker!r} here; install it")

    def identity(self, target: dict[str, Any]) -> str:
        """The key, which promises equal devices, and what programs are compiled for."""
        parts = [f"rpc key {self.key}", *(str(target[name]) for name in ("mtriple", "mcpu") if name in target)]
        return ", ".join(parts)

    def host(self, target: dict[str, Any]) -> Host:
        """Describes a device of the key and measures its best speeds."""
        self.tracker.require_devices(self.key, self.slots)
        with (
            tempfile.TemporaryDirectory(prefix="kernelcast-") as folder,
            self._farm(target, DESCRIBING, 0, Path(folder)) as farm,
        ):
            return describe_device(farm, self.identity(target))

    @contextmanager
    def open(
        self, target: dict[str, Any], settings: RunnerSettings, seed: int, folder: Path
    ) -> Iterator[OpenRpcRunner]:
        """Starts the fork server and a session with each device."""
        least = 2 * max(TRANSFER_SECONDS, settings.run_timeout_seconds)
        if self.session_timeout_seconds < least:
            raise ConfigError(
                f"runner.devices.session_timeout_seconds must be {least:g} at least, twice runner.run_timeout_seconds "
                f"and {2 * TRANSFER_SECONDS:g}, got {self.session_timeout_seconds:g}"
            )
        count = self.tracker.require_devices(self.key, self.slots)
        with self._farm(target, settings, seed, folder) as farm:
            reference = farm.build(reference_workload(), None)
            if isinstance(reference, Failed):
                raise MeasurementError(
                    f"the reference kernel cannot be built for the devices ({reference.outcome}: {reference.message}); "
                    "check `target` and runner.devices.linker"
                )
            devices: list[Device] = []
            for _ in range(count):
                try:
                    devices.append(RemoteDevice(farm, reference, farm.connect(None)))
                except DeviceLost as lost:
                    logger.warning("%s; going on with %d of %d devices", lost, len(devices), count)
                    break
            if not devices:
                raise MeasurementError(
                    f"none of the {count} devices of key {self.key!r} is free; wait for the end of what uses them, or "
                    "start their servers again, and run the same command again"
                )
            logger.info("programs are timed on %s", ", ".join(device.name for device in devices))
            yield OpenRpcRunner(devices, farm, reference)

    @contextmanager
    def _farm(self, target: dict[str, Any], settings: RunnerSettings, seed: int, folder: Path) -> Iterator[Farm]:
        every = [thread for group in cores_of_machine() for thread in group]
        with ForkServer(target, every, folder) as server:
            bench = Bench(server, target, settings, seed, folder)
            yield Farm(bench, self.tracker, self.key, self.linker, self.session_timeout_seconds, self.wait_seconds)


class OpenRpcRunner(OpenLocalRunner):
    """The sessions, and a fork server for everything that happens here."""

    _runs_here = False

    def __init__(self, devices: list[Device], farm: Farm, reference: Library) -> None:
        super().__init__(devices, farm.bench)
        self._farm = farm
        self._reference = reference

    def replace(self, device: Device) -> Device | None:
        """Another free device of the key, or the same one when it is back."""
        try:
            found = RemoteDevice(self._farm, self._reference, self._farm.connect(None, LOOK_SECONDS))
        except DeviceLost:
            return None
        except UnfitDevice as error:
            logger.warning("no device takes the place of %s: %s", device.name, error)
            return None
        # the next items of the campaign begin with the devices that there are now
        self.devices[self.devices.index(device)] = found
        logger.info("%s takes the place of %s", found.name, device.name)
        return found

    def _unscheduled_target(self) -> dict[str, Any]:
        # it runs here, and these programs may not
        return resolve_target({"kind": "llvm", "num-cores": 1})


class RemoteDevice:
    """One device, and the session with it."""

    overlaps = True

    def __init__(self, farm: Farm, reference: Library, session: Session) -> None:
        self.name = f"{farm.key}@{session.opened.address}"
        self._farm = farm
        self._address = session.opened.address
        self._reference = reference
        self._reference_calls = 0
        self._session: Session | None = session
        self._gone = ""
        # one request at a time: nothing is loaded while a program is timed
        self._lock = threading.RLock()

    def load(self, workload: Workload, candidate: Candidate, expected: Path | None) -> Loading:
        """Builds the program here and runs it once there."""
        library = self._farm.build(workload, candidate.trace)
        if isinstance(library, Failed):
            return Loading(library)
        checks = [(library, expected)]
        if expected is not None and not library.is_whole:
            whole = self._farm.build(workload, candidate.trace, whole=True)
            if isinstance(whole, Failed):
                return Loading(whole, library.build_seconds)
            checks = [(whole, expected), (library, None)]
        program = RemoteProgram(self, candidate.program_key, library)
        call_seconds = 0.0
        for checked, wanted in checks:
            prepared = self.prepare(program, checked, wanted)
            if isinstance(prepared, Failed):
                program.close()
                return Loading(prepared, library.build_seconds)
            call_seconds = prepared.call_seconds
        return Loading(program, library.build_seconds, call_seconds, expected is not None)

    def reference_seconds(self) -> float:
        """One repeat of the reference kernel."""
        with self._lock:
            for _ in range(STRIKES):
                try:
                    return self._reference_repeat(self._ready()).run_seconds
                except LostSession as lost:
                    self._drop()
                    reason = lost
            raise self._lose(f"it does not run the reference kernel any more: {reason}")

    def prepare(self, program: RemoteProgram, library: Library, expected: Path | None) -> Prepared | Failed:
        """Loads a program, runs it once or twice and looks at the results."""
        limit = self._farm.bench.settings.run_timeout_seconds

        def work(session: Session) -> Prepared | Failed:
            loaded = self._load(session, library)
            if isinstance(loaded, Failed):
                return loaded
            called = session.ask(Call(library.number), limit)
            if isinstance(called, Failed):
                return called
            checked = session.ask(Check(library.number, expected), TRANSFER_SECONDS)
            if isinstance(checked, Failed):
                return checked
            if called.call_seconds >= LONG_SECONDS:
                return Prepared(called.call_seconds)
            # what the device says, without the way to it
            again = session.ask(RepeatOf(library.number, Repeat(1)), limit)
            return again if isinstance(again, Failed) else Prepared(again.run_seconds)

        prepared: Prepared | Failed = self._run(program.key, work)
        if library is not program.exported:
            self.forget(library)
        return prepared

    def repeat(self, program: RemoteProgram, calls: int) -> Repeated | Failed:
        """Times one repeat; loads the program before where the session is a new one."""
        settings = self._farm.bench.settings
        flush_bytes = FLUSH_BYTES if settings.timing.cache is Cache.cold else 0

        def work(session: Session) -> Repeated | Failed:
            loaded = self._load(session, program.exported)
            if isinstance(loaded, Failed):
                return loaded
            request = RepeatOf(program.exported.number, Repeat(calls, flush_bytes=flush_bytes))
            reply: Repeated | Failed = session.ask(request, settings.run_timeout_seconds)
            return reply

        repeated: Repeated | Failed = self._run(program.key, work)
        return repeated

    def forget(self, library: Library) -> None:
        """Frees a program there and here."""
        with self._lock:
            if self._session is not None and library.number in self._session.loaded:
                self._session.loaded.discard(library.number)
                try:
                    self._session.ask(Forget(library.number), TRANSFER_SECONDS)
                except LostSession:
                    # nobody's fault yet: the next one gets a new session
                    self._drop()
        library.path.unlink(missing_ok=True)

    def closed(self, program: RemoteProgram) -> None:
        """A program is over: unless the device went before it, it is innocent of what broke."""
        self.forget(program.exported)
        if not self._gone:
            self._farm.forgive(program.key)

    def _run(self, program_key: str, work: Any) -> Any:
        with self._lock:
            while True:
                session = self._ready()
                try:
                    return work(session)
                except LostSession as lost:
                    self._drop()
                    strikes = self._farm.strike(program_key)
                    logger.info("%s: %s (%d of %d while this program ran)", self.name, lost, strikes, STRIKES)
                    if strikes >= STRIKES:
                        return lost.failed

    def _ready(self) -> Session:
        """The session, a new one where it is gone or old, in which the reference kernel runs."""
        if self._gone:
            raise DeviceLost(self._gone)
        if self._session is not None and time.monotonic() - self._session.opened_at > self._farm.session_seconds / 2:
            self._drop()
        try:
            session = self._session or self._farm.connect(self._address)
            self._session = session
            if self._reference.number not in session.loaded:
                self._start_reference(session)
        except (DeviceLost, LostSession, UnfitDevice) as error:
            raise self._lose(str(error)) from error
        return session

    def _start_reference(self, session: Session) -> None:
        require = self._farm.require
        require(session.ask(self._reference.load(0), TRANSFER_SECONDS), Ready, "the reference kernel", self._address)
        limit = self._farm.bench.settings.run_timeout_seconds
        if not self._reference_calls:
            once = session.ask(RepeatOf(self._reference.number, Repeat(1)), max(limit, TRANSFER_SECONDS))
            once = require(once, Repeated, "the reference kernel", self._address)
            self._reference_calls = calls_per_repeat(once.run_seconds, REPEAT_SECONDS)
        self._reference_repeat(session)

    def _reference_repeat(self, session: Session) -> Repeated:
        request = RepeatOf(self._reference.number, Repeat(self._reference_calls))
        limit = max(self._farm.bench.settings.run_timeout_seconds, TRANSFER_SECONDS)
        repeated: Repeated = self._farm.require(
            session.ask(request, limit), Repeated, "the reference kernel", self._address
        )
        return repeated

    def _load(self, session: Session, library: Library) -> Ready | Failed:
        if library.number in session.loaded:
            return Ready()
        reply: Ready | Failed = session.ask(library.load(self._farm.bench.seed), TRANSFER_SECONDS)
        return reply

    def _drop(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _lose(self, reason: str) -> DeviceLost:
        self._drop()
        self._gone = reason
        self._farm.release(self._address)
        return DeviceLost(reason)


class RemoteProgram:
    """A program that a device holds, or can load again at any time."""

    def __init__(self, device: RemoteDevice, key: str, library: Library) -> None:
        self.key = key
        self.exported = library
        self._device = device
        self._open = True

    def repeat(self, calls: int) -> Repeated | Failed:
        """Times one repeat."""
        reply = self._device.repeat(self, calls)
        if isinstance(reply, Failed):
            self.close()
        return reply

    def close(self) -> None:
        """Frees it there and here."""
        if self._open:
            self._open = False
            self._device.closed(self)
