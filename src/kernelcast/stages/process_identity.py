"""Names of processes, `HOST/PID@START`, by which another process can tell later whether one of them still lives."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import psutil


def process_identity() -> str:
    """The name of this process; its start tells it from a later one with its number.

    Containers may share the name of their machine and count their processes each for itself, so the start ends with the
    space of numbers that it is told in.
    """
    pid = os.getpid()
    return f"{socket.gethostname()}/{pid}@{process_start(pid)}{_numbering()}"


def process_may_live(identity: str) -> bool:
    """Whether a process may still be there: on another machine, or in another container, nobody here can know."""
    host, _, process = identity.partition("/")
    return host != socket.gethostname() or process_lives(process) or _is_in_another_container(process)


def process_lives(process: str) -> bool:
    """Whether the process `PID@START` can be seen from here and runs; one that only waits to be waited for does not."""
    number, _, started = process.partition("@")
    start, numbering = _split(started)
    if numbering and numbering != _numbering():
        return False
    try:
        pid = int(number)
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
        if "-" in start:
            return process_start(pid) == start
        # by the clock, as names are where the system tells no better
        return abs(psutil.Process(pid).create_time() - float(start)) < 1.0
    except psutil.NoSuchProcess:
        return _is_hidden(number)
    except psutil.AccessDenied:
        return True
    except (ValueError, OverflowError):
        return False


def process_start(pid: int) -> str:
    """When the process `pid` began: in ticks since the machine's start, and which start, where the system tells.

    The wall clock may be set while a process runs, and a living one would then be taken for gone.

    Raises:
        psutil.NoSuchProcess: there is none.
    """
    try:
        # the name, in brackets, may be anything; the start is field 22, the state behind the name field 3
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{fields[19]}-{boot[:8]}"
    except (OSError, IndexError):
        return f"{psutil.Process(pid).create_time():.2f}"


def _is_in_another_container(process: str) -> bool:
    """Whether a process was begun under other numbers since this machine was started."""
    start, numbering = _split(process.partition("@")[2])
    boot = process_start(os.getpid()).rpartition("-")[2]
    return bool(numbering) and numbering != _numbering() and start.rpartition("-")[2] == boot


def _split(started: str) -> tuple[str, str]:
    """When a process began, and the space of numbers in which it has its own; empty in names of earlier versions."""
    start, found, numbering = started.partition("+")
    return start, found + numbering


def _numbering() -> str:
    """The space of process numbers that this process is in; empty where the system does not tell."""
    try:
        return "+" + re.sub(r"\D", "", Path("/proc/self/ns/pid").readlink().name)
    except OSError:
        return ""


def _is_hidden(pid: str) -> bool:
    """Whether there is a process that only its owner may look at."""
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False
