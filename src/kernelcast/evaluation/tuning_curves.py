"""Best-so-far curves of tunings: against trials and against wall time, with median and quartile band over the seeds.

What is drawn is a speed: the best time that anyone found over the best time so far, 0 before a program ran, 1 at the
end of the best search. Over several workloads it is the geometric mean, and so 0 until each of them has a program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from jaxtyping import Float64, Int64

from kernelcast.errors import MalformedDataError

WALL_POINTS = 200
"""Points of a curve against wall time."""


@dataclass(frozen=True)
class Run:
    """One tuning of one thing, a workload alone or a whole network, by one method with one seed.

    Attributes:
        method: what chose the programs.
        seed: of the search.
        subject: key of the workload, or name of the network.
        name: what the user calls it.
        best_seconds: best time so far after each trial; of a network the times of its workloads, weighted and added.
            Infinite before there is one.
        wall_seconds: when the batch of each trial had ended, counted over the batches of this subject.
        model_seconds: inside the cost model, over all batches.
    """

    method: str
    seed: int
    subject: str
    name: str
    best_seconds: Float64[np.ndarray, "trials"]
    wall_seconds: Float64[np.ndarray, "trials"]
    model_seconds: float

    def __len__(self) -> int:
        return len(self.best_seconds)

    def after_trials(self, trials: Int64[np.ndarray, "points"]) -> Float64[np.ndarray, "points"]:
        """Best time after so many trials, at least 1; the last one where the tuning had ended."""
        return self.best_seconds[np.minimum(trials, len(self)) - 1]

    def after_seconds(self, seconds: Float64[np.ndarray, "points"]) -> Float64[np.ndarray, "points"]:
        """Best time after so much wall time; infinite before the first batch ended, the last one after the end."""
        ended = np.searchsorted(self.wall_seconds, seconds, side="right")
        return np.concatenate([[np.inf], self.best_seconds])[ended]

    def first_at(self, seconds: float) -> int | None:
        """The trial, from 0, whose program was the first as fast as `seconds`; None where none was."""
        reached = self.best_seconds <= seconds
        return int(np.argmax(reached)) if reached.any() else None


NUMBERS = ("trial", "round", "weight", "run_seconds", "search_seconds", "measure_seconds", "model_seconds")
"""Columns of `TRIALS_SCHEMA` that make a curve."""


def runs_of(trials: pa.Table) -> list[Run]:
    """The tunings of a table of `TRIALS_SCHEMA`, in the order of their first rows; rows may be those of many tables.

    The wall time of a subject is that of its own batches, search and measuring: in a table of many workloads, those
    that were tuned before do not count. A network has no time until each workload that any tuning of it met has one.
    """
    numbers = {name: np.asarray(trials[name].to_numpy(), dtype=np.float64) for name in NUMBERS}
    names = ("method", "seed", "network", "workload_key", "workload_name")
    texts = {name: trials[name].to_pylist() for name in names}
    groups: dict[tuple[str, int, str, str], list[int]] = {}
    tasks: dict[tuple[str, str], dict[str, float]] = {}
    for row, (method, seed, network, key) in enumerate(zip(*(texts[name] for name in names[:4]), strict=True)):
        # a network is one subject, whatever its workloads
        subject = (network, "" if network else key)
        groups.setdefault((method, seed, *subject), []).append(row)
        tasks.setdefault(subject, {})[key] = float(numbers["weight"][row])
    keys = np.asarray(texts["workload_key"], dtype=object)
    runs = []
    for (method, seed, network, key), listed in groups.items():
        rows = np.array(listed, dtype=np.int64)
        rows = rows[np.argsort(numbers["trial"][rows], kind="stable")]
        part = {name: values[rows] for name, values in numbers.items()}
        # every row of a batch has the seconds of the batch
        begins = np.concatenate([[True], np.diff(part["round"]) != 0])
        ended = np.cumsum((part["search_seconds"] + part["measure_seconds"])[begins])
        runs.append(
            Run(
                method=method,
                seed=seed,
                subject=network or key,
                name=network or texts["workload_name"][listed[0]],
                best_seconds=_best_so_far(part["run_seconds"], keys[rows], tasks[network, key]),
                wall_seconds=ended[np.cumsum(begins) - 1],
                model_seconds=float(part["model_seconds"][begins].sum()),
            )
        )
    return runs


def _best_so_far(
    seconds: Float64[np.ndarray, "trials"], keys: np.ndarray, weights: Mapping[str, float]
) -> Float64[np.ndarray, "trials"]:
    """Best time so far after each trial; of several workloads those of each, weighted and added.

    Args:
        seconds: of each trial; NaN where it failed.
        keys: the workload of each.
        weights: of every workload of the subject.
    """
    seconds = np.where(np.isnan(seconds), np.inf, seconds)
    if len(weights) == 1:
        return np.minimum.accumulate(seconds)
    own = np.array([keys == key for key in weights])
    best = np.minimum.accumulate(np.where(own, seconds, np.inf), axis=1)
    return np.asarray(list(weights.values())) @ best


@dataclass(frozen=True)
class Band:
    """A curve over seeds.

    Attributes:
        x: trials, or seconds.
        low: first quartile over the seeds.
        median: of the seeds.
        high: third quartile.
    """

    x: Float64[np.ndarray, "points"]
    low: Float64[np.ndarray, "points"]
    median: Float64[np.ndarray, "points"]
    high: Float64[np.ndarray, "points"]

    @classmethod
    def over_seeds(cls, x: Float64[np.ndarray, "points"], values: Float64[np.ndarray, "seeds points"]) -> Band:
        """Median and quartiles of the seeds, linear between neighbours."""
        return cls(x, *np.quantile(values, (0.25, 0.5, 0.75), axis=0))

    def corners(self) -> Band:
        """The same steps by as few points as they need: where the curve changes, and its end."""
        values = np.stack([self.low, self.median, self.high])
        changes = np.concatenate([[True], (np.diff(values) != 0).any(axis=0)])
        changes[-1] = True
        return Band(self.x[changes], *values[:, changes])


@dataclass(frozen=True)
class Tunings:
    """Tunings of the same subjects by several methods, so that they can be compared.

    Attributes:
        runs: by method, seed and subject; every method has every subject with each of its seeds.
        seeds: of every method, the methods in the order in which they came.
        subjects: what all of them tuned: name by key.
        left_out: names of what only some of them tuned, or nobody found a program for.
        best_known: best time that anyone found, by key.
    """

    runs: Mapping[tuple[str, int, str], Run]
    seeds: Mapping[str, tuple[int, ...]]
    subjects: Mapping[str, str]
    left_out: tuple[str, ...]
    best_known: Mapping[str, float]

    @classmethod
    def of(cls, trials: pa.Table) -> Tunings:
        """The tunings of a table of `TRIALS_SCHEMA`.

        Raises:
            MalformedDataError: there is nothing that every method tuned with each of its seeds.
        """
        runs = {(run.method, run.seed, run.subject): run for run in runs_of(trials)}
        names = {run.subject: run.name for run in runs.values()}
        seeds: dict[str, tuple[int, ...]] = {}
        for method, seed, _ in runs:
            seeds[method] = tuple(sorted({*seeds.get(method, ()), seed}))
        best = {
            subject: min(float(run.best_seconds[-1]) for run in runs.values() if run.subject == subject)
            for subject in names
        }
        shared = {
            subject: name
            for subject, name in names.items()
            if np.isfinite(best[subject])
            and all((method, seed, subject) in runs for method in seeds for seed in seeds[method])
        }
        if not shared:
            raise MalformedDataError(
                "the trials have no workload, or network, that every method tuned with each of its seeds and found a "
                "program for, so nothing can be compared; let all tunings end"
            )
        return cls(
            runs={key: run for key, run in runs.items() if key[2] in shared},
            seeds=seeds,
            subjects=shared,
            left_out=tuple(name for subject, name in names.items() if subject not in shared),
            best_known={subject: best[subject] for subject in shared},
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """In the order in which they came."""
        return tuple(self.seeds)

    @cached_property
    def budget(self) -> int:
        """Trials of the longest tuning."""
        return max(len(run) for run in self.runs.values())

    def of_method(self, method: str, subjects: Sequence[str] | None = None) -> list[list[Run]]:
        """The runs of one method on `subjects`, on all by default: a list a seed, in their order."""
        keys = self.subjects if subjects is None else subjects
        return [[self.runs[method, seed, subject] for subject in keys] for seed in self.seeds[method]]

    def speeds(
        self, method: str, subjects: Sequence[str] | None = None
    ) -> Float64[np.ndarray, "seeds subjects trials"]:
        """Best time known over best time so far, after 1, 2, ... trials; the last one where a tuning had ended."""
        grid = np.arange(1, self.budget + 1)
        return np.array(
            [
                [self.best_known[run.subject] / run.after_trials(grid) for run in of_seed]
                for of_seed in self.of_method(method, subjects)
            ]
        )

    def trials_band(self, method: str, subjects: Sequence[str] | None = None) -> Band:
        """Speed against trials.

        Args:
            method: whose.
            subjects: keys of those whose geometric mean is taken; of all by default.
        """
        grid = np.arange(1, self.budget + 1, dtype=np.float64)
        return Band.over_seeds(grid, geometric_mean(self.speeds(method, subjects)))

    def wall_band(self, method: str, subjects: Sequence[str] | None = None) -> Band:
        """Speed against wall seconds of each subject, at evenly spread logarithms, the same for every method.

        Args: as of `trials_band`.
        """
        keys = self.subjects if subjects is None else subjects
        ends = [run.wall_seconds for run in self.runs.values() if run.subject in keys]
        grid = np.geomspace(min(end[0] for end in ends), max(end[-1] for end in ends), WALL_POINTS)
        # rounding must not put the last point before the batch that ended there
        grid[-1] = max(end[-1] for end in ends)
        speeds = [
            [self.best_known[run.subject] / run.after_seconds(grid) for run in of_seed]
            for of_seed in self.of_method(method, subjects)
        ]
        return Band.over_seeds(grid, geometric_mean(np.array(speeds)))


def geometric_mean(speeds: Float64[np.ndarray, "seeds subjects points"]) -> Float64[np.ndarray, "seeds points"]:
    """Geometric mean over the subjects; 0 where one of them is 0."""
    with np.errstate(divide="ignore"):
        return np.exp(np.log(speeds).mean(axis=1))
