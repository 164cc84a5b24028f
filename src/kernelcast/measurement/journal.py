"""The journal of a campaign: everything that happened, one JSON object a line, only ever appended to.

It is the one thing that a killed campaign needs to go on: reading it back gives the state that the writer had.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.measurement.lines import JsonLines, numbered_lines
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Origin, Outcome

JOURNAL_FILE = "journal.jsonl"

Key = tuple[str, str]
"""Workload key and program key."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a visit to a program ended.

    Attributes:
        outcome: measured, or the reason why not.
        message: the first lines of the error.
        device: the device that ran it, or was to.
        checked: whether the results were compared with those of the unscheduled workload.
        cut_short: hopelessly slow, so it got fewer repeats.
        ended_at: seconds since 1970.
    """

    outcome: Outcome
    message: str
    device: str
    checked: bool
    cut_short: bool
    ended_at: float


class Repeats:
    """The raw repeats of one program, packed: a campaign has tens of them a program, and any number of programs."""

    __slots__ = ("_numbers",)
    _COLUMNS = len(fields(TimedRepeat))

    def __init__(self) -> None:
        self._numbers = array("d")

    def append(self, repeat: TimedRepeat) -> None:
        """Adds one."""
        self._numbers.extend(getattr(repeat, field.name) for field in fields(TimedRepeat))

    def of_visit(self, visit: int) -> list[TimedRepeat]:
        """Those of one visit, in the order in which they were added."""
        return [repeat for repeat in self if repeat.visit == visit]

    def __iter__(self) -> Iterator[TimedRepeat]:
        for start in range(0, len(self._numbers), self._COLUMNS):
            visit, round_index, calls, *seconds = self._numbers[start : start + self._COLUMNS]
            yield TimedRepeat(int(visit), int(round_index), int(calls), *seconds)

    def __len__(self) -> int:
        return len(self._numbers) // self._COLUMNS


class Try:
    """All that is known of one candidate.

    Attributes:
        workload_key: the workload.
        program_key: the program.
        origin: where it comes from.
        build_seconds: of the last build; None before one has ended.
        repeats: raw times of all visits.
        ending: how the measurement ended; None while it is not done.
        again: how measuring it again ended; None while it has not.
    """

    __slots__ = ("_trace", "again", "build_seconds", "ending", "origin", "program_key", "repeats", "workload_key")

    def __init__(self, candidate: Candidate) -> None:
        self.workload_key = candidate.workload_key
        self.program_key = candidate.program_key
        self.origin = candidate.origin
        # a few kilobytes each: packed, so that a campaign of any size fits into memory
        self._trace = zlib.compress(candidate.trace.encode(), level=1)
        self.build_seconds: float | None = None
        self.repeats = Repeats()
        self.ending: Ending | None = None
        self.again: Ending | None = None

    @property
    def candidate(self) -> Candidate:
        """What is measured."""
        trace = zlib.decompress(self._trace).decode()
        return Candidate(self.workload_key, self.program_key, trace, self.origin)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it is not done."""
        return None if self.ending is None else self.ending.outcome

    @property
    def has_failed(self) -> bool:
        """Whether it ended without times."""
        return self.outcome not in (None, Outcome.MEASURED)


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
        self._by_workload: dict[str, dict[str, Try]] = {}
        self.exhausted: dict[tuple[str, Origin], int] = {}
        self._lines = JsonLines(self.path)
        self._replay()

    def planned(self, workload_key: str) -> list[Try]:
        """The tries of one workload, in the order in which they were planned."""
        return list(self._by_workload.get(workload_key, {}).values())

    def plan(self, candidates: Iterable[Candidate]) -> None:
        """Adds candidates to measure."""
        for one in candidates:
            self._append("planned", one, trace=one.trace, origin=one.origin.value)
        self.sync()

    def exhaust(self, workload_key: str, origin: Origin, wanted: int) -> None:
        """Notes that a workload's space gave fewer programs of this origin than `wanted`."""
        self._write({"event": "exhausted", "workload": workload_key, "origin": origin.value, "wanted": wanted})

    def built(self, entry: Try, build_seconds: float) -> None:
        """Notes a build."""
        self._append("built", entry, build_seconds=build_seconds)

    def repeat(self, entry: Try, repeat: TimedRepeat) -> None:
        """Notes one raw time."""
        self._append("repeat", entry, **asdict(repeat))

    def finish(self, entry: Try, visit: int, ending: Ending) -> None:
        """Notes how a visit to a candidate ended."""
        self._append("finished", entry, visit=visit, **asdict(ending))

    def retry(self, entry: Try) -> None:
        """Opens a failed candidate again; raw times it has are kept."""
        self._append("retried", entry)

    def sync(self) -> None:
        """Returns when everything noted so far is on the disk."""
        self._lines.sync()

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, event: str, entry: Try | Candidate, **more: Any) -> None:
        self._write({"event": event, "workload": entry.workload_key, "program": entry.program_key, **more})

    def _write(self, event: dict[str, Any]) -> None:
        self._lines.append(event)
        self._apply(event)

    def _replay(self) -> None:
        for number, line in numbered_lines(self.path):
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                self._lines.close()
                raise MalformedDataError(
                    f"{self.path}:{number}: not a line of a journal ({type(error).__name__}: {error}); remove this "
                    "line to lose only what it says, or move the folder away, and run the same command again"
                ) from error

    def _apply(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "exhausted":
            self.exhausted[_text(event, "workload"), Origin(event["origin"])] = _count(event, "wanted")
            return
        key = (_text(event, "workload"), _text(event, "program"))
        if kind == "planned":
            if key in self.tries:
                raise ValueError(f"program {key[1]} is planned twice")
            entry = Try(Candidate(*key, _text(event, "trace"), Origin(event["origin"])))
            self.tries[key] = self._by_workload.setdefault(key[0], {})[key[1]] = entry
            return
        entry = self.tries[key]
        if kind == "built":
            entry.build_seconds = _number(event, "build_seconds")
        elif kind == "repeat":
            repeat = TimedRepeat(
                _count(event, "visit"),
                _count(event, "round_index"),
                _count(event, "calls"),
                _number(event, "run_seconds"),
                _number(event, "reference_seconds"),
                _number(event, "ended_at"),
            )
            if any((one.visit, one.round_index) == (repeat.visit, repeat.round_index) for one in entry.repeats):
                raise ValueError(f"program {key[1]} has round {repeat.round_index} of visit {repeat.visit} twice")
            entry.repeats.append(repeat)
        elif kind == "finished":
            ending = Ending(
                Outcome(event["outcome"]),
                _text(event, "message"),
                _text(event, "device"),
                bool(event["checked"]),
                bool(event["cut_short"]),
                _number(event, "ended_at"),
            )
            if _count(event, "visit"):
                entry.again = ending
            else:
                entry.ending = ending
        elif kind == "retried":
            entry.ending = None
        else:
            raise ValueError(f"unknown event {kind!r}")


def _text(event: dict[str, Any], name: str) -> str:
    if not isinstance(value := event[name], str):
        raise TypeError(f"{name} is {value!r}, not a text")
    return value


def _count(event: dict[str, Any], name: str) -> int:
    value = event[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"{name} is {value!r}, not a number of something")
    return value


def _number(event: dict[str, Any], name: str) -> float:
    value = event[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value!r}, not a number of seconds")
    return float(value)
