"""Files of one JSON object a line that are only ever appended to, and what a killed writer leaves of the last line.

A line is complete when its newline is there; what follows the last newline was being written when the process died.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelcast.files import storage_errors

logger = logging.getLogger(__name__)


class JsonLines:
    """One file, open for appending. A context manager; only one process may have it open."""

    def __init__(self, path: Path) -> None:
        """Sets a torn last line aside and opens the file, which need not exist.

        Raises:
            StorageError: the file cannot be written.
        """
        self.path = path
        with storage_errors(path):
            set_torn_tail_aside(path)
            self._stream = path.open("ab", buffering=0)

    def append(self, value: dict[str, Any]) -> None:
        """Adds one line, whole or not at all while this process lives; NaN and infinity are refused.

        Raises:
            StorageError: the disk refused.
        """
        line = memoryview(json.dumps(value, allow_nan=False).encode() + b"\n")
        with storage_errors(self.path):
            start = os.fstat(self._stream.fileno()).st_size
            try:
                while line:
                    line = line[self._stream.write(line) :]
            except OSError:
                # what another thread writes next must not end up behind half a line
                with contextlib.suppress(OSError):
                    os.ftruncate(self._stream.fileno(), start)
                raise

    def sync(self) -> None:
        """Returns when everything added so far is on the disk."""
        with storage_errors(self.path):
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The complete lines of a file and their numbers from 1; none where there is no file."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.endswith(b"\n"):
                yield number, line


def set_torn_tail_aside(path: Path) -> None:
    """Moves what follows the last newline of a file, if there is one, into a file of its own beside it."""
    if not path.exists():
        return
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    tail = content[end:]
    if not tail:
        return
    number = 1
    while (aside := path.with_name(f"{path.name}.torn-{number}")).exists():
        number += 1
    with aside.open("wb") as stream:
        stream.write(tail)
        os.fsync(stream.fileno())
    with path.open("rb+") as stream:
        stream.truncate(end)
        os.fsync(stream.fileno())
    line = content.count(b"\n", 0, end) + 1
    logger.warning(
        "%s:%d: the last line is torn (the last run was killed, or the disk was full); moved its %d bytes to %s, "
        "all earlier records are kept",
        path,
        line,
        len(tail),
        aside.name,
    )
