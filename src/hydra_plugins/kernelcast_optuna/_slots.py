"""Jobs of a sweep in Hydra's launcher, several at a time: where one ends, the next takes its place at once."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher

from kernelcast.stages.process_identity import process_lives

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        number: of the job.
        returned: what it gave back; None where its process went away.
        error: what the launcher said then.
    """

    number: int
    returned: JobReturn | None
    error: BaseException | None = None


class Slots:
    """Launches jobs and waits for whichever ends first.

    Hydra's launchers come back when all jobs of a call have ended, so that each job has a call of its own, in a thread
    of its own. A launcher that runs jobs in this process is called by the main thread, one job after the other.

    Args:
        launcher: Hydra's.
        in_process: whether it runs them here.
    """

    def __init__(self, launcher: Launcher, in_process: bool) -> None:
        self._launcher = launcher
        self._in_process = in_process
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self.running: set[int] = set()
        # with a call for every job, the launcher's own lines number each of them 0
        logging.getLogger(type(launcher).__module__.rpartition(".")[0]).setLevel(logging.WARNING)

    def start(self, number: int, overrides: Sequence[str]) -> None:
        """Launches job `number`."""
        self.running.add(number)
        logger.info("trial %d: %s", number, " ".join(overrides))
        if self._in_process:
            (returned,) = self._launcher.launch([overrides], initial_job_idx=number)
            self._ended.put(Ended(number, returned))
        else:
            # daemons: an interrupted sweep does not wait for them for ever
            threading.Thread(target=self._launch, args=(number, overrides), daemon=True, name=f"job {number}").start()

    def wait(self, seconds: float | None = None) -> Ended | None:
        """The next job that ends; None where none does within `seconds`."""
        try:
            ended = self._ended.get(timeout=seconds)
        except Empty:
            return None
        self.running.discard(ended.number)
        return ended

    def _launch(self, number: int, overrides: Sequence[str]) -> None:
        try:
            (returned,) = self._launcher.launch([overrides], initial_job_idx=number)
            self._ended.put(Ended(number, returned))
        except BaseException as error:  # a job that was told to end ends by SystemExit
            self._ended.put(Ended(number, None, error))


def signal_here(processes: Iterable[str], number: signal.Signals) -> None:
    """Sends a signal to those of the processes `HOST/PID@START` that live on this machine and are not this one."""
    for process in living_here(processes):
        os.kill(int(process.partition("@")[0]), number)


def living_here(processes: Iterable[str]) -> list[str]:
    """Those of the processes `HOST/PID@START` that live on this machine, as `PID@START`, but this one."""
    places = (process.partition("/") for process in processes)
    here = [process for host, _, process in places if host == socket.gethostname()]
    return [process for process in here if process_lives(process) and process.partition("@")[0] != str(os.getpid())]
