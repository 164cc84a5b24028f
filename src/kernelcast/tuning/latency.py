"""How long a network takes with each of several contenders, timed in turns.

Each contender has a process of its own that keeps the network loaded. In every round each has one repeat, in an order
that moves on by one a round, so that all see the same states of a shared machine and nobody always follows the same.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import IO, Any

import numpy as np

from kernelcast.measurement.host import cores_of_machine
from kernelcast.measurement.local import share_cores
from kernelcast.measurement.settings import require_positive_integer, require_seconds
from kernelcast.measurement.worker import calls_per_repeat
from kernelcast.networks.saved import SavedNetwork
from kernelcast.networks.torch_contender import COMPILE, EAGER
from kernelcast.tuning.deployment import Deployment, thread_environment

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LatencySettings:
    """How networks are timed.

    Attributes:
        rounds: repeats of each contender.
        repeat_seconds: how long one repeat lasts at least; a network that takes longer is called once a repeat.
        start_timeout_seconds: limit of loading, and compiling, a contender.
        run_timeout_seconds: limit of one repeat.

    Raises:
        ConfigError: a value that is not positive.
    """

    rounds: int = 20
    repeat_seconds: float = 0.2
    start_timeout_seconds: float = 600.0
    run_timeout_seconds: float = 120.0

    def __post_init__(self) -> None:
        require_positive_integer("latency.rounds", self.rounds)
        for name in ("repeat_seconds", "start_timeout_seconds", "run_timeout_seconds"):
            require_seconds(f"latency.{name}", getattr(self, name))


@dataclass(frozen=True)
class Contender:
    """Something that runs a network.

    Attributes:
        name: in the table.
        module: what its process runs, see `networks.turns`.
        arguments: after the socket's number and the cores.
    """

    name: str
    module: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Latency:
    """One row of the table.

    Attributes:
        contender: its name.
        run_seconds: of a call, one a round; none where it could not run.
        note: why it could not, or could not go on; empty where all went well.
        threads: that it said it computes with.
        version: of torch or TVM.
    """

    contender: str
    run_seconds: tuple[float, ...]
    note: str = ""
    threads: int = 0
    version: str = ""

    @property
    def minimum_seconds(self) -> float | None:
        """The fastest repeat: what other work on the machine disturbs least."""
        return min(self.run_seconds, default=None)

    @property
    def median_seconds(self) -> float | None:
        """The middle repeat: what a user sees."""
        return float(np.median(self.run_seconds)) if self.run_seconds else None


def deployed_contender(name: str, deployment: Deployment) -> Contender:
    """A deployed network."""
    return Contender(name, "kernelcast.tuning.deployed_contender", (str(deployment.folder),))


def torch_contenders(saved: SavedNetwork, target: Mapping[str, Any]) -> list[Contender]:
    """The network as torch runs it, eagerly and compiled by TorchInductor."""
    module, threads = "kernelcast.networks.torch_contender", str(target.get("num-cores", 1))
    return [
        Contender(name, module, (threads, str(saved.folder), way))
        for name, way in (("torch eager", EAGER), ("torch.compile", COMPILE))
    ]


def time_networks(
    contenders: Sequence[Contender], target: Mapping[str, Any], settings: LatencySettings
) -> list[Latency]:
    """The latency of each contender, all with the threads of the target and on the same cores.

    One that cannot run, crashes or takes too long has a row that says why; the others go on.

    Args:
        contenders: in the order of the table.
        target: complete, for this machine's processor.
        settings: how long.
    """
    threads = int(target.get("num-cores", 1))
    slots, _ = share_cores(cores_of_machine(), threads, slots=1)
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelcast-"))
        # TorchInductor keeps what it compiled; an earlier run must not help
        environment = {**os.environ, **thread_environment(dict(target)), "TORCHINDUCTOR_CACHE_DIR": scratch}
        running = []
        for contender in contenders:
            logger.info("loading %s", contender.name)
            process = stack.enter_context(_Running(contender, slots[0], environment))
            # one after the other: compiling takes all cores
            process.start(settings.start_timeout_seconds)
            running.append(process)
        for number in range(settings.rounds):
            shift = number % max(1, len(running))
            for process in running[shift:] + running[:shift]:
                process.repeat(settings)
    return [process.latency() for process in running]


@dataclass
class _Running:
    """A contender's process."""

    contender: Contender
    cores: Sequence[int]
    environment: Mapping[str, str]
    note: str = ""
    call_seconds: float = 0.0
    said: dict[str, Any] = field(default_factory=dict)
    run_seconds: list[float] = field(default_factory=list)

    def __enter__(self) -> _Running:
        ours, theirs = socket.socketpair()
        self._log: IO[bytes] = tempfile.TemporaryFile()
        cores = ",".join(map(str, self.cores))
        with theirs:
            command = [sys.executable, "-m", self.contender.module, str(theirs.fileno()), cores]
            self._process = subprocess.Popen(
                [*command, *self.contender.arguments],
                pass_fds=[theirs.fileno()],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                # with whatever compilers it starts
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._end()
        self._log.close()

    def start(self, timeout_seconds: float) -> None:
        """Waits until it has run once."""
        reply = self._reply(timeout_seconds)
        if "unavailable" in reply:
            self.note = str(reply["unavailable"])
            self._end()
        elif reply:
            self.said = reply
            self.call_seconds = float(reply["call_seconds"])

    def repeat(self, settings: LatencySettings) -> None:
        """One repeat, unless it failed before."""
        if self.note:
            return
        calls = calls_per_repeat(min(self.run_seconds, default=self.call_seconds), settings.repeat_seconds)
        # where it is gone, the reply will say how it ended
        with suppress(OSError):
            self._connection.send_bytes(json.dumps({"calls": calls}).encode())
        reply = self._reply(settings.run_timeout_seconds)
        if reply:
            self.run_seconds.append(float(reply["seconds"]))

    def latency(self) -> Latency:
        """Its row."""
        threads, version = int(self.said.get("threads", 0)), str(self.said.get("version", ""))
        return Latency(self.contender.name, tuple(self.run_seconds), self.note, threads, version)

    def _reply(self, timeout_seconds: float) -> dict[str, Any]:
        """What it says; nothing, and a note, where it does not in time."""
        try:
            if self._connection.poll(timeout_seconds):
                reply: dict[str, Any] = json.loads(self._connection.recv_bytes())
                return reply
            self.note = f"no answer within {timeout_seconds:g} s"
        except (EOFError, OSError):
            code = self._process.wait()
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            self.note = f"its process {how}; its last words: {self._last_words()}"
        self._end()
        return {}

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "none"

    def _end(self) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
