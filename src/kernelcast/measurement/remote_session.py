"""A session with one device behind an RPC tracker, in a worker of its own: when it hangs or breaks, only that is lost.

TVM's client blocks in C++ without a limit, so whoever asks a session kills its worker when it takes too long. All
programs of a device are loaded in one session and called one at a time.
"""

from __future__ import annotations

import importlib
import json
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.measurement.checking import difference, read_results
from kernelcast.measurement.messages import Argument, Failed, Prepared, Repeat, Repeated
from kernelcast.measurement.rpc_server import DESCRIBE
from kernelcast.measurement.tracker import Grant, Tracker, TrackerUnreachable
from kernelcast.measurement.worker import explain, random_arrays
from kernelcast.records import Outcome
from kernelcast.tvm_compat import load_tvm

LOOK_SECONDS = 2.0
"""Between two looks whether a device that is waited for is still there."""

BIG_CORES = 1
"""TVM's thread pool on the fast cores first."""


@dataclass(frozen=True)
class OpenSession:
    """Asks for a session; answered by `Opened` or `NotOpened`.

    Attributes:
        key: of the device.
        wanted: its address; None for any.
        avoided: addresses of devices that are in use, which may be free for a moment.
        limit_seconds: how long to wait for it.
        session_seconds: after which the server ends the session, whatever happens here.
        threads: of the programs.
    """

    tracker: Tracker
    key: str
    wanted: str | None
    avoided: frozenset[str]
    limit_seconds: float
    session_seconds: float
    threads: int


@dataclass(frozen=True)
class Opened:
    """There is a session.

    Attributes:
        address: of the device.
        processor: LLVM's name of it; empty where the server has no LLVM.
        threads: that its thread pool has without being told.
        description: what `rpc_server.describe` says; empty with TVM's own server.
    """

    address: str
    processor: str
    threads: int
    description: dict[str, Any]


@dataclass(frozen=True)
class NotOpened:
    """There is no session, and why."""

    reason: str


@dataclass(frozen=True)
class Load:
    """Asks to bring a program to the device with its arguments; answered by `Ready`.

    Attributes:
        number: names it from now on.
        path: the shared library, here.
        arguments: what it takes.
        seed: of their values; None: memory as it comes, after the program has run once each way.
    """

    number: int
    path: Path
    arguments: tuple[Argument, ...]
    seed: int | None


@dataclass(frozen=True)
class Ready:
    """A program is loaded, or forgotten."""


@dataclass(frozen=True)
class Call:
    """Asks to run a program for the first time; answered by `Prepared`."""

    number: int


@dataclass(frozen=True)
class Check:
    """Asks whether its results are right; answered by `Ready`.

    Attributes:
        expected: file with the results of the unscheduled workload; None: they only have to be finite numbers.
    """

    number: int
    expected: Path | None


@dataclass(frozen=True)
class RepeatOf:
    """Asks for one repeat; answered by `Repeated`. Cores are the device's affair."""

    number: int
    repeat: Repeat


@dataclass(frozen=True)
class Forget:
    """Asks to free a program; answered by `Ready`."""

    number: int


@dataclass(frozen=True)
class Refused:
    """The program failed; the session goes on."""

    failed: Failed


@dataclass(frozen=True)
class SessionLost:
    """The session is gone."""

    reason: str


@dataclass
class _Loaded:
    names: list[str]
    module: Any
    function: Any
    arguments: list[Any] = field(default_factory=list)


class RemoteSession:
    """What a worker does with its session."""

    def __init__(self) -> None:
        self._session: Any = None
        self._device: Any = None
        self._programs: dict[int, _Loaded] = {}

    def open(self, request: OpenSession) -> Opened | NotOpened:
        """Gets the device from the tracker and connects."""
        load_tvm()
        try:
            grant = _wait_for(request)
            if grant is None:
                which = f"no device of key {request.key!r}" if request.wanted is None else request.wanted
                return NotOpened(f"{which} is gone, or was not free within {request.limit_seconds:g} s")
            rpc = importlib.import_module("tvm.rpc")
            self._session = rpc.connect(grant.host, grant.port, grant.match_key, request.session_seconds)
            self._device = self._session.cpu()
            return self._describe(request, grant)
        except TrackerUnreachable as error:
            return NotOpened(str(error))
        except Exception as error:  # whatever TVM throws when a device does not speak with it
            traceback.print_exception(error)
            return NotOpened(f"no session with it: {_first_line(error)}")

    def _describe(self, request: OpenSession, grant: Grant) -> Opened:
        threads = int(self._session.get_function("runtime.NumThreads")())
        self._session.get_function("runtime.config_threadpool")(BIG_CORES, request.threads)
        name = self._optional("tvm.codegen.llvm.GetHostCPUName")
        description = self._optional(DESCRIBE)
        return Opened(
            grant.address,
            "" if name is None else str(name),
            threads,
            {} if description is None else json.loads(str(description)),
        )

    def _optional(self, name: str) -> Any:
        """What a function of the server returns; None where the server does not have it."""
        try:
            return self._session.get_function(name)()
        except Exception:  # tvm.error.RPCError, AttributeError: as the versions of TVM like it
            return None

    def answer(self, request: Any) -> Any:
        """The reply to one request about one program."""
        try:
            if isinstance(request, Load):
                return self._load(request)
            if isinstance(request, Call):
                return self._call(request.number)
            if isinstance(request, Check):
                return self._check(request)
            if isinstance(request, RepeatOf):
                return self._repeat(request)
            assert isinstance(request, Forget), request
            self._programs.pop(request.number, None)
            return Ready()
        except Exception as error:  # of the program or of the session, which the next call finds out
            if self._is_alive():
                return Refused(explain(error, building=False))
            return SessionLost(_first_line(error))

    def _is_alive(self) -> bool:
        try:
            return int(self._session.get_function("runtime.NumThreads")()) > 0
        except Exception:
            return False

    def _load(self, request: Load) -> Ready:
        runtime = load_tvm().runtime
        name = f"program_{request.number}.so"
        self._session.upload(str(request.path), target=name)
        module = self._session.load_module(name)
        self._session.remove(name)
        loaded = _Loaded([argument.name for argument in request.arguments], module, module["main"])
        if request.seed is None:
            for argument in request.arguments:
                loaded.arguments.append(runtime.empty(argument.shape, argument.dtype, self._device))
            # memory that nobody has written is not there yet, and reading it is faster than it will ever be
            loaded.function(*loaded.arguments)
            loaded.function(*reversed(loaded.arguments))
        else:
            for array in random_arrays(request.arguments, request.seed):
                loaded.arguments.append(runtime.tensor(array, device=self._device))
        self._programs[request.number] = loaded
        return Ready()

    def _call(self, number: int) -> Prepared:
        program = self._programs[number]
        started = time.perf_counter()
        program.function(*program.arguments)
        return Prepared(time.perf_counter() - started)

    def _check(self, request: Check) -> Ready | Refused:
        program = self._programs[request.number]
        expected = None if request.expected is None else read_results(request.expected)
        results = [argument.numpy() for argument in program.arguments]
        wrong = difference(program.names, results, expected)
        return Refused(Failed(Outcome.WRONG_RESULT, wrong)) if wrong else Ready()

    def _repeat(self, request: RepeatOf) -> Repeated:
        program, repeat = self._programs[request.number], request.repeat
        cold = repeat.flush_bytes > 0
        evaluator = program.module.time_evaluator(
            "main",
            self._device,
            number=1 if cold else repeat.calls,
            repeat=repeat.calls if cold else 1,
            cache_flush_bytes=repeat.flush_bytes,
        )
        return Repeated(float(np.mean(evaluator(*program.arguments).results)), time.time())


def _wait_for(request: OpenSession) -> Grant | None:
    """The wanted device, or any that is not avoided; None when it is gone or does not get free in time."""
    until = time.monotonic() + request.limit_seconds
    while (left := until - time.monotonic()) > 0:
        if request.wanted is not None and request.wanted not in request.tracker.addresses(request.key):
            return None
        grant = request.tracker.request(request.key, min(left, LOOK_SECONDS))
        if grant is not None and _fits(request, grant):
            return grant
        # a grant that is not used expires within seconds: the server makes a new one
    return None


def _fits(request: OpenSession, grant: Grant) -> bool:
    if request.wanted is not None:
        return grant.address == request.wanted
    return grant.address not in request.avoided


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
