"""How a model goes on learning from the trials of a search, workload by workload.

The model itself stays as it was trained: what is learned is a correction of its predictions, which costs milliseconds
and works for every model, one that predicts times and one that ranks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from jaxtyping import Bool, Float32, Float64

from kernelcast.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trials:
    """Programs of one workload that a search measured, in the order in which it did.

    Attributes:
        predicted: what the model says of each, lower is faster.
        rows: the flat features of each; without columns where the learning does not ask for them.
        log_seconds: ln of the measured time; NaN where measuring failed, which says nothing about the time.
    """

    predicted: Float64[np.ndarray, " trials"]
    rows: Float32[np.ndarray, "trials features"]
    log_seconds: Float64[np.ndarray, " trials"]

    def __len__(self) -> int:
        return len(self.log_seconds)

    @property
    def measured(self) -> Bool[np.ndarray, " trials"]:
        """Which of them have a time and a prediction."""
        usable: Bool[np.ndarray, " trials"] = np.isfinite(self.log_seconds) & np.isfinite(self.predicted)
        return usable


class Correction(Protocol):
    """What was learned of one workload."""

    def apply(
        self, predicted: Float64[np.ndarray, " programs"], rows: Float32[np.ndarray, "programs features"]
    ) -> Float64[np.ndarray, " programs"]:
        """Better predictions, lower is faster; infinite ones stay so."""


class Learning(Protocol):
    """What a configuration's `learning` instantiates."""

    needs_rows: ClassVar[bool]
    """Whether it looks at the flat features of programs."""

    def learn(self, trials: Trials, slope: float, residual: float) -> Correction:
        """What the trials of one workload teach.

        Args:
            trials: all so far.
            slope: what a unit of the prediction was in ln(seconds) where the model was validated.
            residual: the standard deviation of ln(seconds) around it there.
        """


@dataclass(frozen=True)
class Unchanged:
    """A correction that corrects nothing."""

    def apply(
        self, predicted: Float64[np.ndarray, " programs"], rows: Float32[np.ndarray, "programs features"]
    ) -> Float64[np.ndarray, " programs"]:
        """The predictions as they are."""
        return predicted


@dataclass(frozen=True)
class Frozen:
    """Learns nothing: the model stays as it was trained."""

    needs_rows: ClassVar[bool] = False

    def learn(self, trials: Trials, slope: float, residual: float) -> Correction:
        """Nothing."""
        return Unchanged()


LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Length scales that are tried, in units of the median distance of two trials."""

SHARES = (0.3, 0.6, 0.8, 0.95)
"""Shares of the variance around the frozen prediction that are tried as the features' part; the rest is noise."""

SLOPE_DOUBT = 0.5
"""Prior standard deviation of the slope on a new workload, in units of the one that was validated."""

OFFSET_VARIANCE = 100.0
"""Prior variance of the workload's mean, which a rank says nothing about, in units of the residual's."""

LEAST_VARIANCE = 1e-6
"""Of ln(seconds): a tenth of a percent; no model is held to be better than that."""


@dataclass(frozen=True)
class Refit:
    r"""Corrects the model by a Gaussian process over the flat features of what was measured of a workload.

    That is::

        ln seconds(x) = m + (slope + d) * prediction(x) + g(x) + noise,    g ~ GP(0, v k(x, x'))
        k(x, x') = (1 + r) exp(-r),    r = sqrt(3) |x - x'| / length

    with the features divided by their standard deviations. Far from everything measured, g is 0 and the order is the
    model's; near it, what was measured counts. Length and v are those of the largest marginal likelihood on a small
    grid. The correction is trusted only if, left out in turn, each trial is predicted better with g than without; else
    the model stays as it is. The same trials give the same correction.

    Failed trials are left out: they have no time, and a made-up one would bend the process around it.

    Attributes:
        least_trials: measured trials of a workload before anything is learned of it.
        most_trials: the last so many count; the cost grows with their third power.

    Raises:
        ConfigError: a number that cannot work.

    Source:
        Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, sections 2.7 (a mean with unknown
        coefficients) and 5.4 (marginal likelihood and leaving one out). That a model of the workload corrects a
        global one is in Chen et al. 2018 (arXiv 1805.08166), section 4.
    """

    least_trials: int = 8
    most_trials: int = 256
    needs_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, least in (("least_trials", 3), ("most_trials", self.least_trials)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"learning.{name}={value}: a whole number of at least {least}")

    def learn(self, trials: Trials, slope: float, residual: float) -> Correction:
        """See the class."""
        rows = np.flatnonzero(trials.measured)[-self.most_trials :]
        if len(rows) < self.least_trials:
            return Unchanged()
        predicted, times = trials.predicted[rows], trials.log_seconds[rows]
        scales = _Scales.of(trials.rows[rows])
        points = scales.apply(trials.rows[rows])
        distances = _distances(points, points)
        apart = distances[np.triu_indices(len(rows), 1)]
        unit = float(np.median(apart[apart > 0])) if (apart > 0).any() else 1.0
        variance = max(residual**2, LEAST_VARIANCE)
        line = _Line(float(predicted.mean()), slope, OFFSET_VARIANCE, (SLOPE_DOUBT * slope) ** 2 / variance)
        around = line.covariance(predicted, predicted)
        target = times - times.mean() - slope * (predicted - line.centre)

        plain = _Fit.of(around + np.eye(len(rows)), target)
        fits = {
            (length, share): _Fit.of(
                around + share * _kernel(distances, length * unit) + (1 - share) * np.eye(len(rows)), target
            )
            for length in LENGTHS
            for share in SHARES
        }
        (length, share), best = max(fits.items(), key=lambda entry: entry[1].likelihood)
        if best.likelihood <= plain.likelihood or best.left_out_error >= plain.left_out_error:
            logger.debug("%d trials: the correction is no better than the model, which stays as it is", len(rows))
            return Unchanged()
        return _Process(scales, points, predicted, line, length * unit, share, best.weights, float(times.mean()))


@dataclass(frozen=True)
class _Scales:
    """Brings features to one scale."""

    shift: Float64[np.ndarray, " features"]
    scale: Float64[np.ndarray, " features"]

    @classmethod
    def of(cls, rows: Float32[np.ndarray, "trials features"]) -> _Scales:
        """That of some programs; a feature that they share keeps its own, which is logarithmic or a share."""
        values = rows.astype(np.float64)
        spread = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(spread > 1e-6, spread, 1.0))

    def apply(self, rows: Float32[np.ndarray, "programs features"]) -> Float64[np.ndarray, "programs features"]:
        scaled: Float64[np.ndarray, "programs features"] = (rows.astype(np.float64) - self.shift) / self.scale
        return scaled


@dataclass(frozen=True)
class _Line:
    """The model's prediction as the mean of the process, its coefficients not quite known.

    Attributes:
        centre: mean prediction of the trials.
        slope: the expected one.
        offset_variance: of the constant, in units of the residual's.
        slope_variance: of the slope around the expected one, in the same units.
    """

    centre: float
    slope: float
    offset_variance: float
    slope_variance: float

    def covariance(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """What doubt about the coefficients adds to the covariance."""
        product = np.outer(first - self.centre, second - self.centre)
        return np.asarray(self.offset_variance + self.slope_variance * product)


@dataclass(frozen=True)
class _Fit:
    """A process with one covariance.

    Attributes:
        weights: of the trials in every prediction.
        likelihood: logarithm of the marginal one, the overall variance being the most likely.
        left_out_error: mean squared error of each trial, predicted from the others.
    """

    weights: Float64[np.ndarray, " trials"]
    likelihood: float
    left_out_error: float

    @classmethod
    def of(cls, covariance: Float64[np.ndarray, "trials trials"], target: Float64[np.ndarray, " trials"]) -> _Fit:
        count = len(target)
        # the share of noise keeps it well away from singular
        factor = np.linalg.inv(np.linalg.cholesky(covariance))
        inverse = factor.T @ factor
        weights = inverse @ target
        scale = max(float(target @ weights) / count, LEAST_VARIANCE)
        likelihood = -0.5 * count * np.log(scale) + float(np.log(np.diag(factor)).sum())
        return cls(weights, likelihood, float(np.mean((weights / np.diag(inverse)) ** 2)))


@dataclass(frozen=True)
class _Process:
    """The correction that `Refit` learned."""

    scales: _Scales
    points: Float64[np.ndarray, "trials features"]
    predicted: Float64[np.ndarray, " trials"]
    line: _Line
    length: float
    share: float
    weights: Float64[np.ndarray, " trials"]
    mean: float

    def apply(
        self, predicted: Float64[np.ndarray, " programs"], rows: Float32[np.ndarray, "programs features"]
    ) -> Float64[np.ndarray, " programs"]:
        """ln(seconds) as they are to be expected; see `Refit`."""
        corrected = np.full(len(predicted), np.inf)
        known = np.flatnonzero(np.isfinite(predicted))
        distances = _distances(self.scales.apply(rows[known]), self.points)
        covariance = self.line.covariance(predicted[known], self.predicted)
        covariance += self.share * _kernel(distances, self.length)
        expected = self.mean + self.line.slope * (predicted[known] - self.line.centre)
        corrected[known] = expected + covariance @ self.weights
        return corrected


def _distances(first: np.ndarray, second: np.ndarray) -> Float64[np.ndarray, "first second"]:
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1)[None, :] - 2.0 * first @ second.T
    distances: Float64[np.ndarray, "first second"] = np.sqrt(np.maximum(squares, 0.0))
    return distances


def _kernel(distances: Float64[np.ndarray, "first second"], length: float) -> Float64[np.ndarray, "first second"]:
    scaled = np.sqrt(3.0) * distances / length
    kernel: Float64[np.ndarray, "first second"] = (1.0 + scaled) * np.exp(-scaled)
    return kernel


def joined(parts: Sequence[Trials]) -> Trials:
    """The trials of several rounds, in order; at least one."""
    return Trials(*(np.concatenate([getattr(part, name) for part in parts]) for name in Trials.__dataclass_fields__))
