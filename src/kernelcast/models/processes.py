"""Several processes that train one network together, one for each device.

The process that asks is the first of them, so that logs, progress and errors stay where the caller is, whatever
started it: a script, a sweep, a notebook. Lightning's own launchers run the whole command again in each process, or
train in a new one and leave the caller without its log.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment, find_free_network_port

from kernelcast.errors import KernelcastError

ADDRESS = "127.0.0.1"
JOIN_SECONDS = 30.0
"""How long the others may take to end after the first one has."""

ENDING_SECONDS = 30.0
"""How long one of the others may take to end after its error."""

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE", "OMP_NUM_THREADS")
"""What Lightning reads and sets in the environment."""


class OwnProcesses(LightningEnvironment):
    """Tells Lightning that all processes are there, and which of them this is."""

    def __init__(self, rank: int, port: int) -> None:
        super().__init__()
        self._rank = rank
        self._port = port

    @property
    def creates_processes_externally(self) -> bool:
        """They are there."""
        return True

    @property
    def main_address(self) -> str:
        """All are on this machine."""
        return ADDRESS

    @property
    def main_port(self) -> int:
        """Where the first process listens."""
        return self._port

    def local_rank(self) -> int:
        """Number of this process."""
        return self._rank

    def node_rank(self) -> int:
        """All are on this machine."""
        return 0


@contextmanager
def companions(count: int, threads: int, work: Callable[..., None], *arguments: Any) -> Iterator[OwnProcesses]:
    """Starts the other processes of a training and gives the place of this one among them.

    Args:
        count: processes in all, this one among them.
        threads: torch threads of each.
        work: called in each of the others with its place and `arguments`.
        arguments: whatever can be pickled.

    Raises:
        KernelcastError: one of the others ended before its time.
    """
    context = multiprocessing.get_context("spawn")
    port = find_free_network_port()
    # as bytes: torch would share the memory of tensors, and every process changes its own
    pickled = pickle.dumps((work, arguments))
    processes, ready = [], []
    for rank in range(1, count):
        receiver, sender = context.Pipe(duplex=False)
        processes.append(context.Process(target=_companion, args=(rank, port, threads, pickled, sender), daemon=True))
        ready.append(receiver)
    try:
        with distributed_environment(threads):
            for process in processes:
                process.start()
            for process, receiver in zip(processes, ready, strict=True):
                # one that ends before it has begun would be waited for in vain for half an hour
                if receiver not in wait([receiver, process.sentinel]):
                    _raise_ended(processes, None)
            try:
                yield OwnProcesses(0, port)
            except RuntimeError as error:
                # a closed connection: the cause is in the process that is no more
                _raise_ended(processes, error)
                raise
        for process in processes:
            process.join(JOIN_SECONDS)
    finally:
        for process in processes:
            if process.pid is not None:
                # not SIGTERM, at which Lightning would talk with the others once more
                process.kill()
                process.join()


def _raise_ended(processes: list[SpawnProcess], error: RuntimeError | None) -> None:
    """Says which of the others have ended with an error; looked at before this one's end ends them too."""
    ending = wait([process.sentinel for process in processes], timeout=ENDING_SECONDS)
    for process in processes:
        if process.sentinel in ending:
            # its files are closed a moment before its status can be read
            process.join()
    ended = {rank: process.exitcode for rank, process in enumerate(processes, 1) if process.exitcode}
    if ended:
        told = ", ".join(f"process {rank} with status {code}" for rank, code in ended.items())
        raise KernelcastError(
            f"training on several devices stopped, since not all of its processes lived: {told} ended (its own message "
            "is above; -9 is mostly a lack of memory); run the same command again, or with trainer.devices=1"
        ) from error


@contextmanager
def distributed_environment(threads: int) -> Iterator[None]:
    """Leaves no group of processes and none of Lightning's environment variables behind."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    # without it Lightning sets threads of its own choice
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        if torch.distributed.is_initialized():
            with suppress(RuntimeError):
                torch.distributed.destroy_process_group()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _companion(rank: int, port: int, threads: int, pickled: bytes, ready: Connection) -> None:
    """One of the other processes; Ctrl-C reaches it too, but the first one decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work, arguments = pickle.loads(pickled)
        ready.send(True)
        with distributed_environment(threads):
            work(OwnProcesses(rank, port), *arguments)
    except Exception as error:
        if isinstance(error, KernelcastError):
            print(error, file=sys.stderr)
        else:
            traceback.print_exc()
        sys.stderr.flush()
        # at once: the first process waits to hear of it, and taking down torch is slow
        os._exit(1)
