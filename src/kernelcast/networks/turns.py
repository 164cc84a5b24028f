"""The side of a process that keeps one network loaded and runs it whenever it is its turn.

It speaks JSON over the socket whose number it got: first `{"ready": true, ...}` or `{"unavailable": reason}`, then for
each `{"calls": n}` the mean seconds of a call, `{"seconds": s}`. It ends when the other side is gone.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any


def serve_turns(socket_number: int, load: Callable[[], tuple[Callable[[], Any], dict[str, Any]]]) -> None:
    """Loads a network and answers until the other side is gone.

    Args:
        socket_number: of the connection.
        load: gives what runs the network once, and what else to say when it is ready. What it raises is the reason why
            this contender cannot run.
    """
    with Connection(socket_number) as connection:
        try:
            call, said = load()
            started = time.perf_counter()
            call()
            _send(connection, {"ready": True, "call_seconds": time.perf_counter() - started, **said})
        except Exception as error:  # whatever compiles the network throws: it is the answer
            traceback.print_exc()
            _send(connection, {"unavailable": reason(error)})
            return
        while True:
            try:
                asked = json.loads(connection.recv_bytes())
            except EOFError:
                return
            _send(connection, {"seconds": timed(call, int(asked["calls"]))})


def timed(call: Callable[[], Any], calls: int) -> float:
    """Mean seconds of a call, after one that does not count: others ran meanwhile."""
    call()
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls


def keep_to(cores: Sequence[int]) -> None:
    """Keeps this process, with every thread that it will start, to some cores; call it before anything is loaded."""
    if cores and sys.platform == "linux":
        os.sched_setaffinity(0, cores)


def reason(error: BaseException) -> str:
    """The line of an error that says most, with its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _send(connection: Connection, message: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(message).encode())
