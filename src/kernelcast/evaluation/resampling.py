"""Every metric of one workload for every bootstrap draw of its programs at once, for any number of predictions.

A draw of n programs with repeats is how often each of them was drawn, so a thousand draws are a matrix of counts, and a
metric of a draw is the metric with counts as weights: sums over pairs are quadratic forms, ranks are cumulative counts.
No program is looked at once per draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from kernelcast.evaluation.metrics import (
    absolute_percentage_errors,
    clear_pairs,
    dense_ranks,
    pair_signs,
    squared_log_errors,
)

Columns = Float32[np.ndarray, "n samples"]
Draws = Float64[np.ndarray, "samples"]


@dataclass(frozen=True)
class DrawnPrograms:
    """The programs of one workload, drawn again many times.

    Programs are in order of their times. Counts are small: float32 sums of them are exact up to 4,000 programs.

    Attributes:
        rows: of the programs, fastest first.
        truth: their log seconds.
        counts: how often each draw has each program.
        gap: log seconds that may be noise; None where that is unknown.
        tie_seed: of the order among equally predicted programs.
    """

    rows: Int64[np.ndarray, "n"]
    truth: Float64[np.ndarray, "n"]
    counts: UInt8[np.ndarray, "n samples"]
    gap: float | None
    tie_seed: tuple[int, ...]

    @classmethod
    def draw(
        cls,
        rows: Int64[np.ndarray, "n"],
        truth: Float64[np.ndarray, "n"],
        samples: int,
        gap: float | None,
        seed: Sequence[int],
    ) -> DrawnPrograms:
        """Draws `samples` times as many programs as there are, with repeats."""
        n = len(rows)
        drawn = np.random.default_rng(seed).integers(n, size=(samples, n))
        flat = drawn + n * np.arange(samples)[:, None]
        counts = np.bincount(flat.ravel(), minlength=samples * n).reshape(samples, n)
        order = np.argsort(truth, kind="stable")
        # more than 255 copies of one program among n drawn ones do not happen
        as_columns = np.ascontiguousarray(counts.T, dtype=np.uint8)
        return cls(rows[order], truth[order], as_columns, gap, (*seed, 1))

    @property
    def samples(self) -> int:
        """Number of draws."""
        return self.counts.shape[1]

    @cached_property
    def best_log_seconds(self) -> Draws:
        """Time of the fastest program of every draw."""
        return self.truth[np.argmax(self.counts > 0, axis=0)]

    @cached_property
    def clear(self) -> Float32[np.ndarray, "n n"]:
        """1 for pairs that are further apart than the noise."""
        return clear_pairs(self.truth, 0.0 if self.gap is None else self.gap).astype(np.float32)

    def metrics(self, predicted: Float64[np.ndarray, "seeds programs"], names: Iterable[str]) -> dict[str, np.ndarray]:
        """Value of the metrics `names` for every seed and draw.

        Args:
            predicted: of all programs of the data, one row a seed; those of `rows` are taken.
            names: of `METRICS`.
        """
        wanted = set(names)
        of_rows = predicted[:, self.rows]
        counts = self.counts.astype(np.float32)
        found: dict[str, list[Draws]] = {}
        true_pairs = ordered_pairs(self.truth, counts)
        # those of different programs, which a prediction without ties orders all
        distinct = len(counts) ** 2 - np.einsum("ns,ns->s", counts, counts).astype(np.float64)
        clear = quadratic(self.clear, counts) if "clear_pairwise_accuracy" in wanted else None
        true_ranks = weighted_ranks(self.truth, counts) if "spearman" in wanted else None
        for one in of_rows:
            values = self._order(one, counts, true_pairs, distinct, clear) if wanted & ORDER else {}
            if true_ranks is not None:
                values["spearman"] = correlation(true_ranks, weighted_ranks(one, counts), counts)
            if wanted & CHOICE:
                values |= self._choices(one, counts, wanted)
            if wanted & ERRORS:
                values |= error_metrics(self.truth, one, counts)
            for name in wanted:
                found.setdefault(name, []).append(values[name])
        return {name: np.stack(draws) for name, draws in found.items()}

    def _order(
        self, predicted: np.ndarray, counts: Columns, true_pairs: Draws, distinct: Draws, clear: Draws | None
    ) -> dict[str, Draws]:
        agreement = pair_signs(self.truth).astype(np.float32) * pair_signs(predicted).astype(np.float32)
        agreed = quadratic(agreement, counts)
        tied = len(np.unique(predicted)) < len(predicted)
        predicted_pairs = ordered_pairs(predicted, counts) if tied else distinct
        values = {
            "kendall_tau": ratio(agreed, np.sqrt(true_pairs * predicted_pairs), 0.0),
            "pairwise_accuracy": 0.5 + 0.5 * ratio(agreed, true_pairs, 0.0),
        }
        if clear is not None:
            agreed = quadratic(agreement * self.clear, counts)
            values["clear_pairwise_accuracy"] = 0.5 + 0.5 * ratio(agreed, clear, 0.0)
        return values

    def _choices(self, predicted: np.ndarray, counts: Columns, wanted: set[str]) -> dict[str, Draws]:
        places = (1, 5) if "top_5" in wanted else (1,)
        if len(np.unique(predicted)) < len(predicted):
            chosen = {k: self._random_among_equal(predicted, k) for k in places}
        else:
            chosen = self._first(predicted, counts, places)
        values = {f"top_{k}": np.exp(self.best_log_seconds - fastest) for k, fastest in chosen.items()}
        return {**values, "tile_size_ape": np.expm1(chosen[1] - self.best_log_seconds)}

    def _first(self, predicted: np.ndarray, counts: Columns, places: Sequence[int]) -> dict[int, Draws]:
        """Log seconds of the fastest of the k programs ranked first, by k, for a prediction without ties."""
        order = np.argsort(predicted)
        columns = np.arange(self.samples)
        chosen = {k: np.full(self.samples, np.inf) for k in places}
        ranked = np.zeros(self.samples, dtype=np.float32)
        # draws that have enough programs among the first 24 need no more of them
        for start in range(0, len(order), 24):
            some = order[start : start + 24]
            drawn = counts[np.ix_(some, columns)] if len(columns) < self.samples else counts[some]
            before = np.cumsum(drawn, axis=0) - drawn + ranked[columns]
            times = np.where(drawn > 0, self.truth[some][:, None], np.inf)
            for k, fastest in chosen.items():
                taken = np.where(before < k, times, np.inf).min(axis=0)
                fastest[columns] = np.minimum(fastest[columns], taken)
            ranked[columns] = before[-1] + drawn[-1]
            columns = columns[ranked[columns] < max(places)]
            if not len(columns):
                break
        return chosen

    def _random_among_equal(self, predicted: np.ndarray, k: int) -> Draws:
        """The same for a prediction with ties: equal ones in random order, which has the expected value as its mean."""
        n, samples = self.counts.shape
        drawn = np.repeat(np.tile(np.arange(n), samples), self.counts.T.ravel()).reshape(samples, n)
        keys = dense_ranks(predicted)[drawn] + np.random.default_rng(self.tie_seed).random(drawn.shape)
        first = np.argpartition(keys, k - 1, axis=1)[:, :k]
        # programs are in order of their times
        return self.truth[np.take_along_axis(drawn, first, axis=1).min(axis=1)]


ORDER = {"kendall_tau", "pairwise_accuracy", "clear_pairwise_accuracy"}
CHOICE = {"top_1", "top_5", "tile_size_ape"}
ERRORS = {"mape", "median_ape", "p90_ape", "log_rmse"}


def quadratic(pairs: Float32[np.ndarray, "n n"], counts: Columns) -> Draws:
    """The sum of P over the ordered pairs of every draw w: w' P w."""
    return np.einsum("ns,ns->s", pairs @ counts, counts).astype(np.float64)


def ordered_pairs(values: np.ndarray, counts: Columns) -> Draws:
    """Ordered pairs of every draw whose values differ: all pairs but those within a group of equal values."""
    _, members, starts = groups(values)
    totals = np.add.reduceat(counts[members], starts, axis=0)
    n = float(len(values))
    return n * n - np.einsum("gs,gs->s", totals, totals).astype(np.float64)


def weighted_ranks(values: np.ndarray, counts: Columns) -> Columns:
    """Rank of every program in every draw, relative to the middle; equal values and copies share the mean rank."""
    group, members, starts = groups(values)
    ordered = counts[members]
    totals = ordered if len(starts) == len(members) else np.add.reduceat(ordered, starts, axis=0)
    # the middle of n ranks is (n + 1) / 2, the mean rank of a group is what is below it plus (its size + 1) / 2
    ranks = np.cumsum(totals, axis=0) - totals / 2 - np.float32(len(values) / 2)
    return ranks[group]


def correlation(first: Columns, second: Columns, counts: Columns) -> Draws:
    """Correlation of centred ranks of every draw; 0 where either has no order."""
    weighted = first * counts
    covariance = np.einsum("ns,ns->s", weighted, second)
    variances = [
        np.einsum("ns,ns->s", weighted, first).astype(np.float64),
        np.einsum("ns,ns->s", second * counts, second).astype(np.float64),
    ]
    return ratio(covariance.astype(np.float64), np.sqrt(variances[0] * variances[1]), 0.0)


def error_metrics(truth: np.ndarray, predicted: np.ndarray, counts: Columns) -> dict[str, Draws]:
    """The metrics of predicted times of every draw; in float64, since an error may be 1e200."""
    n = len(truth)
    errors, squares = absolute_percentage_errors(truth, predicted), squared_log_errors(truth, predicted)
    means = np.stack([errors, squares]) @ counts.astype(np.float64) / n
    order = np.argsort(errors)
    below = np.cumsum(counts[order], axis=0)
    return {
        "mape": means[0],
        "median_ape": drawn_quantile(errors[order], below, 0.5),
        "p90_ape": drawn_quantile(errors[order], below, 0.9),
        "log_rmse": np.sqrt(means[1]),
    }


def drawn_quantile(ordered: Float64[np.ndarray, "n"], below: Columns, share: float) -> Draws:
    """Quantile of every draw, linear between order statistics.

    Args:
        ordered: the values in increasing order.
        below: cumulative counts in that order.
        share: of the draw below the quantile.
    """
    n = len(ordered)
    place = (n - 1) * share
    low = int(place)
    # the order statistic number k, from 0, is the first value whose cumulative count exceeds k
    lower, upper = (ordered[np.count_nonzero(below <= min(k, n - 1), axis=0)] for k in (low, low + 1))
    return lower + (place - low) * (upper - lower)


def groups(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups of equal values: the group of each, all in order of the values, and where each group starts in it."""
    order = np.argsort(values, kind="stable")
    _, starts, group = np.unique(values[order], return_index=True, return_inverse=True)
    of_each = np.empty(len(values), dtype=np.int64)
    of_each[order] = group.reshape(-1)
    return of_each, order, starts


def ratio(numerator: Draws, denominator: Draws, otherwise: float) -> Draws:
    """Quotient where the denominator is above zero."""
    return np.divide(numerator, denominator, out=np.full_like(numerator, otherwise), where=denominator > 0)
