"""The order of programs pooled over workloads, for workloads with too few programs for a figure of their own.

With two or three programs a workload's own Kendall's tau is -1, 1 or little between. Pooled over the workloads, every
pair of programs *of one workload* counts once, whatever the workload; a pair across workloads never does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from kernelcast.evaluation.bootstrap import Bootstrap, Estimate, Resampling, drawn_again
from kernelcast.evaluation.metrics import pair_signs
from kernelcast.evaluation.resampling import DrawnPrograms, ordered_pairs, quadratic
from kernelcast.evaluation.summary import noise_gap, workload_rows


@dataclass(frozen=True)
class PooledOrder:
    """Agreement of two orders over all pairs of programs of one workload.

    Attributes:
        comparisons: pairs of programs with different times in the truth.
        kendall_tau: tau-b over these pairs.
        pairwise_accuracy: share of these pairs in the same order, ties half.
        clear_pairwise_accuracy: the same of the pairs that are further apart than the noise; None where none is, or
            where the noise is unknown.
    """

    comparisons: int
    kendall_tau: Estimate
    pairwise_accuracy: Estimate
    clear_pairwise_accuracy: Estimate | None


def pooled_order(
    truth: Float64[np.ndarray, "programs"],
    predicted: Float64[np.ndarray, "programs"],
    workload: np.ndarray,
    resampling: Resampling,
    bootstrap: Bootstrap,
    noise_ratio: float | None = None,
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
        noise_ratio: times that differ by this factor or less may be noise; None where it is unknown.
    """
    gap = noise_gap(noise_ratio)
    groups = [rows for _, rows in workload_rows(workload) if len(rows) > 1]
    if not groups:
        return None
    plain, with_clear_pairs = np.zeros(5), 0
    sums = np.empty((5, len(groups), bootstrap.samples))
    for number, rows in enumerate(groups):
        drawn_rows = DrawnPrograms.draw(rows, truth[rows], bootstrap.samples, gap, (bootstrap.seed, number))
        once = np.ones((len(rows), 1), dtype=np.float32)
        of_workload = order_sums(drawn_rows, predicted, once)[:, 0]
        plain += of_workload
        with_clear_pairs += int(of_workload[4] > 0)
        sums[:, number] = order_sums(drawn_rows, predicted, drawn_rows.counts.astype(np.float32))
    if not plain[1]:
        return None
    drawn = drawn_again(sums, resampling, bootstrap).sum(axis=1)
    accuracy = clear_accuracy = None
    tail = bootstrap.ends[0] / 100
    if abs(plain[0]) == plain[1] == plain[2]:
        accuracy = float(tail ** (1 / sum(len(rows) // 2 for rows in groups)))
    if plain[4] and abs(plain[3]) == plain[4]:
        # clear pairs of different workloads share no program
        clear_accuracy = float(tail ** (1 / with_clear_pairs))
    tau = None if accuracy is None else 2 * accuracy - 1
    return PooledOrder(
        # every pair is there in both directions
        comparisons=int(plain[1]) // 2,
        kendall_tau=_estimate(_tau(plain[:3]), _tau(drawn[:3]), tau, -1.0, bootstrap),
        pairwise_accuracy=_estimate(_accuracy(*plain[:2]), _accuracy(*drawn[:2]), accuracy, 0.0, bootstrap),
        clear_pairwise_accuracy=(
            _estimate(_accuracy(*plain[3:]), _accuracy(*drawn[3:]), clear_accuracy, 0.0, bootstrap)
            if gap is not None and plain[4]
            else None
        ),
    )


def order_sums(
    drawn: DrawnPrograms, predicted: Float64[np.ndarray, "programs"], counts: Float32[np.ndarray, "n samples"]
) -> Float64[np.ndarray, "5 samples"]:
    """For every draw: pairs that agree minus pairs that disagree, pairs ordered in the truth and in `predicted`.

    Then the first two again, of the pairs that are further apart than the noise. Each pair counts in both directions.
    """
    of_rows = predicted[drawn.rows]
    agreement = (pair_signs(drawn.truth) * pair_signs(of_rows)).astype(np.float32)
    return np.stack(
        [
            quadratic(agreement, counts),
            ordered_pairs(drawn.truth, counts),
            ordered_pairs(of_rows, counts),
            quadratic(agreement * drawn.clear, counts),
            quadratic(drawn.clear, counts),
        ]
    )


def _tau(sums: Float64[np.ndarray, "3 *samples"]) -> Float64[np.ndarray, "*samples"]:
    """Tau-b from the sums of `order_sums`; NaN without a pair, 0 where the prediction orders nothing."""
    agreement, true_pairs, predicted_pairs = sums
    scale = np.sqrt(true_pairs * predicted_pairs)
    tau = np.divide(agreement, scale, out=np.zeros_like(scale), where=scale > 0)
    return np.where(true_pairs > 0, tau, np.nan)


def _accuracy(
    agreement: Float64[np.ndarray, "*samples"], true_pairs: Float64[np.ndarray, "*samples"]
) -> Float64[np.ndarray, "*samples"]:
    """Pairwise accuracy from the sums of `order_sums`; NaN without a pair."""
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
