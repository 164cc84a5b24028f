"""The order of programs pooled over workloads, for workloads with too few programs for a figure of their own.

With two or three programs a workload's own Kendall's tau is -1, 1 or little between. Pooled over the workloads, every
pair of programs *of one workload* counts once, whatever the workload; a pair across workloads never does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from kernelcast.evaluation.bootstrap import Bootstrap, Estimate, Resampling, drawn_again, order_sums
from kernelcast.evaluation.summary import workload_rows


@dataclass(frozen=True)
class PooledOrder:
    """Agreement of two orders over all pairs of programs of one workload.

    Attributes:
        comparisons: pairs of programs with different times in the truth.
        kendall_tau: tau-b over these pairs.
        pairwise_accuracy: share of these pairs in the same order, ties half.
    """

    comparisons: int
    kendall_tau: Estimate
    pairwise_accuracy: Estimate


def pooled_order(
    truth: Float64[np.ndarray, "programs"],
    predicted: Float64[np.ndarray, "programs"],
    workload: np.ndarray,
    resampling: Resampling,
    bootstrap: Bootstrap,
) -> PooledOrder | None:
    """Kendall's tau and pairwise accuracy over all pairs of programs of one workload; None where no pair is ordered.

    Where every pair agrees (or none), each draw does too and the bootstrap sees no uncertainty at all. The interval
    then reaches as far as that many agreements by chance would be believed: with m comparisons that share no program,
    the accuracy p with p**m equal to the tail (Clopper and Pearson, Biometrika 26, 1934, for m of m).

    Args:
        truth: log seconds.
        predicted: predictions.
        workload: of each program.
        resampling: what is drawn again.
        bootstrap: how the interval is made.
    """
    groups = [rows for _, rows in workload_rows(workload) if len(rows) > 1]
    if not groups:
        return None
    random = np.random.default_rng(bootstrap.seed)
    plain = np.zeros(3)
    sums = np.empty((3, len(groups), bootstrap.samples))
    for number, rows in enumerate(groups):
        draws = random.integers(len(rows), size=(bootstrap.samples, len(rows)))
        plain += [total[0] for total in order_sums(truth[rows], predicted[rows], np.arange(len(rows))[None])]
        sums[:, number] = order_sums(truth[rows], predicted[rows], draws)
    if not plain[1]:
        return None
    drawn = drawn_again(sums, resampling, bootstrap.seed).sum(axis=1)
    accuracy = None
    if abs(plain[0]) == plain[1] == plain[2]:
        disjoint = sum(len(rows) // 2 for rows in groups)
        accuracy = float((bootstrap.ends[0] / 100) ** (1 / disjoint))
    tau = None if accuracy is None else 2 * accuracy - 1
    return PooledOrder(
        # every pair is there in both directions
        comparisons=int(plain[1]) // 2,
        kendall_tau=_estimate(_tau(plain), _tau(drawn), tau, -1.0, bootstrap),
        pairwise_accuracy=_estimate(_accuracy(plain), _accuracy(drawn), accuracy, 0.0, bootstrap),
    )


def _tau(sums: Float64[np.ndarray, "3 *samples"]) -> Float64[np.ndarray, "*samples"]:
    """Tau-b from the sums of `order_sums`; NaN without a pair, 0 where the prediction orders nothing."""
    agreement, true_pairs, predicted_pairs = sums
    scale = np.sqrt(true_pairs * predicted_pairs)
    tau = np.divide(agreement, scale, out=np.zeros_like(scale), where=scale > 0)
    return np.where(true_pairs > 0, tau, np.nan)


def _accuracy(sums: Float64[np.ndarray, "3 *samples"]) -> Float64[np.ndarray, "*samples"]:
    """Pairwise accuracy from the sums of `order_sums`; NaN without a pair."""
    agreement, true_pairs, _ = sums
    return 0.5 + 0.5 * np.divide(agreement, true_pairs, out=np.full_like(true_pairs, np.nan), where=true_pairs > 0)


def _estimate(
    value: Float64[np.ndarray, ""],
    drawn: Float64[np.ndarray, "samples"],
    bound: float | None,
    worst: float,
    bootstrap: Bootstrap,
) -> Estimate:
    """`value` with the interval of the draws that have one.

    Args:
        value: of all programs.
        drawn: of every draw, NaN where it has no pair.
        bound: the end that is believed where all pairs agree, or its mirror image where none does; else None.
        worst: value where no pair agrees; the best is 1.
        bootstrap: how the interval is made.
    """
    usable = drawn[np.isfinite(drawn)]
    low, high = np.percentile(usable if len(usable) else [value], bootstrap.ends)
    if bound is not None:
        low, high = (bound, 1.0) if value == 1.0 else (worst, 1.0 + worst - bound)
    return Estimate(float(value), float(low), float(high))
