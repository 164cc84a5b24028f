"""A process that has TVM loaded once and forks itself into workers: one is ready in tens of milliseconds.

The server has one thread and answers one request at a time over a socket: fork a worker, or collect a dead one. It
keeps the dead as zombies until they are asked for, so a process id never comes to mean another process. When whoever
started it is gone, however it ended, the server kills all its workers and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from kernelcast.errors import MeasurementError

MESSAGE = struct.Struct("=cq")
"""Request: FORK and the memory limit in bytes, or REAP and a process id. Reply: the same letter and the result."""

READY, FORK, REAP = b"!", b"F", b"R"
START_TIMEOUT_SECONDS = 300.0
PR_SET_PDEATHSIG = 1


class ForkServer:
    """The side of whoever wants workers. Use it as a context manager: no process is left after it."""

    def __init__(self, target: dict[str, Any], cores: Collection[int] = (), temporary: Path | None = None) -> None:
        """Starts the server and returns when TVM is loaded there.

        Args:
            target: the complete TVM target of the programs.
            cores: the cores for the server and its workers until a worker moves itself; empty: all that there are.
            temporary: where compilers leave their files; None: where the system says.

        Raises:
            MeasurementError: the server did not come up; the message holds what it said.
        """
        self._control, theirs = socket.socketpair()
        # a request without its reply, because of Ctrl-C between the two: nothing can be asked any more
        self._interrupted = False
        # one request at a time, whichever thread asks
        self._lock = threading.Lock()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, `close` closes it
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "kernelcast.measurement.forkserver",
                    str(theirs.fileno()),
                    json.dumps(target),
                    *(str(core) for core in cores),
                ],
                pass_fds=[theirs.fileno()],
                env=_server_environment(target.get("num-cores", 1), temporary),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                # Ctrl-C goes to the whole group of the terminal; this process decides what becomes of its workers
                start_new_session=True,
            )
        try:
            self._control.settimeout(START_TIMEOUT_SECONDS)
            self._receive(READY)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the server, the parent of all workers."""
        return self._process.pid

    def fork(self, memory_limit_bytes: int) -> tuple[int, Connection, IO[bytes]]:
        """A new worker: its process id, the connection to it, and the file that takes its output."""
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115, whoever closes the worker closes it
        with theirs, self._lock:
            pid = self._ask(FORK, memory_limit_bytes, [theirs.fileno(), log.fileno()])
        return pid, Connection(ours.detach()), log

    def reap(self, pid: int) -> int | None:
        """Waits for the end of a worker and returns its exit code, or minus the signal that ended it.

        After a request that was interrupted or not answered nobody can tell, and it returns None: `close`, which comes
        next, ends and collects all workers.
        """
        with self._lock:
            return None if self._interrupted else self._ask(REAP, pid, [])

    def close(self) -> None:
        """Ends the server and with it every worker."""
        # a thread that waits for an answer would not notice a mere close
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers follow by their death signal
            self._process.wait()
        self._log.close()

    def _ask(self, letter: bytes, value: int, descriptors: list[int]) -> int:
        self._interrupted = True
        # when the server is gone, `_receive` says so
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._control, [MESSAGE.pack(letter, value)], descriptors)
        result = self._receive(letter)
        self._interrupted = False
        return result

    def _receive(self, expected: bytes) -> int:
        try:
            reply = _receive_exactly(self._control, MESSAGE.size)
        except TimeoutError as error:
            raise MeasurementError(
                f"the process that starts the workers did not answer within {START_TIMEOUT_SECONDS:.0f} s; "
                "is the machine overloaded? Run the same command again"
            ) from error
        except OSError:
            reply = b""
        if len(reply) < MESSAGE.size:
            raise MeasurementError(
                f"the process that starts the workers ended; its last words: {self._last_words()}; "
                "run the same command again"
            )
        letter, value = MESSAGE.unpack(reply)
        assert letter == expected, (letter, expected)
        return int(value)

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "none"

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(control: socket.socket, target: dict[str, Any]) -> None:
    """Answers requests until the other side is gone."""
    from kernelcast.measurement.worker import warm_up

    warm_up(target)
    workers: set[int] = set()
    control.sendall(MESSAGE.pack(READY, 0))
    try:
        while True:
            request, descriptors, _, _ = socket.recv_fds(control, MESSAGE.size, 2)
            if len(request) < MESSAGE.size:
                return
            letter, value = MESSAGE.unpack(request)
            if letter == FORK:
                pid = _fork_worker(control, descriptors[0], descriptors[1], value)
                workers.add(pid)
                for descriptor in descriptors:
                    os.close(descriptor)
                control.sendall(MESSAGE.pack(FORK, pid))
            else:
                code = _collect(control, value)
                if code is None:
                    return
                workers.discard(value)
                control.sendall(MESSAGE.pack(REAP, code))
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        for pid in workers:
            os.waitpid(pid, 0)


def _collect(control: socket.socket, pid: int) -> int | None:
    """Exit code of a worker that was killed or is ending; None when the other side is gone meanwhile."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        readable, _, _ = select.select([control], [], [], 0.002)
        if readable and not control.recv(1, socket.MSG_PEEK):
            return None


def _fork_worker(control: socket.socket, connection: int, log: int, memory_limit_bytes: int) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(server)
        control.close()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        from kernelcast.measurement.worker import serve_program

        serve_program(Connection(connection), memory_limit_bytes)
        code = 0
    finally:
        # never back into the server's loop, and no clean-up of what belongs to the server
        os._exit(code)


def die_with_parent(parent: int) -> None:
    """Has the system kill this process when `parent` ends (Linux; elsewhere a worker ends when its connection does)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _server_environment(threads: int, temporary: Path | None) -> dict[str, str]:
    return {
        **os.environ,
        **({} if temporary is None else {"TMPDIR": str(temporary)}),
        "TVM_NUM_THREADS": str(threads),
        # threads of NumPy's own pools would not survive the fork
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        # TVM pins its threads to cores counted from 0, whatever this process may use; the workers pin theirs themselves
        "TVM_BIND_THREADS": "0",
    }


def _receive_exactly(stream: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = stream.recv(size - len(received))
        if not chunk:
            break
        received += chunk
    return received


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.platform == "linux":
        os.sched_setaffinity(0, {int(core) for core in sys.argv[3:]})
    serve(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]))
