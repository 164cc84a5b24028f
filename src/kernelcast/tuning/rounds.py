"""The rounds of a tuning, on disk: what was proposed, and what came of it, one JSON object a line.

A round is written down before it is measured, so that a tuning that was killed within it goes on with its programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from kernelcast.errors import MalformedDataError
from kernelcast.measurement.lines import JsonLines, numbered_lines
from kernelcast.records import Outcome
from kernelcast.trials import trials_table

ROUNDS_FILE = "rounds.jsonl"


@dataclass(frozen=True)
class ProposedProgram:
    """One program of a round.

    Attributes:
        program_key: structural hash of the scheduled module.
        trace: the schedule trace as JSON.
        score: what the model said; None without one.
    """

    program_key: str
    trace: str
    score: float | None


@dataclass(frozen=True)
class Result:
    """What came of a program.

    Attributes:
        outcome: measured, or the reason why not.
        message: the first lines of the error.
        run_seconds: the label; None where not measured.
    """

    outcome: Outcome
    message: str
    run_seconds: float | None


@dataclass
class Round:
    """Programs of one task that are proposed and measured together.

    Attributes:
        workload_key: of the task.
        programs: in the order of the search.
        search_seconds: of the search and the model, since the round before, and of programs that were built to choose.
        model_seconds: of these, inside the model.
        results: one a program; empty while the round is open.
        measure_seconds: of timing, and of building what was not built to choose; 0 while the round is open.
    """

    workload_key: str
    programs: list[ProposedProgram]
    search_seconds: float
    model_seconds: float
    results: list[Result] = field(default_factory=list)
    measure_seconds: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it has to be measured."""
        return not self.results

    @property
    def measured(self) -> list[tuple[ProposedProgram, float]]:
        """The programs that were measured, and their labels."""
        pairs = zip(self.programs, self.results, strict=True) if self.results else ()
        return [(program, result.run_seconds) for program, result in pairs if result.run_seconds is not None]


@dataclass(frozen=True)
class About:
    """What all rows of a tuning's table have in common.

    Attributes:
        method: what chose the programs.
        seed: of the search.
        network: that was tuned; empty for workloads alone.
        names: of the tasks' workloads, by key.
        weights: of the tasks, by their workloads' keys.
    """

    method: str
    seed: int
    network: str
    names: Mapping[str, str]
    weights: Mapping[str, int]


class Rounds:
    """The rounds of one folder. A context manager; only one process may have it open.

    Attributes:
        rounds: all, in their order.
        exhausted: keys of the workloads whose space has no more programs.
    """

    def __init__(self, folder: Path) -> None:
        """Reads what is there and opens it for appending.

        Raises:
            MalformedDataError: a line that is not the last is not what this class writes.
            StorageError: the file cannot be written.
        """
        self._lines = JsonLines(folder / ROUNDS_FILE)
        try:
            self.rounds, self.exhausted = _read(folder)
        except MalformedDataError:
            self._lines.close()
            raise

    @property
    def programs(self) -> int:
        """Programs of all rounds, open ones included."""
        return sum(len(one.programs) for one in self.rounds)

    @property
    def any_measured(self) -> bool:
        """Whether any program of a closed round was measured."""
        return any(one.measured for one in self.rounds)

    def of(self, workload_key: str) -> list[Round]:
        """The rounds of one task."""
        return [one for one in self.rounds if one.workload_key == workload_key]

    def propose(self, proposed: Round) -> None:
        """Adds a round that is to be measured; on the disk when this returns."""
        self._write({
            "event": "proposed",
            "workload": proposed.workload_key,
            "programs": [asdict(program) for program in proposed.programs],
            "search_seconds": proposed.search_seconds,
            "model_seconds": proposed.model_seconds,
        })  # fmt: skip

    def close_round(self, number: int, results: Sequence[Result], measure_seconds: float) -> None:
        """Notes what came of a round; on the disk when this returns."""
        self._write({
            "event": "measured",
            "round": number,
            "results": [{**asdict(result), "outcome": result.outcome.value} for result in results],
            "measure_seconds": measure_seconds,
        })  # fmt: skip

    def exhaust(self, workload_key: str) -> None:
        """Notes that a task's space has no more programs."""
        self._write({"event": "exhausted", "workload": workload_key})

    def reopen(self) -> None:
        """Opens all rounds again, to measure them anew: for a tuning in which everything failed."""
        self._write({"event": "reopened"})

    def table(self, about: About) -> pa.Table:
        """The trials of the closed rounds, see `kernelcast.trials`."""
        return _table(self.rounds, about)

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()

    def _write(self, event: dict[str, Any]) -> None:
        self._lines.append(event)
        self._lines.sync()
        _apply(event, self.rounds, self.exhausted)

    def __enter__(self) -> Rounds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_rounds(folder: Path) -> list[Round]:
    """The rounds of a tuning that may be under way in another process; none where there is no tuning.

    Raises:
        MalformedDataError: a line is not what a tuning writes.
    """
    return _read(folder)[0]


def read_rounds_table(folder: Path, about: About) -> pa.Table:
    """The trials so far of a tuning that may be under way in another process.

    Raises:
        MalformedDataError: a line is not what a tuning writes.
    """
    return _table(read_rounds(folder), about)


def _read(folder: Path) -> tuple[list[Round], set[str]]:
    rounds: list[Round] = []
    exhausted: set[str] = set()
    path = folder / ROUNDS_FILE
    for number, line in numbered_lines(path):
        try:
            _apply(json.loads(line), rounds, exhausted)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise MalformedDataError(
                f"{path}:{number}: not a line of a tuning ({type(error).__name__}: {error}); move the folder away, and "
                "run the same command again"
            ) from error
    return rounds, exhausted


def _apply(event: dict[str, Any], rounds: list[Round], exhausted: set[str]) -> None:
    kind = event["event"]
    if kind == "proposed":
        programs = [ProposedProgram(**program) for program in event["programs"]]
        seconds = float(event["search_seconds"]), float(event["model_seconds"])
        rounds.append(Round(str(event["workload"]), programs, *seconds))
    elif kind == "measured":
        closed = rounds[event["round"]]
        results = [Result(**{**result, "outcome": Outcome(result["outcome"])}) for result in event["results"]]
        if len(results) != len(closed.programs):
            raise ValueError(f"round {event['round']} has {len(closed.programs)} programs and {len(results)} results")
        closed.results, closed.measure_seconds = results, float(event["measure_seconds"])
    elif kind == "exhausted":
        exhausted.add(str(event["workload"]))
    elif kind == "reopened":
        for one in rounds:
            one.results, one.measure_seconds = [], 0.0
    else:
        raise ValueError(f"unknown event {kind!r}")


def _table(rounds: Sequence[Round], about: About) -> pa.Table:
    rows: list[dict[str, Any]] = []
    elapsed = 0.0
    trial = 0
    for number, one in enumerate(rounds):
        elapsed += one.search_seconds + one.measure_seconds
        for program, result in zip(one.programs, one.results, strict=False):
            rows.append({
                "method": about.method,
                "seed": about.seed,
                "network": about.network,
                "workload_key": one.workload_key,
                "workload_name": about.names[one.workload_key],
                "weight": about.weights[one.workload_key],
                "trial": trial,
                "round": number,
                "program_key": program.program_key,
                "outcome": result.outcome.value,
                "score": program.score,
                "run_seconds": result.run_seconds,
                "search_seconds": one.search_seconds,
                "model_seconds": one.model_seconds,
                "measure_seconds": one.measure_seconds,
                "elapsed_seconds": elapsed,
            })  # fmt: skip
            trial += 1
    return trials_table(rows)
