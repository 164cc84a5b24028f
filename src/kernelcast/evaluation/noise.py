"""The noise ceiling: how well one measurement of the programs predicts another of the same programs.

No model can be told to be better than that. Both measurements come from one campaign: the minimum over the even rounds
and the minimum over the odd rounds, two labels that share no repeat. Each has half as many rounds as the label that
models learn from, so the label itself is somewhat better than the ceiling says; and both halves see the same minutes of
the machine, so a state of the machine that lasts through all rounds stays unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from jaxtyping import Float64, Int64

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs


@dataclass(frozen=True)
class HalfLabels:
    """Two labels for every program that was measured in even and in odd rounds.

    Attributes:
        row: number of the pair by (workload name, program key).
        even_log_seconds: natural logarithm of the minimum over the even rounds.
        odd_log_seconds: the same over the odd rounds.
        unpaired: measured programs without a time in one of the halves.
    """

    row: dict[tuple[str, str], int]
    even_log_seconds: Float64[np.ndarray, "pairs"]
    odd_log_seconds: Float64[np.ndarray, "pairs"]
    unpaired: int

    def rows_of(self, programs: Programs) -> tuple[Int64[np.ndarray, "found"], Int64[np.ndarray, "found"]]:
        """The rows of `programs` that have both labels, and the pairs of these rows."""
        names = programs.workload_names
        pairs = np.array(
            [
                self.row.get((names[workload], str(key)), -1)
                for workload, key in zip(programs.workload, programs.program_key, strict=True)
            ],
            dtype=np.int64,
        )
        found = np.flatnonzero(pairs >= 0)
        return found, pairs[found]


@dataclass(frozen=True)
class Noise:
    """How far two measurements of the same program are apart.

    Attributes:
        programs: programs with both labels.
        unpaired: measured programs without.
        ratio_median: of the larger over the smaller of both labels, median over the programs; 1 is no noise.
        ratio_p90: the same, 90th percentile.
    """

    programs: int
    unpaired: int
    ratio_median: float
    ratio_p90: float


def half_labels(measured: pa.Table) -> HalfLabels:
    """Labels from the even and from the odd rounds of every row of `measured` (columns of `MEASUREMENT_SCHEMA`)."""
    lengths = np.asarray(measured["run_seconds"].combine_chunks().value_lengths().to_numpy(zero_copy_only=False))
    program = np.repeat(np.arange(measured.num_rows), lengths)
    seconds = flat_values(measured, "run_seconds", np.float64)
    odd = flat_values(measured, "round_index", np.int64) % 2 == 1
    usable = np.isfinite(seconds) & (seconds > 0)

    def minimum(chosen: np.ndarray) -> Float64[np.ndarray, "rows"]:
        lowest = np.full(measured.num_rows, np.inf)
        np.minimum.at(lowest, program[chosen], seconds[chosen])
        return lowest

    even_seconds, odd_seconds = minimum(usable & ~odd), minimum(usable & odd)
    both = np.flatnonzero(np.isfinite(even_seconds) & np.isfinite(odd_seconds))
    names = measured["workload_name"].to_pylist()
    keys = measured["program_key"].to_pylist()
    return HalfLabels(
        row={(names[i], keys[i]): pair for pair, i in enumerate(both)},
        even_log_seconds=np.log(even_seconds[both]),
        odd_log_seconds=np.log(odd_seconds[both]),
        unpaired=measured.num_rows - len(both),
    )


def noise_of(labels: HalfLabels) -> Noise | None:
    """The distance between both labels; None where no program has two, as in a campaign of one round."""
    if not labels.row:
        return None
    ratio = np.exp(np.abs(labels.even_log_seconds - labels.odd_log_seconds))
    median, p90 = np.percentile(ratio, [50, 90])
    return Noise(len(ratio), labels.unpaired, float(median), float(p90))


def flat_values(table: pa.Table, column: str, dtype: type[np.generic]) -> np.ndarray:
    """All entries of a list column, one list after the other."""
    return np.asarray(table[column].combine_chunks().flatten().to_numpy(zero_copy_only=False), dtype=dtype)
