"""Programs in their own processes, seen from the process that measures."""

from __future__ import annotations

import contextlib
import os
import signal
from types import TracebackType
from typing import Any

from kernelcast.errors import MeasurementError
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.messages import Build, Failed, Finish, ReadCode, Sample, SampleMore
from kernelcast.measurement.worker import says_out_of_memory
from kernelcast.records import Outcome

LINKING = "JIT session error: Symbols not found"
"""LLVM links when a program is first called; what it calls is missing then, and the process crashes."""

LOG_BYTES = 4096
"""Bytes of a dead worker's output that are looked at."""


class ProgramProcess:
    """One worker with one program. A context manager: the process is gone after it."""

    def __init__(self, server: ForkServer, memory_limit_bytes: int) -> None:
        self._server = server
        self._pid, self.connection, self._log = server.fork(memory_limit_bytes)
        self._doing = "starting"
        self._open = True

    def ask(self, request: Any, timeout_seconds: float, timeout_outcome: Outcome) -> Any:
        """Sends a request and returns the answer; whatever goes wrong is a `Failed`, and the worker is gone then.

        The process only runs while it is asked: between two requests it is stopped, because threads of TVM's pool spin
        on after their work and would disturb the program that is timed next.
        """
        self.send(request)
        if not self.connection.poll(timeout_seconds):
            return self.give_up(timeout_seconds, timeout_outcome)
        return self.receive()

    def send(self, request: Any) -> None:
        """Lets the process go on and sends a request."""
        self._doing = (
            "building"
            if isinstance(request, Build | ReadCode | Finish)
            else "sampling"
            if isinstance(request, Sample | SampleMore)
            else "running"
        )
        self._signal(signal.SIGCONT)
        # when it is dead, `receive` finds out why
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(request)

    def receive(self) -> Any:
        """The answer, once there is something to read: a reply, or why the worker died."""
        try:
            reply = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return self._death()
        if isinstance(reply, Failed):
            self.close()
        else:
            self._signal(signal.SIGSTOP)
        return reply

    def give_up(self, timeout_seconds: float, outcome: Outcome) -> Failed:
        """Ends a worker that takes too long."""
        self.close()
        return Failed(outcome, f"still {self._doing} after {timeout_seconds:g} s; stopped")

    def close(self) -> None:
        """Kills the process and waits for its end."""
        if self._open:
            self._open = False
            self._signal(signal.SIGKILL)
            self._server.reap(self._pid)
            self.connection.close()
            self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        # it exists until it is reaped, unless the server is gone, which the next request to it finds out
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _death(self) -> Failed:
        self._open = False
        # the connection is closed but the process may still be writing its last words
        code = self._server.reap(self._pid)
        self.connection.close()
        if code is None:
            # it died with the server, which says nothing about its program
            self._log.close()
            raise MeasurementError("the process that starts the workers ended; run the same command again")
        with self._log as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
            words = log.read().decode(errors="replace").strip()
        return death_outcome(code, self._doing, words)

    def __enter__(self) -> ProgramProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def death_outcome(code: int, doing: str, last_words: str) -> Failed:
    """What it means that a worker died.

    Args:
        code: exit code, or minus the number of the signal.
        doing: what it was asked for: "building" or "running".
        last_words: the end of its output.
    """
    if code >= 0:
        cause = f"the process ended with status {code} while {doing}"
    else:
        cause = f"{signal.Signals(-code).name} while {doing}"
    # stack dumps follow the line that says what happened
    lines = [line.strip() for line in last_words.splitlines() if line.strip()]
    # C++ says first that it gives up and then why
    words = next((line for line in lines if line.startswith("what():")), lines[0] if lines else "")
    message = f"{cause}: {words}" if words else cause
    # nobody else sends SIGKILL but the system when memory runs out
    if code == -signal.SIGKILL or says_out_of_memory(last_words):
        return Failed(Outcome.OUT_OF_MEMORY, message)
    if LINKING in last_words:
        return Failed(Outcome.BUILD_ERROR, message)
    return Failed(Outcome.CRASH, message)
