"""A real tracker and real servers on loopback, each in a session of processes that is killed at the end."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from kernelcast.measurement.tracker import Tracker, TrackerUnreachable

TRACKER, STOCK_SERVER = "tvm.exec.rpc_tracker", "tvm.exec.rpc_server"
SERVER = "kernelcast.measurement.rpc_server"
START_SECONDS = 120


class Lab:
    """A tracker, and servers for it as they are wanted."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.port = free_port()
        self.tracker = Tracker("127.0.0.1", self.port)
        self._started(TRACKER, "--host", "127.0.0.1", "--port", str(self.port), "--port-end", str(self.port + 1))
        self._wait_until(self._answers)

    def start(self, key: str, count: int = 1, module: str = SERVER) -> list["subprocess.Popen[bytes]"]:
        """Servers of a key; they are registered when this returns."""
        wanted = self.tracker.devices()[key] + count
        servers = []
        for _ in range(count):
            port = free_port()
            listen = ["--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1)]
            servers.append(self._started(module, *listen, "--tracker", f"127.0.0.1:{self.port}", "--key", key))
        self._wait_until(lambda: self.tracker.devices()[key] == wanted)
        return servers

    def _answers(self) -> bool:
        with suppress(TrackerUnreachable):
            return not self.tracker.devices()
        return False

    def _started(self, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        log = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115, the stack closes it
        # two servers here share the cores: TVM would put the threads of both on the first ones
        environment = {**os.environ, "TVM_BIND_THREADS": "0", "TVM_NUM_THREADS": "2"}
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            start_new_session=True,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        self._stack.callback(kill, process)
        return process

    @staticmethod
    def _wait_until(ready: Callable[[], bool]) -> None:
        until = time.monotonic() + START_SECONDS
        while not ready():
            assert time.monotonic() < until, "the tracker or a server did not come up"
            time.sleep(0.05)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
