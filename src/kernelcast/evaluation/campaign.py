"""What a measurement campaign was, in the words and numbers that a reader of the report wants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from jaxtyping import Float64

from kernelcast.evaluation.noise import flat_values
from kernelcast.records import Measurements, Outcome


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
class WorkloadCount:
    """How many programs of a workload were measured, and how far apart they are.

    Attributes:
        name: of the workload.
        kind: of the operator.
        tries: all of them.
        measured: those with times.
        fastest_microseconds: minimum over all repeats of the fastest program; None where none was measured.
        slowest_ratio: the slowest program's time over the fastest one's; None likewise.
    """

    name: str
    kind: str
    tries: int
    measured: int
    fastest_microseconds: float | None
    slowest_ratio: float | None


@dataclass(frozen=True)
class MachineState:
    """The reference kernel's time in every round.

    Attributes:
        minutes: since the first repeat.
        slowdown: time over its best one.
        median: of `slowdown`.
        p90: of `slowdown`, the 90th percentile.
    """

    minutes: Float64[np.ndarray, "repeats"]
    slowdown: Float64[np.ndarray, "repeats"]
    median: float
    p90: float


def outcome_counts(measurements: Measurements) -> list[OutcomeCount]:
    """Tries by how they ended, measured ones first, then the most frequent."""
    outcomes, messages = (measurements.table[name].to_pylist() for name in ("outcome", "message"))
    counts = []
    for outcome in sorted(set(outcomes)):
        rows = [row for row, found in enumerate(outcomes) if found == outcome]
        example = next((messages[row] for row in rows if messages[row]), "")
        counts.append(OutcomeCount(outcome, len(rows), len(rows) / len(outcomes), example))
    return sorted(counts, key=lambda count: (count.outcome != Outcome.MEASURED, -count.tries))


def workload_counts(measurements: Measurements) -> list[WorkloadCount]:
    """One entry a workload, in the order of the measurements."""
    table = measurements.table
    seconds = [min(repeats, default=np.inf) for repeats in table["run_seconds"].to_pylist()]
    names, kinds, outcomes = (table[name].to_pylist() for name in ("workload_name", "workload_kind", "outcome"))
    counts = []
    for name in dict.fromkeys(names):
        rows = [row for row, found in enumerate(names) if found == name]
        times = [seconds[row] for row in rows if outcomes[row] == Outcome.MEASURED and 0 < seconds[row] < np.inf]
        counts.append(
            WorkloadCount(
                name=name,
                kind=kinds[rows[0]],
                tries=len(rows),
                measured=len(times),
                fastest_microseconds=1e6 * min(times) if times else None,
                slowest_ratio=max(times) / min(times) if times else None,
            )
        )
    return counts


def machine_state(measurements: Measurements) -> MachineState | None:
    """The machine's state over the campaign; None where no reference kernel was timed."""
    reference = flat_values(measurements.measured, "reference_seconds", np.float64)
    ended = flat_values(measurements.measured, "ended_at", np.float64)
    usable = np.isfinite(reference) & (reference > 0) & np.isfinite(ended)
    if not usable.any():
        return None
    reference, ended = reference[usable], ended[usable]
    order = np.argsort(ended, kind="stable")
    slowdown = reference[order] / reference.min()
    median, p90 = np.percentile(slowdown, [50, 90])
    return MachineState((ended[order] - ended.min()) / 60, slowdown, float(median), float(p90))


def time_span(measurements: Measurements) -> str:
    """From the first to the last repeat, in UTC; empty where nothing was measured or nobody knows when."""
    ended = flat_values(measurements.measured, "ended_at", np.float64)
    ended = ended[np.isfinite(ended)]
    if not len(ended):
        return ""
    first, last = (datetime.fromtimestamp(float(end), UTC) for end in (ended.min(), ended.max()))
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
