"""TVM's RPC tracker, asked with limits: TVM's own client waits a minute for a tracker and for ever for a device."""

from __future__ import annotations

import importlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernelcast.errors import MeasurementError
from kernelcast.tvm_compat import load_tvm

ANSWER_SECONDS = 10.0
"""For a tracker to accept a connection and to answer what it knows at once."""

START_TRACKER = "python -m tvm.exec.rpc_tracker --host {host} --port {port}"
START_SERVER = "python -m kernelcast.measurement.rpc_server --tracker {host}:{port} --key {key}"


class TrackerUnreachable(MeasurementError):  # noqa: N818, the state of the tracker
    """Nothing that speaks the tracker's protocol answers at its address."""


@dataclass(frozen=True)
class Grant:
    """The right to one session with one device.

    Attributes:
        host: where the device listens.
        port: its port.
        match_key: what the device wants to hear; good for one session.
    """

    host: str
    port: int
    match_key: str

    @property
    def address(self) -> str:
        """Host and port, as one word."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Tracker:
    """The address of a tracker.

    Attributes:
        host: name or address.
        port: TCP port.
    """

    host: str
    port: int

    def devices(self) -> Counter[str]:
        """How many devices of each key are registered, those in use included.

        Raises:
            TrackerUnreachable: it does not answer.
        """
        return Counter(key for key, _ in self._servers())

    def addresses(self, key: str) -> set[str]:
        """Where the registered devices of a key listen, those in use included; a dead one is gone from it at once.

        Raises:
            TrackerUnreachable: it does not answer.
        """
        return {address for its_key, address in self._servers() if its_key == key}

    def _servers(self) -> list[tuple[str, str]]:
        with self._connected(ANSWER_SECONDS) as (base, stream):
            base.sendjson(stream, [base.TrackerCode.SUMMARY])
            _, summary = base.recvjson(stream)
        return [
            (str(info["key"]).removeprefix("server:"), ":".join(map(str, info["addr"])))
            for info in summary["server_info"]
        ]

    def request(self, key: str, limit_seconds: float) -> Grant | None:
        """The next free device of a key; None when none gets free within the limit.

        Raises:
            TrackerUnreachable: it does not answer.
        """
        with self._connected(ANSWER_SECONDS) as (base, stream):
            base.sendjson(stream, [base.TrackerCode.REQUEST, key, "", 1])
            stream.settimeout(max(limit_seconds, 0.01))
            try:
                code, (host, port, match_key) = base.recvjson(stream)
            except TimeoutError:
                return None
            assert code == base.TrackerCode.SUCCESS, code
            return Grant(str(host), int(port), str(match_key))

    def require_devices(self, key: str, count: int | None) -> int:
        """How many devices to use: `count`, or all of the key.

        Raises:
            MeasurementError: there are fewer; names the keys that there are and how to start a server.
        """
        devices = self.devices()
        start = f"start one with `{START_SERVER.format(host=self.host, port=self.port, key=key)}`"
        there = ", ".join(f"{name} ({number})" for name, number in sorted(devices.items())) or "none"
        if not devices[key]:
            raise MeasurementError(
                f"runner.devices.key: the tracker at {self.host}:{self.port} has no device of key {key!r}; its keys: "
                f"{there}; {start}, or set another key"
            )
        if count is not None and count > devices[key]:
            raise MeasurementError(
                f"runner.devices.slots: {count} devices of key {key!r} are wanted, the tracker at "
                f"{self.host}:{self.port} has {devices[key]}; {start}, or lower it"
            )
        return count or devices[key]

    @contextmanager
    def _connected(self, seconds: float) -> Iterator[tuple[Any, socket.socket]]:
        load_tvm()
        base = importlib.import_module("tvm.rpc.base")
        started = time.monotonic()
        try:
            with socket.create_connection((self.host, self.port), timeout=seconds) as stream:
                stream.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
                (magic,) = struct.unpack("<i", base.recvall(stream, 4))
                if magic != base.RPC_TRACKER_MAGIC:
                    raise OSError("what listens there is no tracker")
                yield base, stream
        except OSError as error:
            reason = (
                f"no answer within {time.monotonic() - started:.0f} s" if isinstance(error, TimeoutError) else error
            )
            raise TrackerUnreachable(
                f"runner.devices.tracker_host, tracker_port: no RPC tracker at {self.host}:{self.port} ({reason}); "
                f"start one with `{START_TRACKER.format(host=self.host, port=self.port)}`, or correct the address"
            ) from error
