"""From predictions to a model's result on one split, and the noise ceiling as one more row."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.bootstrap import Resampling, bootstrap_intervals
from kernelcast.evaluation.noise import HalfLabels
from kernelcast.evaluation.results import CEILING, Estimate, ModelResult, Role
from kernelcast.evaluation.summary import WorkloadScores, summarise
from kernelcast.models.protocol import PredictionKind

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs

TIMED_CALLS = 5
"""Calls of `predict` that are timed, after one that is not."""


@dataclass(frozen=True)
class Bootstrap:
    """How the intervals are made; see `bootstrap_intervals`."""

    samples: int
    confidence: float
    seed: int


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


def ceiling(programs: Programs, labels: HalfLabels, resampling: Resampling, bootstrap: Bootstrap) -> ModelResult | None:
    """The noise ceiling on `programs`: the odd rounds as a prediction of the even ones; None where none has both."""
    found, pairs = labels.rows_of(programs)
    if not len(found):
        return None
    measured = dataclasses.replace(programs.select(found), log_seconds=labels.even_log_seconds[pairs])
    kind = PredictionKind.LOG_SECONDS
    metrics, per_workload = score(measured, labels.odd_log_seconds[pairs], kind, resampling, bootstrap)
    return ModelResult(CEILING, Role.CEILING, kind.value, "", len(found), metrics, per_workload, None, None)


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
