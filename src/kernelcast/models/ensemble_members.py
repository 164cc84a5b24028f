"""The members of an ensemble, fitted side by side: each in a process of its own, which ends with this one."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from kernelcast.errors import KernelcastError
from kernelcast.graphs.programs import Programs
from kernelcast.models.protocol import CostModel, MetricLog
from kernelcast.models.saved import load_model, save_model
from kernelcast.models.torch_runtime import prediction_device
from kernelcast.models.trainer import TrainerSettings

logger = logging.getLogger(__name__)

WORTH_PROGRAMS = 2000
"""With fewer programs to learn from, starting processes takes longer than it saves."""


@dataclass(frozen=True)
class Member:
    """What is fitted.

    Attributes:
        name: of the member.
        model: not fitted yet.
        workspace: see `CostModel.fit`.
    """

    name: str
    model: CostModel
    workspace: Path | None


@dataclass(frozen=True)
class _Metrics:
    values: dict[str, float]
    step: int


@dataclass(frozen=True)
class _Line:
    level: int
    text: str


@dataclass(frozen=True)
class _Ended:
    """`error` is None where the member is fitted and saved."""

    error: KernelcastError | None


def are_worth_processes(train: Programs, trainer: TrainerSettings | None) -> bool:
    """Whether members learn sooner in processes of their own than one after the other in this one.

    Not where there is little to learn from, nor where networks train on a GPU or in several processes already. And a
    process that is itself one of several has no cores to spare.
    """
    alone = trainer is None or (prediction_device(trainer).type == "cpu" and not trainer.distributed)
    return alone and len(train) >= WORTH_PROGRAMS and multiprocessing.parent_process() is None


def fit_side_by_side(
    members: Sequence[Member],
    jobs: int,
    train: Programs,
    valid: Programs,
    logs: Mapping[str, MetricLog],
    folder: Path,
) -> dict[str, CostModel]:
    """Fits `jobs` members at a time; the same models as one after the other.

    Args:
        members: in the order in which they begin.
        jobs: processes.
        train: see `CostModel.fit`.
        valid: see `CostModel.fit`.
        logs: by the member's name; written to in this process.
        folder: an empty one, for the models on their way to this process.

    Returns:
        The fitted models by name.

    Raises:
        KernelcastError: what a member raises, or its process died.
        TrainingPruned: what a log raises.
    """
    context = multiprocessing.get_context("spawn")
    waiting = deque(members)
    running: dict[Connection, tuple[Member, SpawnProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                member = waiting.popleft()
                receiver, sender = context.Pipe(duplex=False)
                arguments = (member, train, valid, folder / member.name, sender, logger.getEffectiveLevel())
                process = context.Process(target=_fit, args=arguments, daemon=True)
                running[receiver] = member, process
                process.start()
                # the other end is the process's alone, so that its death is the end of what can be received
                sender.close()
            ready = wait(list(running))
            for receiver in [receiver for receiver in running if receiver in ready]:
                member, process = running[receiver]
                if _take(receiver, member, process, logs[member.name]):
                    del running[receiver]
                    receiver.close()
                    process.join()
    finally:
        for _, process in running.values():
            if process.pid is not None:
                process.kill()
                process.join()
    return {member.name: load_model(folder / member.name) for member in members}


def _take(receiver: Connection, member: Member, process: SpawnProcess, log: MetricLog) -> bool:
    """Takes one message of a member in; whether it was the last one."""
    try:
        message = receiver.recv()
    except EOFError:
        process.join()
        raise KernelcastError(
            f"the process that fitted the member {member.name} ended with status {process.exitcode} (what it said is "
            "above; -9 is mostly a lack of memory); run the same command again, or with model.jobs=1"
        ) from None
    if isinstance(message, _Metrics):
        log.metrics(message.values, message.step)
    elif isinstance(message, _Line):
        logger.log(message.level, "%s: %s", member.name, message.text)
    else:
        assert isinstance(message, _Ended), message
        if message.error is not None:
            raise message.error
    return isinstance(message, _Ended)


class _SentLog(logging.Handler):
    """A `MetricLog`, and a handler of log lines, of the process that asked for the member."""

    def __init__(self, sender: Connection) -> None:
        super().__init__()
        self._sender = sender
        # lines may come from any thread
        self._sending = threading.Lock()

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        self._send(_Metrics({name: float(value) for name, value in values.items()}, step))

    def emit(self, record: logging.LogRecord) -> None:
        self._send(_Line(record.levelno, record.getMessage()))

    def _send(self, message: _Metrics | _Line) -> None:
        with self._sending:
            self._sender.send(message)


def _fit(member: Member, train: Programs, valid: Programs, folder: Path, sender: Connection, log_level: int) -> None:
    """Fits one member in this process."""
    # Ctrl-C reaches every process of a terminal: the one that asked decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # bars of several processes would draw over each other; lines go to the one that asked
    os.environ["TTY_COMPATIBLE"] = "0"
    log = _SentLog(sender)
    logging.basicConfig(level=log_level, handlers=[log])
    try:
        member.model.fit(train, valid, log, member.workspace)
        save_model(member.model, folder)
    except KernelcastError as error:
        sender.send(_Ended(error))
    except Exception:
        traceback.print_exc()
        os._exit(1)
    else:
        sender.send(_Ended(None))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process that another one started"
    parent.join()
    os._exit(1)
