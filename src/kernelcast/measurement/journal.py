"""The journal of a campaign: everything that happened, one JSON object a line, only ever appended to.

It is the one thing that a killed campaign needs to go on: reading it back gives the state that the writer had. A line
is complete when its newline is there; what follows the last newline was being written when the process died.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.files import storage_errors
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Outcome

logger = logging.getLogger(__name__)

JOURNAL_FILE = "journal.jsonl"

Key = tuple[str, str]
"""Workload key and program key."""


@dataclass
class Try:
    """All that is known of one candidate.

    Attributes:
        candidate: what is measured.
        build_seconds: of the last build; None before one has ended.
        repeats: raw times, by round.
        outcome: how it ended; None while it is not done.
        message: the first lines of the error.
    """

    candidate: Candidate
    build_seconds: float | None = None
    repeats: dict[int, TimedRepeat] = field(default_factory=dict)
    outcome: Outcome | None = None
    message: str = ""


class Journal:
    """The journal of one folder. A context manager; only one process may have it open."""

    def __init__(self, directory: Path) -> None:
        """Reads what is there and opens it for appending.

        Raises:
            MalformedDataError: a line that is not the last is not what this class writes.
            StorageError: the file cannot be written.
        """
        self.path = directory / JOURNAL_FILE
        self.tries: dict[Key, Try] = {}
        self.exhausted: set[str] = set()
        with storage_errors(self.path):
            if self.path.exists():
                self._set_torn_tail_aside()
                self._replay()
            self._stream = self.path.open("ab", buffering=0)

    def planned(self, workload_key: str) -> list[Try]:
        """The tries of one workload, in the order in which they were planned."""
        return [entry for entry in self.tries.values() if entry.candidate.workload_key == workload_key]

    def plan(self, candidates: Iterable[Candidate]) -> None:
        """Adds candidates to measure."""
        for one in candidates:
            self._append("planned", one, trace=one.trace)
        self.sync()

    def exhaust(self, workload_key: str) -> None:
        """Notes that a workload's space has no more programs than are planned."""
        self._write({"event": "exhausted", "workload": workload_key})

    def built(self, candidate: Candidate, build_seconds: float) -> None:
        """Notes a build."""
        self._append("built", candidate, build_seconds=build_seconds)

    def repeat(self, candidate: Candidate, repeat: TimedRepeat) -> None:
        """Notes one raw time."""
        self._append(
            "repeat",
            candidate,
            round=repeat.round_index,
            run_seconds=repeat.run_seconds,
            reference_seconds=repeat.reference_seconds,
            ended_at=repeat.ended_at,
        )

    def finish(self, candidate: Candidate, outcome: Outcome, message: str = "") -> None:
        """Notes how a candidate ended."""
        self._append("finished", candidate, outcome=outcome.value, message=message)

    def retry(self, candidate: Candidate) -> None:
        """Opens a failed candidate again; raw times it has are kept."""
        self._append("retried", candidate)

    def sync(self) -> None:
        """Returns when everything noted so far is on the disk."""
        with storage_errors(self.path):
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, event: str, candidate: Candidate, **more: Any) -> None:
        self._write({"event": event, "workload": candidate.workload_key, "program": candidate.program_key, **more})

    def _write(self, event: dict[str, Any]) -> None:
        line = memoryview(json.dumps(event, allow_nan=False).encode() + b"\n")
        with storage_errors(self.path):
            while line:
                line = line[self._stream.write(line) :]
        self._apply(event)

    def _replay(self) -> None:
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    self._apply(json.loads(line))
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                    raise MalformedDataError(
                        f"{self.path}:{number}: not a line of a journal ({type(error).__name__}: {error}); remove this "
                        "line to lose only what it says, or move the folder away, and run the same command again"
                    ) from error

    def _apply(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "exhausted":
            self.exhausted.add(_text(event, "workload"))
            return
        key = (_text(event, "workload"), _text(event, "program"))
        if kind == "planned":
            if key in self.tries:
                raise ValueError(f"program {key[1]} is planned twice")
            self.tries[key] = Try(Candidate(*key, _text(event, "trace")))
            return
        entry = self.tries[key]
        if kind == "built":
            entry.build_seconds = _number(event, "build_seconds")
        elif kind == "repeat":
            repeat = TimedRepeat(
                int(event["round"]),
                _number(event, "run_seconds"),
                _number(event, "reference_seconds"),
                _number(event, "ended_at"),
            )
            if not 0 <= repeat.round_index < 2**31:
                raise ValueError(f"there is no round {repeat.round_index}")
            if repeat.round_index in entry.repeats:
                raise ValueError(f"program {key[1]} has round {repeat.round_index} twice")
            entry.repeats[repeat.round_index] = repeat
        elif kind == "finished":
            entry.outcome, entry.message = Outcome(event["outcome"]), _text(event, "message")
        elif kind == "retried":
            entry.outcome, entry.message = None, ""
        else:
            raise ValueError(f"unknown event {kind!r}")

    def _set_torn_tail_aside(self) -> None:
        """Moves what follows the last newline into a file of its own."""
        content = self.path.read_bytes()
        end = content.rfind(b"\n") + 1
        tail = content[end:]
        if not tail:
            return
        number = 1
        while (aside := self.path.with_name(f"{JOURNAL_FILE}.torn-{number}")).exists():
            number += 1
        with aside.open("wb") as stream:
            stream.write(tail)
            os.fsync(stream.fileno())
        with self.path.open("rb+") as stream:
            stream.truncate(end)
            os.fsync(stream.fileno())
        line = content.count(b"\n", 0, end) + 1
        logger.warning(
            "%s:%d: the last line is torn (the last run was killed, or the disk was full); moved its %d bytes to %s, "
            "all earlier records are kept",
            self.path,
            line,
            len(tail),
            aside.name,
        )


def _text(event: dict[str, Any], name: str) -> str:
    if not isinstance(value := event[name], str):
        raise TypeError(f"{name} is {value!r}, not a text")
    return value


def _number(event: dict[str, Any], name: str) -> float:
    value = event[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value!r}, not a number of seconds")
    return float(value)
