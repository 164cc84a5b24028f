"""The noise ceiling: how well one measurement of the programs predicts another of the same programs.

No model can be told to be better than that. Where the campaign measured programs again (visits from 1 on: built and
timed anew, batches or hours later), the ceiling is the agreement between the label of visit 0, which models learn from,
and the same kind of label from the first later visit.

Where it did not, the even rounds of the one visit against the odd ones have to do. These halves share no repeat, but
each has half as many rounds as the label, so the label itself is somewhat better than they say; and both see the same
minutes of the machine, so a state of the machine that lasts through all rounds stays unseen, and the label may be much
worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from jaxtyping import Float64, Int64

from kernelcast.evaluation.bootstrap import Bootstrap, Estimate, Resampling
from kernelcast.evaluation.metrics import kendall_tau
from kernelcast.evaluation.pooling import pooled_order
from kernelcast.evaluation.summary import workload_rows
from kernelcast.graphs.dataset.labels import Labelling, best_reference, faults, seconds_of
from kernelcast.graphs.dataset.repeats import FIRST_VISIT, Repeats

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs


class Source(StrEnum):
    """Which two measurements are compared."""

    VISITS = "visits"
    """The first visit and a later one."""

    HALVES = "halves"
    """Even and odd rounds of the first visit."""


@dataclass(frozen=True)
class PairedLabels:
    """Two labels for every program that has two.

    Attributes:
        source: where they come from.
        row: number of the pair by (workload name, program key).
        first_log_seconds: natural logarithm of seconds, of the first visit or the even rounds.
        second_log_seconds: of the later visit or the odd rounds.
    """

    source: Source
    row: dict[tuple[str, str], int]
    first_log_seconds: Float64[np.ndarray, "pairs"]
    second_log_seconds: Float64[np.ndarray, "pairs"]

    @property
    def ratios(self) -> Float64[np.ndarray, "pairs"]:
        """The larger over the smaller of both labels, in seconds."""
        return np.exp(np.abs(self.first_log_seconds - self.second_log_seconds))

    def rows_of(self, programs: Programs) -> tuple[Int64[np.ndarray, "found"], Int64[np.ndarray, "found"]]:
        """The rows of `programs` that have both labels, and the pairs of these rows."""
        names = programs.workload_names
        pairs = np.array(
            [
                self.row.get((names[workload], key), -1)
                for workload, key in zip(programs.workload.tolist(), programs.program_key.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        found = np.flatnonzero(pairs >= 0)
        return found, pairs[found]


@dataclass(frozen=True)
class WorkloadNoise:
    """How far two measurements of the programs of one workload are apart.

    Attributes:
        workload: its name.
        programs: those with both labels.
        ratio_median: of the larger over the smaller of both labels, median over the programs.
        ratio_p90: the same, 90th percentile.
        kendall_tau: between both labels; None for a single program.
    """

    workload: str
    programs: int
    ratio_median: float
    ratio_p90: float
    kendall_tau: float | None


@dataclass(frozen=True)
class Noise:
    """How far two measurements of the same program are apart.

    Attributes:
        source: which two measurements, a `Source`.
        programs: programs with both labels.
        unpaired: programs without.
        ratio_median: of the larger over the smaller of both labels, median over the programs; 1 is no noise.
        ratio_p90: the same, 90th percentile.
        kendall_tau: pooled over the workloads: over all pairs of programs of one workload; None where there is no pair.
        comparisons: these pairs of programs.
        workloads: by workload, those with both labels for a program.
    """

    source: str
    programs: int
    unpaired: int
    ratio_median: Estimate
    ratio_p90: Estimate
    kendall_tau: Estimate | None
    comparisons: int
    workloads: tuple[WorkloadNoise, ...]


def paired_labels(measured: pa.Table, labelling: Labelling) -> PairedLabels:
    """Two labels for every row of `measured` (columns of `MEASUREMENT_SCHEMA`) that has two.

    Later visits where any row has both labels, else even and odd rounds. Pairs of a corrected and an uncorrected label
    are left out: they differ in more than noise.

    Args:
        measured: rows that carry times.
        labelling: how models' labels were made; both labels are made so.
    """
    repeats = Repeats.of(measured)
    best = best_reference(repeats, labelling)
    first = repeats.select(repeats.visit == FIRST_VISIT)
    visits = _pairs(measured, Source.VISITS, first, _next_visit(repeats), labelling, best)
    if visits.row:
        return visits
    odd = first.round_index % 2 == 1
    return _pairs(measured, Source.HALVES, first.select(~odd), first.select(odd), labelling, best)


def _next_visit(repeats: Repeats) -> Repeats:
    """The repeats of each row's first later visit."""
    later = repeats.visit > FIRST_VISIT
    next_visit = np.full(repeats.rows, np.iinfo(np.int64).max)
    np.minimum.at(next_visit, repeats.row[later], repeats.visit[later])
    return repeats.select(later & (repeats.visit == next_visit[repeats.row]))


def _pairs(
    measured: pa.Table, source: Source, first: Repeats, second: Repeats, labelling: Labelling, best: float
) -> PairedLabels:
    seconds, uncorrected = zip(
        *(
            seconds_of(repeats.select((faults(repeats) == "")[repeats.row]), labelling, best)
            for repeats in (first, second)
        ),
        strict=True,
    )
    both = np.flatnonzero(np.isfinite(seconds[0]) & np.isfinite(seconds[1]) & (uncorrected[0] == uncorrected[1]))
    rows = measured.select(["workload_name", "program_key"]).take(pa.array(both))
    keys = zip(rows["workload_name"].to_pylist(), rows["program_key"].to_pylist(), strict=True)
    return PairedLabels(
        source, {key: pair for pair, key in enumerate(keys)}, np.log(seconds[0][both]), np.log(seconds[1][both])
    )


def joined(parts: Sequence[PairedLabels]) -> PairedLabels:
    """The pairs of several folders of measurements; later visits alone, where any folder has them."""
    visits = [part for part in parts if part.source is Source.VISITS]
    used = visits or list(parts)
    row: dict[tuple[str, str], int] = {}
    for part, start in zip(used, np.cumsum([0, *(len(part.row) for part in used)]), strict=False):
        row |= {key: int(start) + pair for key, pair in part.row.items()}
    first, second = (
        np.concatenate([getattr(part, name) for part in used]) for name in ("first_log_seconds", "second_log_seconds")
    )
    return PairedLabels(used[0].source, row, first, second)


def noise_of(programs: Programs, labels: PairedLabels, bootstrap: Bootstrap) -> Noise | None:
    """The distance between both labels of those of `programs` that have two; None where none has.

    The intervals are over programs, drawn again within every workload: they tell of these workloads.
    """
    found, pairs = labels.rows_of(programs)
    if not len(found):
        return None
    workload = programs.workload[found]
    first, second = labels.first_log_seconds[pairs], labels.second_log_seconds[pairs]
    ratio = labels.ratios[pairs]
    order = pooled_order(first, second, workload, Resampling.PROGRAMS, bootstrap)
    return Noise(
        source=labels.source.value,
        programs=len(found),
        unpaired=len(programs) - len(found),
        ratio_median=_quantile(ratio, 50, bootstrap),
        ratio_p90=_quantile(ratio, 90, bootstrap),
        kendall_tau=order.kendall_tau if order else None,
        comparisons=order.comparisons if order else 0,
        workloads=tuple(
            WorkloadNoise(
                workload=programs.workload_names[number],
                programs=len(rows),
                ratio_median=float(np.median(ratio[rows])),
                ratio_p90=float(np.percentile(ratio[rows], 90)),
                kendall_tau=kendall_tau(first[rows], second[rows]) if len(rows) > 1 else None,
            )
            for number, rows in workload_rows(workload)
        ),
    )


def _quantile(ratio: Float64[np.ndarray, "programs"], percent: float, bootstrap: Bootstrap) -> Estimate:
    random = np.random.default_rng(bootstrap.seed)
    drawn = np.array([np.percentile(random.choice(ratio, len(ratio)), percent) for _ in range(bootstrap.samples)])
    low, high = np.percentile(drawn, bootstrap.ends)
    return Estimate(float(np.percentile(ratio, percent)), float(low), float(high))
