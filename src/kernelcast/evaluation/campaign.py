"""What a measurement campaign was, in the words and numbers that a reader of the report wants."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float64

from kernelcast.graphs.dataset.labels import faults, flagged_rows, spread_of
from kernelcast.graphs.dataset.repeats import FIRST_VISIT, Repeats
from kernelcast.records import Measurements, Outcome

MOST_FLAGGED = 20
"""Flagged programs that are listed; all are counted."""


@dataclass(frozen=True)
class OutcomeCount:
    """How often tries ended in one way.

    Attributes:
        outcome: an `Outcome`.
        tries: how many.
        share: of all tries, 0 to 1.
        example: first message of this kind; empty for measured ones.
    """

    outcome: str
    tries: int
    share: float
    example: str


@dataclass(frozen=True)
class FailureCount:
    """How often tries of one workload failed in one way, with the first message of this kind."""

    workload: str
    outcome: str
    tries: int
    example: str


@dataclass(frozen=True)
class WorkloadCount:
    """How many programs of a workload were measured, and how far apart they are.

    Attributes:
        name: of the workload.
        kind: of the operator.
        tries: all of them.
        measured: those with times.
        fastest_microseconds: minimum over the first visit of the fastest program; None where none was measured.
        slowest_ratio: the slowest program's time over the fastest one's; None likewise.
    """

    name: str
    kind: str
    tries: int
    measured: int
    fastest_microseconds: float | None
    slowest_ratio: float | None


@dataclass(frozen=True)
class Share:
    """So many of so many rows."""

    count: int
    of: int

    def __str__(self) -> str:
        return f"{self.count:,} of {self.of:,} ({self.count / self.of:.0%})" if self.of else "none"


@dataclass(frozen=True)
class Care:
    """How carefully the measured programs were measured.

    Attributes:
        checked: results compared with those of the unscheduled module.
        cut_short: hopelessly slow, so with fewer repeats.
        measured_again: with a later visit.
    """

    checked: Share
    cut_short: Share
    measured_again: Share


@dataclass(frozen=True)
class FlaggedProgram:
    """One measured program whose repeats spread more than the limit."""

    workload: str
    program_key: str
    spread: float
    fastest_microseconds: float
    repeats: int


@dataclass(frozen=True)
class Spread:
    """How far the repeats of the measured programs spread.

    Attributes:
        spread: interquartile range over median, of every measured program.
        median: of `spread`.
        p90: of `spread`, the 90th percentile.
        limit: flags those above; None flags none.
        flagged: how many are.
        widest: the `MOST_FLAGGED` widest of these.
    """

    spread: Float64[np.ndarray, "programs"]
    median: float
    p90: float
    limit: float | None
    flagged: int
    widest: tuple[FlaggedProgram, ...]


def outcome_counts(measurements: Measurements) -> list[OutcomeCount]:
    """Tries by how they ended, measured ones first, then the most frequent."""
    total = measurements.table.num_rows
    counts = [
        OutcomeCount(outcome, tries, tries / total, example)
        for (outcome,), tries, example in _counted(measurements.table, ["outcome"])
    ]
    return sorted(counts, key=lambda count: (count.outcome != Outcome.MEASURED, -count.tries, count.outcome))


def failure_counts(measurements: Measurements) -> list[FailureCount]:
    """Failed tries by workload, in the order of the measurements, and outcome, the most frequent first."""
    failed = measurements.table.filter(pc.not_equal(measurements.table["outcome"], Outcome.MEASURED.value))
    place = {name: number for number, name in enumerate(measurements.table["workload_name"].unique().to_pylist())}
    counts = [
        FailureCount(workload, outcome, tries, example)
        for (workload, outcome), tries, example in _counted(failed, ["workload_name", "outcome"])
    ]
    return sorted(counts, key=lambda count: (place[count.workload], -count.tries, count.outcome))


def _counted(table: pa.Table, keys: list[str]) -> list[tuple[tuple[str, ...], int, str]]:
    """Rows by the values of `keys`: how many, and the first message among them that says something."""
    counts = table.group_by(keys, use_threads=False).aggregate([([], "count_all")]).to_pylist()
    telling = table.filter(pc.not_equal(table["message"], ""))
    examples = {
        tuple(row[key] for key in keys): row["message_first"]
        for row in telling.group_by(keys, use_threads=False).aggregate([("message", "first")]).to_pylist()
    }
    values = [tuple(row[key] for key in keys) for row in counts]
    return [(value, row["count_all"], examples.get(value, "")) for value, row in zip(values, counts, strict=True)]


def workload_counts(measurements: Measurements) -> list[WorkloadCount]:
    """One entry a workload, in the order of the measurements."""
    table = measurements.table
    names = table["workload_name"].combine_chunks().dictionary_encode()
    workload = np.asarray(names.indices.to_numpy(zero_copy_only=False))
    kinds = table["workload_kind"].to_numpy()
    (seconds,) = _valid(Repeats.of(table)).quantiles(0.0)
    timed = np.isfinite(seconds) & _measured(table)
    count = len(names.dictionary)
    fastest, slowest = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(fastest, workload[timed], seconds[timed])
    np.maximum.at(slowest, workload[timed], seconds[timed])
    first = np.unique(workload, return_index=True)[1]
    tries, measured = np.bincount(workload, minlength=count), np.bincount(workload[timed], minlength=count)
    return [
        WorkloadCount(
            name=name,
            kind=str(kinds[first[number]]),
            tries=int(tries[number]),
            measured=int(measured[number]),
            fastest_microseconds=float(1e6 * fastest[number]) if measured[number] else None,
            slowest_ratio=float(slowest[number] / fastest[number]) if measured[number] else None,
        )
        for number, name in enumerate(names.dictionary.to_pylist())
    ]


def origin_counts(measurements: Measurements) -> dict[str, int]:
    """Tries by where the candidate came from, the most frequent first."""
    return _value_counts(measurements.table["origin"])


def device_counts(measurements: Measurements) -> dict[str, int]:
    """Tries by the device that ran them, the most frequent first; those that none ran are left out."""
    return {device: count for device, count in _value_counts(measurements.table["device"]).items() if device}


def target_counts(measurements: Measurements) -> dict[str, int]:
    """Tries by target, in words, the most frequent first."""
    counts: dict[str, int] = {}
    for text, count in _value_counts(measurements.table["target"]).items():
        words = target_words(text)
        counts[words] = counts.get(words, 0) + count
    return counts


def target_words(text: str) -> str:
    """The target of a row, which is JSON, in words; as it is where it is no JSON object."""
    try:
        target = json.loads(text)
    except ValueError:
        return text
    if not isinstance(target, dict):
        return text
    return ", ".join(
        f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}" for key, value in target.items()
    )


def _value_counts(column: pa.ChunkedArray) -> dict[str, int]:
    counts = {entry["values"]: entry["counts"] for entry in column.value_counts().to_pylist()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def care_taken(measurements: Measurements) -> Care:
    """How many of the measured programs were checked, cut short and measured again."""
    table = measurements.table
    measured = _measured(table)
    repeats = Repeats.of(table)

    def share(chosen: np.ndarray) -> Share:
        return Share(int((chosen & measured).sum()), int(measured.sum()))

    return Care(
        checked=share(np.asarray(table["checked"].to_numpy())),
        cut_short=share(np.asarray(table["cut_short"].to_numpy())),
        measured_again=share(repeats.any_of(repeats.visit > FIRST_VISIT)),
    )


def spread_summary(measurements: Measurements, limit: float | None) -> Spread | None:
    """How far repeats spread; None where no program has a valid time."""
    table = measurements.table
    first = _valid(Repeats.of(table))
    spread = np.where(_measured(table) & (first.counts > 0), spread_of(table, first), np.nan)
    known = spread[np.isfinite(spread)]
    if not len(known):
        return None
    flagged = np.flatnonzero(flagged_rows(spread, limit))
    widest = flagged[np.argsort(-spread[flagged], kind="stable")][:MOST_FLAGGED]
    (seconds,) = first.quantiles(0.0)
    rows = table.select(["workload_name", "program_key"]).take(pa.array(widest)).to_pylist()
    median, p90 = np.percentile(known, [50, 90])
    return Spread(
        spread=known,
        median=float(median),
        p90=float(p90),
        limit=limit,
        flagged=len(flagged),
        widest=tuple(
            FlaggedProgram(
                workload=entry["workload_name"],
                program_key=entry["program_key"],
                spread=float(spread[row]),
                fastest_microseconds=float(1e6 * seconds[row]),
                repeats=int(first.counts[row]),
            )
            for row, entry in zip(widest, rows, strict=True)
        ),
    )


def time_span(measurements: Measurements) -> str:
    """From the first to the last repeat, in UTC; empty where nothing was measured or nobody knows when."""
    ended = Repeats.of(measurements.measured).ended_at
    ended = ended[np.isfinite(ended)]
    if not len(ended):
        return ""
    first, last = (datetime.fromtimestamp(float(end), UTC) for end in (ended.min(), ended.max()))
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"


def _measured(table: pa.Table) -> np.ndarray:
    return np.asarray(pc.equal(table["outcome"], Outcome.MEASURED.value).to_numpy())


def _valid(repeats: Repeats) -> Repeats:
    """The repeats that labels are made of."""
    first = repeats.select(repeats.visit == FIRST_VISIT)
    return first.select((faults(first) == "")[first.row])
