"""How sure a figure is: bootstrap intervals over programs, workloads and seeds.

Two questions, two ways to resample (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13):

- The model knew the workloads from training. The claim is about *these* workloads, and only which of their programs
  were tested is chance: programs are drawn again within every workload.
- The workloads are new to the model. The claim is about workloads in general: workloads are drawn again, then programs
  within each. With few workloads this interval is wide, and still too narrow: two workloads cannot show how much
  workloads differ.

In both, a model that was trained with several seeds has its seeds drawn again too: the claim is about the way of
training, not about one lucky start. Of r seeds r - 1 are drawn: the mean of r drawn ones would vary by (r - 1) / r of
what the mean over seeds does, which matters where r is 2 or 5 (Rao and Wu, Resampling inference with complex survey
data, Journal of the American Statistical Association 83, 1988, section 2). A single seed shows no such spread, and its
interval does not have it.

A draw with repeats has only 0.63 as many different programs as there are, so its best program, and the best among its
first five, are those of a smaller choice: another task with other scores, whose draws may all lie on one side of the
value. Draws of such metrics are shifted to have the value as their mean: they tell how far it scatters, not where it
is. The tile-size APE of a poor model has a heavy tail, and its interval is still too narrow.

Every model meets the same draws of programs and workloads, so the difference of two models draw by draw is paired.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.evaluation.aggregation import Pooling, pooled
from kernelcast.evaluation.resampling import DrawnPrograms
from kernelcast.evaluation.summary import defined_metrics, noise_gap, workload_rows
from kernelcast.models.protocol import PredictionKind

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs


CHOICE_BOUNDS = {"top_1": (0.0, 1.0), "top_5": (0.0, 1.0), "tile_size_ape": (0.0, np.inf)}
"""Metrics of the best of all programs, and where they lie."""


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
    """A figure and both ends of its bootstrap interval.

    Attributes:
        value: the mean over the seeds, where there are several.
        low: lower end.
        high: upper end.
        seed_deviation: standard deviation over the seeds; None for one seed.
    """

    value: float
    low: float
    high: float
    seed_deviation: float | None = None


@dataclass(frozen=True)
class Replicates:
    """One metric of one model, for every workload that has it.

    Attributes:
        workloads: places of these workloads in `Resampled.workloads`.
        values: of the programs as they are.
        drawn: of every draw.
        bounds: between which the metric lies, where its draws are of another task and have to be shifted; else None.
    """

    workloads: Int64[np.ndarray, "workloads"]
    values: Float64[np.ndarray, "seeds workloads"]
    drawn: Float64[np.ndarray, "seeds workloads samples"]
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Resampled:
    """The test programs of a split, drawn again once for all models.

    Attributes:
        workloads: number, in `Programs.workload_names`, of every workload with programs.
        programs: the draws of each.
        resampling: what is drawn again.
        bootstrap: how.
    """

    workloads: Int64[np.ndarray, "workloads"]
    programs: tuple[DrawnPrograms, ...]
    resampling: Resampling
    bootstrap: Bootstrap
    _chosen: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, programs: Programs, resampling: Resampling, bootstrap: Bootstrap, noise_ratio: float | None = None
    ) -> Resampled:
        """Draws the programs of every workload.

        Args:
            programs: what models are scored on.
            resampling: what the intervals draw again.
            bootstrap: how.
            noise_ratio: times that differ by this factor or less may be noise; None where it is unknown.
        """
        gap = noise_gap(noise_ratio)
        numbers, drawn = [], []
        for number, rows in workload_rows(programs.workload):
            numbers.append(number)
            truth, seed = programs.log_seconds[rows], (bootstrap.seed, number)
            drawn.append(DrawnPrograms.draw(rows, truth, bootstrap.samples, gap, seed))
        return cls(np.array(numbers, dtype=np.int64), tuple(drawn), resampling, bootstrap)

    def replicates(
        self, predicted: Float64[np.ndarray, "seeds programs"], kind: PredictionKind | str
    ) -> dict[str, Replicates]:
        """Every defined metric of every workload, seed and draw, by metric name."""
        places: dict[str, list[int]] = {}
        values: dict[str, list[np.ndarray]] = {}
        drawn: dict[str, list[np.ndarray]] = {}
        for place, programs in enumerate(self.programs):
            defined = defined_metrics(programs.truth, kind, programs.gap)
            of_draws = programs.metrics(predicted, [metric.name for metric in defined])
            for metric in defined:
                places.setdefault(metric.name, []).append(place)
                drawn.setdefault(metric.name, []).append(of_draws[metric.name])
                of_seeds = [metric.function(programs.truth, one[programs.rows]) for one in predicted]
                values.setdefault(metric.name, []).append(np.array(of_seeds))
        return {
            name: Replicates(
                np.array(places[name]),
                np.stack(values[name], axis=1),
                np.stack(drawn[name], axis=1),
                CHOICE_BOUNDS.get(name),
            )
            for name in places
        }

    def pooled(
        self,
        replicates: Replicates,
        pooling: Pooling,
        weights: Float64[np.ndarray, "workloads"],
        stream: int = 0,
    ) -> tuple[Float64[np.ndarray, "seeds"], Float64[np.ndarray, "seeds samples"]]:
        """One figure of several workloads, of every seed, and of every seed and draw.

        Args:
            replicates: of the metric.
            pooling: how workloads become one.
            weights: of the workloads of `replicates`; those of weight 0 are left out, some weight is above 0.
            stream: which draws of workloads; the same for the same figure of every model.
        """
        kept = np.flatnonzero(weights > 0)
        weights = weights[kept]
        drawn = replicates.drawn[:, kept]
        programs = [self.programs[place] for place in replicates.workloads[kept]]
        best = np.stack([one.best_log_seconds for one in programs])
        fastest = np.array([one.truth[0] for one in programs])
        value = pooled(pooling, replicates.values[:, kept], fastest, weights)
        if self.resampling is Resampling.PROGRAMS:
            return value, _shifted(pooled(pooling, np.moveaxis(drawn, 1, 2), best.T, weights), value, replicates.bounds)
        workload, draw = self._drawn_workloads(len(kept), stream)
        # draw by draw and seed by seed: values of (seeds, samples, workloads)
        flat = (workload * self.bootstrap.samples + draw).ravel()
        shape = (len(drawn), *workload.shape)
        again = np.take(drawn.reshape(len(drawn), -1), flat, axis=1).reshape(shape)
        figures = pooled(pooling, again, best.ravel()[flat].reshape(workload.shape), weights[workload])
        return value, _shifted(figures, value, replicates.bounds)

    def _drawn_workloads(self, count: int, stream: int) -> tuple[np.ndarray, np.ndarray]:
        if (count, stream) not in self._chosen:
            self._chosen[count, stream] = workload_draws(count, self.bootstrap, stream)
        return self._chosen[count, stream]

    def over_seeds(
        self, value: Float64[np.ndarray, "seeds"], drawn: Float64[np.ndarray, "seeds samples"], name: str
    ) -> tuple[Estimate, Float64[np.ndarray, "samples"]]:
        """The mean over the seeds with its interval, and the mean of every draw, with the seeds drawn again.

        Args:
            value: of every seed.
            drawn: of every seed and draw.
            name: of the model: seeds of two models have nothing to do with each other, so each model has its own draws.
        """
        shares = seed_shares(len(value), self.bootstrap, name)
        means = np.einsum("rs,sr->s", drawn, shares)
        low, high = np.percentile(means, self.bootstrap.ends)
        deviation = float(np.std(value, ddof=1)) if len(value) > 1 else None
        return Estimate(float(value.mean()), float(low), float(high), deviation), means


def _shifted(
    drawn: Float64[np.ndarray, "seeds samples"],
    value: Float64[np.ndarray, "seeds"],
    bounds: tuple[float, float] | None,
) -> Float64[np.ndarray, "seeds samples"]:
    """The draws with `value` as their mean, within `bounds`; as they are where there are none."""
    if bounds is None:
        return drawn
    return np.clip(drawn + (value - drawn.mean(axis=1))[:, None], *bounds)


def workload_draws(count: int, bootstrap: Bootstrap, stream: int) -> tuple[np.ndarray, np.ndarray]:
    """Which workloads each draw has, and which draw of programs of each.

    Any draw of programs, so that a workload chosen twice brings two independent draws.

    Returns:
        Both int64 of (samples, workloads).
    """
    random = np.random.default_rng([bootstrap.seed, 1, stream])
    shape = (bootstrap.samples, count)
    return random.integers(count, size=shape), random.integers(bootstrap.samples, size=shape)


def seed_shares(seeds: int, bootstrap: Bootstrap, name: str) -> Float64[np.ndarray, "samples seeds"]:
    """Share of every seed in each draw: r - 1 of r seeds are drawn with repeats; a single seed is always there."""
    if seeds == 1:
        return np.ones((bootstrap.samples, 1))
    random = np.random.default_rng([bootstrap.seed, 2, zlib.crc32(name.encode())])
    return random.multinomial(seeds - 1, np.full(seeds, 1 / seeds), size=bootstrap.samples) / (seeds - 1)


def drawn_again(
    replicates: Float64[np.ndarray, "*figures workloads samples"], resampling: Resampling, bootstrap: Bootstrap
) -> Float64[np.ndarray, "*figures workloads samples"]:
    """Figures of each workload and draw, with the workloads drawn again where `resampling` asks for it."""
    if resampling == Resampling.PROGRAMS:
        return replicates
    workload, draw = workload_draws(replicates.shape[-2], bootstrap, 0)
    return np.swapaxes(replicates[..., workload, draw], -1, -2)
