"""What cannot be taken from a file: counted by kind, one warning a kind, nothing lost in silence."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)


@dataclass
class Kind:
    """Lines that cannot be taken for the same cause.

    Attributes:
        path: the file of the first one.
        line: its number, from 1.
        reason: why the first one cannot be taken.
        count: how many there are.
    """

    path: Path
    line: int
    reason: str
    count: int = 1


class SetAside:
    """Collects lines that cannot be taken."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}

    def add(self, kind: str, path: Path, line: int, reason: str) -> None:
        """Notes one line; `kind` completes "set aside N lines: ..."."""
        if kind in self.kinds:
            self.kinds[kind].count += 1
        else:
            self.kinds[kind] = Kind(path, line, reason)

    def warn(self) -> None:
        """One warning a kind, with the place and reason of its first line."""
        for name, kind in self.kinds.items():
            lines = "1 line" if kind.count == 1 else f"{kind.count} lines"
            first = "" if kind.count == 1 else ", the first of them"
            logger.warning("%s:%d%s: set aside %s: %s (%s)", kind.path, kind.line, first, lines, name, kind.reason)

    def first(self) -> str:
        """Place and reason of the first line of the first kind; empty where all could be taken."""
        for name, kind in self.kinds.items():
            return f"{kind.path}:{kind.line}: {name}: {kind.reason}"
        return ""
