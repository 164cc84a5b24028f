"""From predictions to a model's result on one split, and the noise ceiling as one more row."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.bootstrap import Bootstrap, Estimate, Resampling, bootstrap_intervals
from kernelcast.evaluation.noise import PairedLabels, Source
from kernelcast.evaluation.pooling import pooled_order
from kernelcast.evaluation.results import CEILINGS, ModelResult, Role
from kernelcast.evaluation.summary import WorkloadScores, summarise
from kernelcast.models.protocol import PredictionKind

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs

TIMED_CALLS = 5
"""Calls of `predict` that are timed, after one that is not."""


def score(
    programs: Programs,
    predicted: Float64[np.ndarray, "programs"],
    kind: PredictionKind | str,
    resampling: Resampling,
    bootstrap: Bootstrap,
) -> tuple[dict[str, Estimate], tuple[WorkloadScores, ...]]:
    """Every metric with its interval, and without it per workload."""
    summary = summarise(programs, predicted, kind)
    intervals = bootstrap_intervals(
        programs, predicted, kind, resampling, bootstrap.samples, bootstrap.confidence, bootstrap.seed
    )
    metrics = {
        name: Estimate(value, intervals[name].low, intervals[name].high) for name, value in summary.overall.items()
    }
    return metrics, summary.per_workload


def ceiling(
    programs: Programs,
    test: Int64[np.ndarray, "test"],
    labels: PairedLabels,
    resampling: Resampling,
    bootstrap: Bootstrap,
) -> ModelResult | None:
    """The noise ceiling beside models that are scored on `test`: one measurement as a prediction of the other.

    Of programs that were measured again there are few, and whether a model has seen them does not matter here: those of
    all workloads in `test` are taken, and the order is pooled over the workloads. Their top-k scores are left out where
    they are fewer than the test programs: to choose the best of few is another task. Halves are there for every
    program, and are scored on the test programs as models are.

    Args:
        programs: all of them.
        test: rows of the test programs.
        labels: both measurements.
        resampling: what the intervals draw again.
        bootstrap: how they are made.

    Returns:
        None where no program has two measurements.
    """
    rows = test
    if labels.source == Source.VISITS:
        rows = np.flatnonzero(np.isin(programs.workload, programs.workload[test]))
    chosen = programs.select(rows)
    found, pairs = labels.rows_of(chosen)
    if not len(found):
        return None
    again = dataclasses.replace(chosen.select(found), log_seconds=labels.first_log_seconds[pairs])
    predicted = labels.second_log_seconds[pairs]
    kind = PredictionKind.LOG_SECONDS
    metrics, per_workload = score(again, predicted, kind, resampling, bootstrap)
    if labels.source == Source.VISITS:
        order = pooled_order(again.log_seconds, predicted, again.workload, resampling, bootstrap)
        if order:
            metrics |= {"kendall_tau": order.kendall_tau, "pairwise_accuracy": order.pairwise_accuracy}
        if len(found) < len(test):
            metrics = {name: estimate for name, estimate in metrics.items() if not name.startswith("top_")}
    name = CEILINGS[labels.source]
    return ModelResult(name, Role.CEILING, kind.value, "", len(found), metrics, per_workload, None, None)


def checked(predicted: np.ndarray, programs: int, model: str) -> Float64[np.ndarray, "programs"]:
    """`predicted` as float64.

    Raises:
        MalformedDataError: the model predicts another number of values, or a NaN or infinity.
    """
    values = np.asarray(predicted, dtype=np.float64)
    if values.shape != (programs,):
        raise MalformedDataError(
            f"the model {model} predicts an array of shape {values.shape} for {programs} programs; train it again"
        )
    broken = int(np.count_nonzero(~np.isfinite(values)))
    if broken:
        raise MalformedDataError(
            f"the model {model} predicts NaN or infinity for {broken} of {programs} programs; "
            "train it again with a lower learning rate"
        )
    return values


def timed(predict: Callable[[], np.ndarray], programs: int) -> tuple[np.ndarray, float]:
    """What `predict` returns, and the microseconds per program of one call (median of several)."""
    predicted = predict()
    seconds = []
    for _ in range(TIMED_CALLS):
        started = time.perf_counter()
        predict()
        seconds.append(time.perf_counter() - started)
    return predicted, 1e6 * median(seconds) / max(programs, 1)
