"""Names of processes, `HOST/PID@START`, by which another process can tell later whether one of them still lives."""

from __future__ import annotations

import os
import socket

import psutil


def process_identity() -> str:
    """The name of this process; its start, in seconds since 1970, tells it from a later one with its number."""
    return f"{socket.gethostname()}/{os.getpid()}@{psutil.Process().create_time():.2f}"


def process_may_live(identity: str) -> bool:
    """Whether a process may still be there: on another machine nobody here can know."""
    host, _, process = identity.partition("/")
    return host != socket.gethostname() or process_lives(process)


def process_lives(process: str) -> bool:
    """Whether the process `PID@START` of this machine still runs."""
    pid, _, started = process.partition("@")
    try:
        found = psutil.Process(int(pid))
        # one that has ended and that nobody has waited for stays in the list
        return abs(found.create_time() - float(started)) < 1.0 and found.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError):
        return False
