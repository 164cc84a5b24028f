"""How sure a mean over workloads is: bootstrap intervals.

Two questions, two ways to resample (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13):

- The model knew the workloads from training. The claim is about *these* workloads, and only which of their programs
  were tested is chance: programs are drawn again within every workload.
- The workloads are new to the model. The claim is about workloads in general: workloads are drawn again, then programs
  within each. With few workloads this interval is wide, and still too narrow: two workloads cannot show how much
  workloads differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.evaluation.metrics import absolute_percentage_errors, dense_ranks, pair_signs, squared_log_errors
from kernelcast.evaluation.summary import Metric, defined_metrics, workload_rows
from kernelcast.models.protocol import PredictionKind

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs


class Resampling(StrEnum):
    """What is drawn again."""

    PROGRAMS = "programs"
    """Programs within every workload; the workloads stay."""

    WORKLOADS_AND_PROGRAMS = "workloads and programs"
    """Workloads first, then programs within each."""


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made.

    Attributes:
        samples: number of draws.
        confidence: share of the draws inside the interval, in (0, 1).
        seed: of the draws.
    """

    samples: int
    confidence: float
    seed: int

    @property
    def ends(self) -> tuple[float, float]:
        """The percentiles that bound the interval."""
        tail = 100 * (1 - self.confidence) / 2
        return tail, 100 - tail


@dataclass(frozen=True)
class Estimate:
    """A figure and both ends of its bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Interval:
    """Lower and upper end of a percentile interval."""

    low: float
    high: float


def bootstrap_intervals(
    programs: Programs,
    predicted: Float64[np.ndarray, "programs"],
    kind: PredictionKind | str,
    resampling: Resampling,
    samples: int,
    confidence: float,
    seed: int,
) -> dict[str, Interval]:
    """Percentile interval of the mean over workloads of every metric that is defined.

    The same seed draws the same programs for every model, so that models are compared on equal draws.

    Args:
        programs: the programs that were predicted.
        predicted: their predictions.
        kind: what the predictions mean.
        resampling: what is drawn again.
        samples: number of draws.
        confidence: share of the draws inside the interval, in (0, 1).
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    replicates: dict[str, list[Float64[np.ndarray, "samples"]]] = {}
    for _, rows in workload_rows(programs.workload):
        truth = programs.log_seconds[rows]
        draws = random.integers(len(rows), size=(samples, len(rows)))
        jitter = random.random(draws.shape)
        for metric in defined_metrics(truth, kind):
            values = resampled_metric(metric, truth, predicted[rows], draws, jitter)
            replicates.setdefault(metric.name, []).append(values)
    tail = 100 * (1 - confidence) / 2
    intervals = {}
    for name, of_workloads in replicates.items():
        means = mean_over_workloads(np.stack(of_workloads), resampling, seed)
        low, high = np.percentile(means, [tail, 100 - tail])
        intervals[name] = Interval(float(low), float(high))
    return intervals


def mean_over_workloads(
    replicates: Float64[np.ndarray, "workloads samples"], resampling: Resampling, seed: int
) -> Float64[np.ndarray, "samples"]:
    """Mean over the workloads of each draw, with the workloads drawn again where `resampling` asks for it."""
    return drawn_again(replicates, resampling, seed).mean(axis=0)


def drawn_again(
    replicates: Float64[np.ndarray, "*figures workloads samples"], resampling: Resampling, seed: int
) -> Float64[np.ndarray, "*figures workloads samples"]:
    """Figures of each workload and draw, with the workloads drawn again where `resampling` asks for it."""
    if resampling == Resampling.PROGRAMS:
        return replicates
    workloads, samples = replicates.shape[-2:]
    random = np.random.default_rng([seed, 1])
    chosen = random.integers(workloads, size=(samples, workloads))
    # from any draw of programs, so that a workload chosen twice brings two independent draws
    draw = random.integers(samples, size=(samples, workloads))
    return np.swapaxes(replicates[..., chosen, draw], -1, -2)


def resampled_metric(
    metric: Metric,
    truth: Float64[np.ndarray, "n"],
    predicted: Float64[np.ndarray, "n"],
    draws: Int64[np.ndarray, "samples n"],
    jitter: Float64[np.ndarray, "samples n"],
) -> Float64[np.ndarray, "samples"]:
    """Value of `metric` for every draw of programs of one workload.

    Args:
        metric: which.
        truth: log seconds.
        predicted: predictions.
        draws: programs of each draw, with repeats.
        jitter: uniform in [0, 1), decides which of equally predicted programs is ranked first.
    """
    match metric.name:
        case "kendall_tau":
            return resampled_order(truth, predicted, draws)[0]
        case "pairwise_accuracy":
            return resampled_order(truth, predicted, draws)[1]
        case "top_1" | "top_5":
            return resampled_top_k(truth, predicted, draws, jitter, k=int(metric.name.removeprefix("top_")))
        case "mape":
            return absolute_percentage_errors(truth, predicted)[draws].mean(axis=1)
        case "log_rmse":
            return np.sqrt(squared_log_errors(truth, predicted)[draws].mean(axis=1))
    raise AssertionError(f"metric {metric.name} has no resampled form")


def resampled_order(
    truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"], draws: Int64[np.ndarray, "samples n"]
) -> tuple[Float64[np.ndarray, "samples"], Float64[np.ndarray, "samples"]]:
    """Kendall's tau-b and pairwise accuracy of every draw.

    Copies of one program are ties in both and count nowhere, as in the plain metric.
    """
    agreement, true_pairs, predicted_pairs = order_sums(truth, predicted, draws)
    scale = np.sqrt(true_pairs * predicted_pairs)
    tau = np.divide(agreement, scale, out=np.zeros(len(draws)), where=scale > 0)
    accuracy = 0.5 + 0.5 * np.divide(agreement, true_pairs, out=np.zeros(len(draws)), where=true_pairs > 0)
    return tau, accuracy


def order_sums(
    truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"], draws: Int64[np.ndarray, "samples n"]
) -> tuple[Float64[np.ndarray, "samples"], Float64[np.ndarray, "samples"], Float64[np.ndarray, "samples"]]:
    """For every draw: pairs that agree minus pairs that disagree, pairs ordered in the truth and in `predicted`.

    With w how often each program was drawn and S, P the signs of all pairs of the truth and of the prediction, a sum
    over the pairs of a draw is the quadratic form w' (S * P) w: no pair is looked at once per draw. Each pair counts in
    both directions.
    """
    samples, n = draws.shape
    weights = np.bincount((draws + n * np.arange(samples)[:, None]).ravel(), minlength=samples * n)
    weights = weights.reshape(samples, n).astype(np.float64)
    true_sign, predicted_sign = pair_signs(truth), pair_signs(predicted)

    def pair_sum(pairs: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "samples"]:
        total: Float64[np.ndarray, "samples"] = np.einsum("sn,sn->s", weights @ pairs, weights)
        return total

    return pair_sum(true_sign * predicted_sign), pair_sum(np.abs(true_sign)), pair_sum(np.abs(predicted_sign))


def resampled_top_k(
    truth: Float64[np.ndarray, "n"],
    predicted: Float64[np.ndarray, "n"],
    draws: Int64[np.ndarray, "samples n"],
    jitter: Float64[np.ndarray, "samples n"],
    k: int,
) -> Float64[np.ndarray, "samples"]:
    """Top-k score of every draw; equal predictions in random order, which has the expected value as its mean."""
    order = dense_ranks(predicted)[draws] + jitter
    first = np.argpartition(order, k - 1, axis=1)[:, :k]
    drawn = truth[draws]
    chosen = np.take_along_axis(drawn, first, axis=1).min(axis=1)
    scores: Float64[np.ndarray, "samples"] = np.exp(drawn.min(axis=1) - chosen)
    return scores
