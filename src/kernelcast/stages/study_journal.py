"""Optuna's journal file with two promises more: each line is in it whole or not at all, and no other file is touched.

Optuna writes a line behind whatever is there. A full disk, a power failure or a kill can leave half a line; the next
one, of any process, then stands behind it, and from there on nobody can read the study.
"""

from __future__ import annotations

import json
import logging
import os
from io import FileIO
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

logger = logging.getLogger(__name__)

LINE_START = b'{"op_code":'
"""What every line of a journal begins with."""

BLOCK = 2**16
"""Bytes that are read at a time in the search for the last line's end."""


class WholeLines(JournalFileBackend):
    """A journal that every process adds whole lines to.

    Args:
        path: of the journal.

    Raises:
        ValueError: something else is there.
    """

    def __init__(self, path: Path) -> None:
        # a lock is a link to the journal, and from its own folder a relative path would lead elsewhere
        self._path = path.absolute()
        if self._path.exists():
            with self._path.open("rb") as stream:
                _require_line(stream.read(len(LINE_START)), self._path)
        lock = Path(f"{self._path}.lock")
        if lock.is_symlink() and not lock.exists() and self._path.exists():
            # of a process that was killed before the journal was moved; Optuna would wait for it for ever
            lock.unlink(missing_ok=True)
        self._append_lock = JournalFileSymlinkLock(str(self._path))
        super().__init__(str(self._path), self._append_lock)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds all of the lines or none, in place of half a line that somebody left."""
        left = memoryview("".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode())
        self._append_lock.acquire()
        try:
            with self._path.open("r+b", buffering=0) as journal:
                end = self._end_of_lines(journal)
                journal.seek(end)
                try:
                    while left:
                        left = left[journal.write(left) :]
                finally:
                    if left:
                        journal.truncate(end)
                os.fsync(journal.fileno())
        finally:
            self._append_lock.release()

    def _end_of_lines(self, journal: FileIO) -> int:
        """Where the last whole line ends; what is behind it is removed."""
        size = start = journal.seek(0, os.SEEK_END)
        rest = b""
        while start and b"\n" not in rest:
            start = max(0, start - BLOCK)
            journal.seek(start)
            rest = journal.read(size - len(rest) - start) + rest
        torn = rest.rpartition(b"\n")[2]
        if torn:
            _require_line(torn, self._path)
            logger.warning("%s ends in the middle of a line, which is cut off", self._path)
            journal.truncate(size - len(torn))
        return size - len(torn)


def _require_line(line: bytes, path: Path) -> None:
    """Makes sure that `line` is the beginning of a journal's line, or what a power failure leaves of one.

    Raises:
        ValueError: it is something else.
    """
    begun = line.strip(b"\0")[: len(LINE_START)]
    if not LINE_START.startswith(begun):
        raise ValueError(f"{path.name} is no journal of Optuna's")
