"""All metrics of one model on one set of programs: per workload, and as one figure of all workloads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.evaluation import metrics
from kernelcast.evaluation.aggregation import Pooling, pooled
from kernelcast.models.protocol import PredictionKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelcast.graphs.programs import Programs

CLEAR_PAIRS = "clear_pairwise_accuracy"
"""Metric that needs to know the noise."""


@dataclass(frozen=True)
class Metric:
    """One metric and how to show it.

    Attributes:
        name: key in files and in MLflow.
        label: what a reader sees.
        higher_is_better: direction.
        by_chance: value of a prediction that knows nothing; None where there is no such value.
        of_time: needs predictions in log seconds, so a model of ranks has none.
        programs: fewest test programs of a workload for which the value says anything.
        function: of truth and prediction of one workload.
        pooling: how the values of several workloads become one.
    """

    name: str
    label: str
    higher_is_better: bool
    by_chance: float | None
    of_time: bool
    programs: int
    function: Callable[[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]], float]
    pooling: Pooling = Pooling.MEAN

    @property
    def is_share(self) -> bool:
        """Whether a reader sees it as a percentage."""
        return not self.higher_is_better and self.name != "log_rmse"


TOP_1 = partial(metrics.top_k_score, k=1)
TOP_5 = partial(metrics.top_k_score, k=5)

METRICS = (
    Metric("kendall_tau", "Kendall's tau", True, 0.0, False, 2, metrics.kendall_tau),
    Metric("spearman", "Spearman", True, 0.0, False, 2, metrics.spearman),
    Metric("pairwise_accuracy", "Pairwise accuracy", True, 0.5, False, 2, metrics.pairwise_accuracy),
    # of all pairs, until `defined_metrics` tells it the noise
    Metric(
        CLEAR_PAIRS,
        "Accuracy, clear pairs",
        True,
        0.5,
        False,
        2,
        partial(metrics.clear_pairwise_accuracy, gap=0.0),
    ),
    # among k programs or fewer the best is always found
    Metric("top_1", "Top-1 score", True, None, False, 2, TOP_1, Pooling.BEST_OVER_CHOSEN),
    Metric("top_5", "Top-5 score", True, None, False, 6, TOP_5, Pooling.BEST_OVER_CHOSEN),
    Metric("tile_size_ape", "Tile-size APE", False, None, False, 2, metrics.tile_size_ape, Pooling.OF_BEST),
    Metric("mape", "MAPE", False, None, True, 1, metrics.mape),
    Metric("median_ape", "Median APE", False, None, True, 1, metrics.median_ape),
    Metric("p90_ape", "90th percentile APE", False, None, True, 1, metrics.p90_ape),
    Metric("log_rmse", "RMSE of log time", False, None, True, 1, metrics.log_rmse),
)
"""In the order in which tables show them."""

METRIC_BY_NAME = {metric.name: metric for metric in METRICS}


def pooling_over_workloads(metric: Metric) -> Pooling:
    """How workloads of equal weight are pooled: top-k as the mean of scores, whatever the workloads' times.

    A network is as fast as the sum of its kernels' times, so there, and by task weight, a long kernel counts for more;
    the tile-size APE is defined by such sums alone.
    """
    return Pooling.MEAN if metric.pooling is Pooling.BEST_OVER_CHOSEN else metric.pooling


@dataclass(frozen=True)
class WorkloadScores:
    """The metrics of one workload; one that is not defined for it is absent.

    Attributes:
        workload: its name.
        programs: programs that were scored.
        metrics: value by metric name; the mean over the seeds where there are several.
    """

    workload: str
    programs: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Summary:
    """The metrics of one model on one set of programs.

    Attributes:
        overall: over the workloads that have the metric, each workload with equal weight: a workload is what a
            tuner is called for, however many of its programs were measured.
        per_workload: in order of the workloads' numbers.
        unranked: workloads with a single program, or with programs of equal time only: no order to get right.
    """

    overall: dict[str, float]
    per_workload: tuple[WorkloadScores, ...]
    unranked: tuple[str, ...]


def summarise(
    programs: Programs,
    predicted: Float64[np.ndarray, "programs"],
    kind: PredictionKind | str,
    noise_ratio: float | None = None,
) -> Summary:
    """Scores `predicted`, the predictions for `programs`, in every metric that `kind` allows.

    A metric is absent, never zero, where it is not defined: MAPE and RMSE for a model of ranks, the order of a single
    program, the top 5 of 5 programs, pairs beyond a noise that nobody knows.

    Args:
        programs: what was predicted.
        predicted: the predictions.
        kind: what they mean.
        noise_ratio: times of a program that differ by this factor or less may be noise; None where it is unknown.
    """
    gap = noise_gap(noise_ratio)
    numbers, scores = [], []
    for number, rows in workload_rows(programs.workload):
        truth = programs.log_seconds[rows]
        values = {metric.name: metric.function(truth, predicted[rows]) for metric in defined_metrics(truth, kind, gap)}
        numbers.append(truth.min())
        scores.append(WorkloadScores(programs.workload_names[number], len(rows), values))
    best = np.array(numbers)
    overall = {}
    for metric in METRICS:
        chosen = [place for place, score in enumerate(scores) if metric.name in score.metrics]
        if chosen:
            values_of = np.array([scores[place].metrics[metric.name] for place in chosen])
            weights = np.ones(len(chosen))
            overall[metric.name] = float(pooled(pooling_over_workloads(metric), values_of, best[chosen], weights))
    unranked = tuple(score.workload for score in scores if "kendall_tau" not in score.metrics)
    return Summary(overall, tuple(scores), unranked)


def noise_gap(noise_ratio: float | None) -> float | None:
    """Log seconds that lie within a ratio of times."""
    return None if noise_ratio is None else math.log(noise_ratio)


def workload_rows(workload: np.ndarray) -> Iterator[tuple[int, Int64[np.ndarray, "rows"]]]:
    """Every workload that occurs, with its rows."""
    if not len(workload):
        return
    order = np.argsort(workload, kind="stable")
    numbers, starts = np.unique(workload[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        yield int(number), rows


def defined_metrics(
    truth: Float64[np.ndarray, "n"], kind: PredictionKind | str, gap: float | None = None
) -> list[Metric]:
    """The metrics that mean something for programs of one workload with these times.

    Args:
        truth: log seconds.
        kind: what the predictions mean.
        gap: log seconds that may be noise; None where that is unknown, and so are the pairs beyond it.
    """
    spread = float(np.ptp(truth)) if len(truth) else 0.0
    defined = []
    for metric in METRICS:
        if len(truth) < metric.programs:
            continue
        if metric.of_time:
            if kind == PredictionKind.LOG_SECONDS:
                defined.append(metric)
        elif metric.name == CLEAR_PAIRS:
            if gap is not None and spread > gap:
                function = partial(metrics.clear_pairwise_accuracy, gap=gap)
                defined.append(dataclasses.replace(metric, function=function))
        elif spread > 0:
            defined.append(metric)
    return defined
