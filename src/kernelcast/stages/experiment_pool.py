"""Trainings in worker processes: torch is imported once in each, and one that dies costs its own training alone."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from omegaconf import DictConfig

from kernelcast.errors import KernelcastError
from kernelcast.stages.experiment_plan import Training, training_config

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
ATTEMPTS = 2
"""A worker that dies takes those that share its pool along, so each of them gets a second chance, alone."""

GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        training: which one.
        seconds: from its start to its end.
        reason: why it failed; empty where it did not.
    """

    training: Training
    seconds: float
    reason: str


@dataclass(frozen=True)
class Task:
    """What a worker gets.

    Attributes:
        training: which one.
        caller: the experiment's configuration.
        log: the file that takes all that the training prints.
    """

    training: Training
    caller: DictConfig
    log: Path


def train_all(
    trainings: Sequence[Training], caller: DictConfig, jobs: int, logs: Path, work: Callable[[Task], str] | None = None
) -> Iterator[Outcome]:
    """Trains `jobs` models at a time, each process with one thread, and tells of each as it ends.

    Args:
        trainings: in the order in which they begin.
        caller: the experiment's configuration.
        jobs: processes.
        logs: folder for what the trainings print, a file each.
        work: what a process does with a training; gives the reason why it failed, or an empty text.
    """
    waiting = deque((Task(training, caller, logs / f"{_log_name(training)}.log"), 1) for training in trainings)
    alone: deque[tuple[Task, int]] = deque()
    while waiting or alone:
        # those whose process died go one by one, so that it is known which of them kills it
        queue, size = (waiting, jobs) if waiting else (alone, 1)
        died = yield from _train_until_broken(queue, size, work or train_one)
        for task, attempt in died:
            if attempt < ATTEMPTS:
                alone.append((task, attempt + 1))
            else:
                reason = f"its process died without a word (out of memory?); the end of its output is in {task.log}"
                yield Outcome(task.training, 0.0, reason)


def _train_until_broken(
    queue: deque[tuple[Task, int]], jobs: int, work: Callable[[Task], str]
) -> Generator[Outcome, None, list[tuple[Task, int]]]:
    """Works on `queue` until it is empty or a process dies; returns what was at work then."""
    with _pool(jobs) as pool:
        running: dict[Future[str], tuple[Task, int, float]] = {}
        while queue or running:
            while queue and len(running) < jobs:
                task, attempt = queue.popleft()
                running[pool.submit(work, task)] = (task, attempt, time.perf_counter())
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                # some may have ended well just before
                broken = []
                for future, (task, attempt, started) in running.items():
                    if future.done() and future.exception() is None:
                        yield Outcome(task.training, time.perf_counter() - started, future.result())
                    else:
                        broken.append((task, attempt))
                return broken
            for future in done:
                task, _, started = running.pop(future)
                yield Outcome(task.training, time.perf_counter() - started, future.result())
    return []


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, however it ends."""
    context = get_context("spawn")
    lifeline, held = context.Pipe(duplex=False)
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pool = ProcessPoolExecutor(jobs, context, _begin, (lifeline,))
    try:
        yield pool
        pool.shutdown()
    finally:
        # whatever still trains sees the end of its lifeline and ends as on Ctrl-C
        held.close()
        pool.shutdown(cancel_futures=True)
        lifeline.close()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _begin(lifeline: Connection) -> None:
    """Lets this process end when nobody holds the other end of `lifeline`: its parent was stopped or killed."""

    def watch() -> None:
        try:
            lifeline.recv()
        except (EOFError, OSError):
            # a run that is open is closed as killed, as on Ctrl-C
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(GRACE_SECONDS)
            os._exit(1)

    # Ctrl-C reaches every process of a terminal: the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def train_one(task: Task) -> str:
    """Trains one model in this process; gives the reason why that failed, or an empty text."""
    from kernelcast.stages.train import train

    with _output_to(task.log):
        try:
            train(training_config(task.training, task.caller, hydra_knows=True))
        except KernelcastError as error:
            logging.getLogger(__name__).error("%s", error)
            return str(error)
        # whatever else goes wrong with one model must not cost the others
        except Exception as error:
            traceback.print_exc()
            return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    return ""


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Sends all that this process prints, also from libraries in C, to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as stream:
        kept = [(number, os.dup(number)) for number in (1, 2)]
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        try:
            for number, _ in kept:
                os.dup2(stream.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            root.removeHandler(handler)
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)


def _log_name(training: Training) -> str:
    return f"{training.variant.name}-{training.split}-{training.name}"
