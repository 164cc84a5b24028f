"""All metrics of one model on one set of programs: per workload, and as the mean over the workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.evaluation import metrics
from kernelcast.models.protocol import PredictionKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelcast.graphs.programs import Programs


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
    """

    name: str
    label: str
    higher_is_better: bool
    by_chance: float | None
    of_time: bool
    programs: int
    function: Callable[[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]], float]


METRICS = (
    Metric("kendall_tau", "Kendall's tau", True, 0.0, False, 2, metrics.kendall_tau),
    Metric("pairwise_accuracy", "Pairwise accuracy", True, 0.5, False, 2, metrics.pairwise_accuracy),
    # among k programs or fewer the best is always found
    Metric("top_1", "Top-1 score", True, None, False, 2, partial(metrics.top_k_score, k=1)),
    Metric("top_5", "Top-5 score", True, None, False, 6, partial(metrics.top_k_score, k=5)),
    Metric("mape", "MAPE", False, None, True, 1, metrics.mape),
    Metric("log_rmse", "RMSE of log time", False, None, True, 1, metrics.log_rmse),
)
"""In the order in which tables show them."""

METRIC_BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class WorkloadScores:
    """The metrics of one workload; one that is not defined for it is absent.

    Attributes:
        workload: its name.
        programs: programs that were scored.
        metrics: value by metric name.
    """

    workload: str
    programs: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Summary:
    """The metrics of one model on one set of programs.

    Attributes:
        overall: mean over the workloads that have the metric, each workload with equal weight: a workload is what a
            tuner is called for, however many of its programs were measured.
        per_workload: in order of the workloads' numbers.
        unranked: workloads with a single program, or with programs of equal time only: no order to get right.
    """

    overall: dict[str, float]
    per_workload: tuple[WorkloadScores, ...]
    unranked: tuple[str, ...]


def summarise(programs: Programs, predicted: Float64[np.ndarray, "programs"], kind: PredictionKind | str) -> Summary:
    """Scores `predicted`, the predictions for `programs`, in every metric that `kind` allows.

    A metric is absent, never zero, where it is not defined: MAPE and RMSE for a model of ranks, the order of a single
    program, the top 5 of 5 programs.
    """
    scores = tuple(
        WorkloadScores(
            programs.workload_names[number],
            len(rows),
            {metric.name: metric.function(programs.log_seconds[rows], predicted[rows]) for metric in defined},
        )
        for number, rows in workload_rows(programs.workload)
        for defined in [defined_metrics(programs.log_seconds[rows], kind)]
    )
    overall = {
        metric.name: float(np.mean(values))
        for metric in METRICS
        if (values := [score.metrics[metric.name] for score in scores if metric.name in score.metrics])
    }
    return Summary(overall, scores, tuple(score.workload for score in scores if "kendall_tau" not in score.metrics))


def workload_rows(workload: np.ndarray) -> Iterator[tuple[int, Int64[np.ndarray, "rows"]]]:
    """Every workload that occurs, with its rows."""
    for number in np.unique(workload):
        yield int(number), np.flatnonzero(workload == number)


def defined_metrics(truth: Float64[np.ndarray, "n"], kind: PredictionKind | str) -> list[Metric]:
    """The metrics that mean something for programs of one workload with these times."""
    ordered = bool(len(truth)) and bool(truth.min() < truth.max())
    return [
        metric
        for metric in METRICS
        if len(truth) >= metric.programs and (kind == PredictionKind.LOG_SECONDS if metric.of_time else ordered)
    ]
