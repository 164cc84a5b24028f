"""Serves one device to an RPC tracker: `python -m kernelcast.measurement.rpc_server --tracker HOST:PORT --key KEY`.

TVM's own server (`python -m tvm.exec.rpc_server`) serves as well, until a program crashes: then its listening thread
ends with `Child process ... exited unsuccessfully`, and the server never serves again. A session whose client is gone
but whose program hangs keeps it busy for good. This one survives both, and tells what the device is.

The file needs nothing but Python and TVM, so that it can be copied to a device alone: `python rpc_server.py ...`.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import logging
import multiprocessing
import os
import platform
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

logger = logging.getLogger("kernelcast.rpc_server")

DESCRIBE = "kernelcast.rpc.describe"
"""The function that a session can ask for a description of the device, in JSON."""

FEATURES = "tvm.codegen.llvm.GetHostCPUFeatures"

PR_SET_PDEATHSIG = 1
WATCH_SECONDS = 0.05
"""How long the end of a session may go unnoticed."""

TRACKER_RETRY_SECONDS = 5.0


def describe() -> str:
    """What the operating system and LLVM say of the device."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    features = None
    # elsewhere LLVM reads them from /proc/cpuinfo, and misses some
    if platform.machine().lower() in ("x86_64", "amd64"):
        features = importlib.import_module("tvm_ffi").get_global_func(FEATURES, allow_missing=True)
    return json.dumps(
        {
            "cores": cores,
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "system": f"{platform.system()} {platform.release()}",
            "tvm": str(importlib.import_module("tvm").__version__),
            "instructions": {str(name): bool(there) for name, there in dict(features() if features else {}).items()},
        }
    )


def serve_session(connection: socket.socket, address: Any, options: dict[str, float], load_library: str | None) -> None:
    """Serves one session in a process of its own and ends it with its client, its time or itself; never raises.

    Takes the place of `tvm.rpc.server._serving`.
    """
    tempdir = importlib.import_module("tvm.support.utils").tempdir
    folder = tempdir()
    # forked: the session has TVM at once, and whatever the platform's default is, the socket has to go with it
    process = multiprocessing.get_context("fork").Process(
        target=_session, args=(connection, load_library, folder, os.getpid()), daemon=True
    )
    process.start()
    logger.info("a session for %s", address)
    limit = options.get("timeout")
    started = time.monotonic()
    hang_up = select.poll()
    hang_up.register(connection.fileno(), getattr(select, "POLLRDHUP", 0))
    while True:
        process.join(WATCH_SECONDS)
        if not process.is_alive():
            reason = "its end" if process.exitcode == 0 else f"status {process.exitcode}"
            break
        if hang_up.poll(0):
            reason = "its client is gone"
            break
        if limit is not None and time.monotonic() - started > limit:
            reason = f"{limit:g} s are over"
            _say_expired(connection, limit)
            break
    process.kill()
    process.join()
    connection.close()
    folder.remove()
    logger.info("the session ended: %s", reason)


def _session(connection: socket.socket, load_library: str | None, folder: Any, server: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
    os.chdir(folder.path)
    importlib.import_module("tvm.rpc.server")._serve_loop(connection, load_library, folder)


def _say_expired(connection: socket.socket, limit: float) -> None:
    # as TVM's server says it
    try:
        importlib.import_module("tvm.rpc._ffi_api").ReturnException(
            connection.fileno(), f"RPCSessionTimeoutError: Your {limit}s session has expired"
        )
    except Exception as error:  # the client does not listen any more: it finds out by itself
        logger.debug("%s", error)


def listening_socket(host: str, first_port: int, last_port: int) -> socket.socket:
    """A socket on the first free port of a range.

    Raises:
        OSError: none is free, or there is no such address here.
    """
    family = socket.getaddrinfo(host, first_port, 0, 0, socket.IPPROTO_TCP)[0][0]
    for port in range(first_port, last_port + 1):
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen(1)
        except OSError:
            listening.close()
            if port == last_port:
                raise
        else:
            return listening
    raise OSError(f"there is no port from {first_port} to {last_port}")


def serve(listening: socket.socket, tracker: tuple[str, int], key: str, address: str | None) -> None:
    """Serves sessions one after the other for good; waits for the tracker whenever that is away."""
    if "torch" not in sys.modules:
        # TVM imports it wherever it is installed, and no session needs it
        sys.modules["torch"] = None  # type: ignore[assignment]
    server: Any = importlib.import_module("tvm.rpc.server")
    importlib.import_module("tvm_ffi").register_global_func(DESCRIBE, describe, override=True)
    server._serving = serve_session
    port = listening.getsockname()[1]
    logger.info("port %d serves as %r for the tracker at %s:%d", port, key, *tracker)
    while True:
        try:
            server._listen_loop(listening, port, key, tracker, None, address)
        except RuntimeError as error:
            logger.warning("%s; trying again", error)
            time.sleep(TRACKER_RETRY_SECONDS)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__spec__.name}" if __spec__ else Path(__file__).name,
        description="Serves this device to a TVM RPC tracker. Whoever reaches the port can run any code here: listen "
        "on loopback or a private network only.",
    )
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT", help="address of the tracker")
    parser.add_argument("--key", required=True, help="what campaigns ask for: the same for devices that are the same")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=9090, help="first port to try (default: 9090)")
    parser.add_argument("--port-end", type=int, help="last port to try (default: 99 further)")
    parser.add_argument("--custom-addr", help="address that the tracker tells to campaigns, where it is another one")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    host, _, port = arguments.tracker.rpartition(":")
    if not host or not port.isdigit():
        parser.error(f"--tracker: expected HOST:PORT, got {arguments.tracker!r}")
    last = arguments.port + 99 if arguments.port_end is None else arguments.port_end
    try:
        listening = listening_socket(arguments.host, arguments.port, last)
    except OSError as error:
        parser.error(f"cannot listen on {arguments.host}, ports {arguments.port} to {last}: {error}")
    try:
        serve(listening, (host, int(port)), arguments.key, arguments.custom_addr)
    except KeyboardInterrupt:
        logger.info("stopped")


if __name__ == "__main__":
    main()
