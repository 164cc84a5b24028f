"""What ranks the programs of a measured space: nothing, a trained model, or TVM's models trained on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.errors import ConfigError
from kernelcast.graphs.programs import Programs
from kernelcast.models.protocol import CostModel
from kernelcast.models.store_rows import rows_of_stores, store_groups
from kernelcast.tuning.learning import Correction, Frozen, Learning, Trials
from kernelcast.tuning.scores import as_scores
from kernelcast.tvm_compat import StoreRows, train_xgb

TVM_WARMUP = 100
"""Trials before TVM's XGBModel is asked; its scores are random until then."""

TVM_GROWTH = 0.2
"""TVM trains anew when there are at least so many more trials than at the last training, as a share of those."""

TVM_PATIENCE = 50
"""Trees without a smaller error in training before TVM's XGBModel stops growing them."""

Scores = Float64[np.ndarray, " programs"]


class Guide(Protocol):
    """Ranks the programs of one space for one replay, which makes a guide of its own."""

    def scores(self) -> Scores:
        """One number a program of the space that ran, higher is faster."""

    def learn(self, rows: Int64[np.ndarray, " trials"], log_seconds: Float64[np.ndarray, " trials"]) -> bool:
        """Takes all trials so far that ran; whether the scores are others now.

        Args:
            rows: which of the programs they are, in the order in which they were measured.
            log_seconds: natural logarithm of the time of each.
        """


MakeGuide = Callable[[Programs, int], Guide]
"""From the programs of a space, their labels NaN, and a seed."""


class RandomOrder:
    """A random order, whatever is measured."""

    def __init__(self, programs: Programs, seed: int) -> None:
        self._scores = np.random.default_rng(seed).random(len(programs))

    def scores(self) -> Scores:
        """The order."""
        return self._scores

    def learn(self, rows: Int64[np.ndarray, " trials"], log_seconds: Float64[np.ndarray, " trials"]) -> bool:
        """Learns nothing."""
        return False


class Pretrained:
    """A model that was trained before, or that learns nothing; what `learning` learns from the trials corrects it.

    Args:
        model: fitted to programs of the same feature version.
        learning: `Frozen` keeps the model as it is.
        slope: what a unit of the prediction was in ln(seconds) where the model was validated; see `TrainedOn`.
        residual: standard deviation of ln(seconds) around it there.
        programs: of the space.
    """

    def __init__(self, model: CostModel, learning: Learning, slope: float, residual: float, programs: Programs) -> None:
        self._learning, self._slope, self._residual = learning, slope, residual
        self._predicted = model.predict(programs)
        self._rows = programs.features.values if learning.needs_rows else np.zeros((len(programs), 0), np.float32)
        self._correction: Correction | None = None

    @classmethod
    def frozen(cls, model: CostModel) -> MakeGuide:
        """Makes a guide of `model` as it is for every space; nothing of it depends on the seed."""
        return cls.learning(model, Frozen(), slope=1.0, residual=1.0)

    @classmethod
    def learning(cls, model: CostModel, learning: Learning, slope: float, residual: float) -> MakeGuide:
        """Makes a guide that begins with `model` for every space; nothing of it depends on the seed."""
        return lambda programs, seed: cls(model, learning, slope, residual, programs)

    def scores(self) -> Scores:
        """What MetaSchedule would be told: 1 for the fastest."""
        predicted = self._predicted
        return as_scores(predicted if self._correction is None else self._correction.apply(predicted, self._rows))

    def learn(self, rows: Int64[np.ndarray, " trials"], log_seconds: Float64[np.ndarray, " trials"]) -> bool:
        """Learns the correction anew from all trials."""
        trials = Trials(self._predicted[rows], self._rows[rows], log_seconds)
        self._correction = self._learning.learn(trials, self._slope, self._residual)
        return True


Fit = Callable[[Programs], Callable[[Programs], Scores]]
"""From programs with labels, those of one workload, to what scores any."""


class FromNothing:
    """A model that begins with nothing, as TVM's tuner has it: random scores first, then trained on the trials.

    Args:
        fit: trains anew on all trials.
        warmup: trials that ran before the first training.
        programs: of the space.
        seed: of the scores until then.
    """

    def __init__(self, fit: Fit, warmup: int, programs: Programs, seed: int) -> None:
        if warmup < 2:
            raise ConfigError(f"warmup={warmup}: at least 2, for one program has no order")
        self._fit, self._warmup, self._programs = fit, warmup, programs
        self._scores = np.random.default_rng(seed).random(len(programs))
        self._trained_on = 0

    @classmethod
    def maker(cls, fit: Fit, warmup: int = TVM_WARMUP) -> MakeGuide:
        """Makes a guide that begins with nothing for every space."""
        return lambda programs, seed: cls(fit, warmup, programs, seed)

    def scores(self) -> Scores:
        """Those of the last training; random before the first."""
        return self._scores

    def learn(self, rows: Int64[np.ndarray, " trials"], log_seconds: Float64[np.ndarray, " trials"]) -> bool:
        """Trains where TVM would: enough trials, a fifth more than at the last time, and an order among them."""
        grown = len(rows) - self._trained_on
        if len(rows) < self._warmup or grown < TVM_GROWTH * self._trained_on or np.ptp(log_seconds) == 0:
            return False
        trials = replace(self._programs.select(rows), log_seconds=np.asarray(log_seconds, dtype=np.float64))
        self._scores = self._fit(trials)(self._programs)
        self._trained_on = len(rows)
        return True


def xgb_fit(threads: int = 1) -> Fit:
    """TVM's XGBModel as its tuner trains it: by its training error, every tree kept.

    `TvmXgbModel` is the same with a look at every tree, which costs more than the tree where programs are few; here the
    time counts.

    Args:
        threads: of XGBoost.
    """

    def fit(trials: Programs) -> Callable[[Programs], Scores]:
        booster = train_xgb(store_groups(trials), {"nthread": threads}, TVM_PATIENCE, lambda model, number: False)
        return lambda programs: StoreRows(rows_of_stores(programs)).scores(booster)

    return fit


def model_fit(make: Callable[[], CostModel]) -> Fit:
    """A kernelcast model trained anew on the trials, with none to validate on.

    Args:
        make: a model that has not been fitted.
    """

    def fit(trials: Programs) -> Callable[[Programs], Scores]:
        model = make()
        model.fit(trials, trials.select(np.zeros(0, dtype=np.int64)), _NoLog())
        return lambda programs: as_scores(model.predict(programs))

    return fit


class _NoLog:
    """Keeps nothing of a training that takes a fraction of a second."""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Keeps nothing."""
