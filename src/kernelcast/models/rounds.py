"""How boosted trees get on, round by round: what is logged, which round is the best, and when to stop."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float64, Int64, Integer

from kernelcast.models.batching import Labels
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import MetricLog
from kernelcast.models.validation import mean_kendall_tau

logger = logging.getLogger(__name__)

LOGGED_ROUNDS = 100
"""About so many rounds of a training are logged: a curve needs no more points."""

WATCHED = 200
"""So many programs of a workload at most make the metrics of a round: all pairs of thousands cost more than a tree."""


class Labelled(Protocol):
    """Programs of one part, those of a workload together."""

    @property
    def log_seconds(self) -> Float64[np.ndarray, "programs"]:
        """Natural logarithm of the times in seconds."""

    @property
    def workload(self) -> Integer[np.ndarray, "programs"]:
        """The workload of each."""


class Rounds:
    """Logs rounds, remembers the best one and tells when `patience` rounds brought no better one.

    Args:
        most: rounds that are planned.
        patience: rounds without a better metric before training stops.
        loss: it names the metric, and is logged.
        log: gets the metrics.
        parts: the programs of `train`, and of `valid` if there are any, which are then what is watched.
    """

    def __init__(self, most: int, patience: int, loss: Loss, log: MetricLog, parts: Mapping[str, Labelled]) -> None:
        self._most, self._patience, self._loss, self._log = most, patience, loss, log
        self._parts = parts
        self._rows = {name: spread_rows(part.workload) for name, part in parts.items()}
        self._labels = {
            name: Labels.of(part.log_seconds, part.workload).select(torch.from_numpy(self._rows[name]))
            for name, part in parts.items()
        }
        self._every = max(1, most // LOGGED_ROUNDS)
        self._watched = "valid" if "valid" in parts else "train"
        self._monitor = f"{self._watched}/{loss.monitor.rpartition('/')[2]}"
        self._best_metric = math.nan
        self.best = 0

    def wants(self, part: str, number: int) -> bool:
        """Whether the predictions for `part` are looked at in this round; those for training cost the most."""
        return part == self._watched or number % self._every == 0

    def end(self, number: int, predictions: Mapping[str, np.ndarray]) -> bool:
        """Takes the predictions after round `number` (from 0) by part, lower is faster; whether to stop."""
        metrics = {name: value for part, found in predictions.items() for name, value in self._metrics(part, found)}
        # a metric without a value (one program a workload) says nothing
        metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        metric = metrics.get(self._monitor, math.nan)
        better = metric > self._best_metric if self._loss.maximize else metric < self._best_metric
        if better or (math.isnan(self._best_metric) and not math.isnan(metric)):
            self._best_metric, self.best = metric, number
        elif math.isnan(self._best_metric):
            self.best = number
        if number % self._every == 0:
            self._log.metrics(metrics, number)
        stop = number - self.best >= self._patience or number + 1 == self._most
        if stop:
            logger.info(
                "trees grown: %d; the first %d, with %s %.4g, are kept, saved and tested",
                number + 1, self.best + 1, self._monitor, self._best_metric,
            )  # fmt: skip
        return stop

    def _metrics(self, part: str, prediction: np.ndarray) -> list[tuple[str, float]]:
        rows = self._rows[part]
        prediction = np.asarray(prediction, dtype=np.float64)[rows]
        loss = self._loss(torch.from_numpy(prediction.astype(np.float32)), self._labels[part])
        tau = mean_kendall_tau(prediction, self._parts[part].log_seconds[rows], self._parts[part].workload[rows])
        return [(f"{part}/loss", float(loss)), (f"{part}/kendall_tau", tau)]


def spread_rows(workload: Integer[np.ndarray, "programs"]) -> Int64[np.ndarray, "rows"]:
    """At most `WATCHED` rows of each workload, evenly spread over its programs, which stand together."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(workload)) + 1])
    sizes = np.diff([*starts, len(workload)])
    chosen = [
        start + np.arange(min(size, WATCHED)) * size // min(size, WATCHED)
        for start, size in zip(starts, sizes, strict=True)
    ]
    return np.concatenate(chosen).astype(np.int64)
