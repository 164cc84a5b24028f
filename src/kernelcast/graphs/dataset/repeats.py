"""The raw repeats of many programs as flat arrays: one entry a repeat, no loop over programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float64, Int64

from kernelcast.errors import MalformedDataError
from kernelcast.records import MEASUREMENTS_FILE

FIRST_VISIT = 0
"""The visit that models learn from."""


@dataclass(frozen=True)
class Repeats:
    """The repeats of a table of `MEASUREMENT_SCHEMA`, or some of them.

    Attributes:
        rows: number of rows of the table, also of those without a repeat.
        row: the row that each repeat belongs to, ascending.
        run_seconds: time of one call.
        visit: 0 for the measurement, from 1 on where it was measured again.
        round_index: the round of the visit.
        reference_seconds: the reference kernel in that round; NaN where unknown.
        ended_at: when it ended, seconds since 1970; NaN where unknown.
    """

    rows: int
    row: Int64[np.ndarray, " repeats"]
    run_seconds: Float64[np.ndarray, " repeats"]
    visit: Int64[np.ndarray, " repeats"]
    round_index: Int64[np.ndarray, " repeats"]
    reference_seconds: Float64[np.ndarray, " repeats"]
    ended_at: Float64[np.ndarray, " repeats"]

    @classmethod
    def of(cls, table: pa.Table) -> Repeats:
        """All repeats of `table`.

        Raises:
            MalformedDataError: the lists of a row differ in length, so that nobody knows which entries belong together.
        """
        lengths = _lengths(table, "run_seconds")
        for name in ("visit", "round_index", "reference_seconds", "ended_at"):
            other = _lengths(table, name)
            if not np.array_equal(lengths, other):
                row = int(np.flatnonzero(lengths != other)[0])
                raise MalformedDataError(
                    f"{MEASUREMENTS_FILE}: row {row} has {lengths[row]} entries in run_seconds and {other[row]} in "
                    f"{name}; delete it and run `dvc repro measure`"
                )
        return cls(
            rows=table.num_rows,
            row=np.repeat(np.arange(table.num_rows), lengths),
            run_seconds=_flat(table, "run_seconds", np.float64),
            visit=_flat(table, "visit", np.int64),
            round_index=_flat(table, "round_index", np.int64),
            reference_seconds=_flat(table, "reference_seconds", np.float64),
            ended_at=_flat(table, "ended_at", np.float64),
        )

    def __len__(self) -> int:
        return len(self.row)

    def select(self, chosen: Bool[np.ndarray, " repeats"]) -> Repeats:
        """The repeats of `chosen`, of the same rows."""
        return Repeats(
            self.rows,
            self.row[chosen],
            self.run_seconds[chosen],
            self.visit[chosen],
            self.round_index[chosen],
            self.reference_seconds[chosen],
            self.ended_at[chosen],
        )

    @property
    def counts(self) -> Int64[np.ndarray, " rows"]:
        """Repeats of each row."""
        return np.bincount(self.row, minlength=self.rows)

    def any_of(self, chosen: Bool[np.ndarray, " repeats"]) -> Bool[np.ndarray, " rows"]:
        """Which rows have a repeat of `chosen`."""
        found = np.zeros(self.rows, dtype=np.bool_)
        found[self.row[chosen]] = True
        return found

    def quantiles(self, *shares: float) -> list[Float64[np.ndarray, " rows"]]:
        """Quantiles of each row's run times, linear between neighbours; NaN where a row has no repeat.

        Args:
            shares: 0 for the minimum, 0.5 for the median.
        """
        ordered = self.run_seconds[np.lexsort((self.run_seconds, self.row))]
        counts = self.counts
        some = counts > 0
        first = (np.cumsum(counts) - counts)[some]
        last = counts[some] - 1
        found = []
        for share in shares:
            position = share * last
            below = np.floor(position).astype(np.int64)
            low, high = ordered[first + below], ordered[first + np.minimum(below + 1, last)]
            values = np.full(self.rows, np.nan)
            values[some] = low + (high - low) * (position - below)
            found.append(values)
        return found


def _lengths(table: pa.Table, column: str) -> Int64[np.ndarray, " rows"]:
    lengths = table[column].combine_chunks().value_lengths().fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)


def _flat(table: pa.Table, column: str, dtype: type[np.generic]) -> np.ndarray:
    """All entries of a list column, one list after the other."""
    flat = table[column].combine_chunks().flatten()
    if flat.null_count and not np.issubdtype(dtype, np.floating):
        raise MalformedDataError(
            f"{MEASUREMENTS_FILE}: {column} lacks {flat.null_count} entries; delete it and run `dvc repro measure`"
        )
    return np.asarray(flat.to_numpy(zero_copy_only=False), dtype=dtype)
