"""Replay: searches on fully measured spaces, with no hardware, to compare what guides them.

A search takes programs in rounds: those that its guide scores best among the untried, and for a share epsilon of each
round random ones, as TVM's evolutionary search picks what it measures. Their times are known; the guide learns from
them if it learns, and so on until the budget or the space is spent.

Every column of the trials but the seconds is decided by the seed. Seconds of building and timing are those that were
recorded when it was real. Seconds of search and model are measured here: those of scoring the whole space, of learning
and of choosing. Views are made beforehand, and making them counts for no method.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float64, Int64

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.trials import trials_table
from kernelcast.tuning.replay_guides import Guide, MakeGuide
from kernelcast.tuning.replay_space import MeasuredSpace

GUIDING, CHOOSING, FAILING = 1, 2, 3
"""Streams of random numbers: the guide's, those of the rounds, those that stand in for scores of failures."""


@dataclass(frozen=True)
class ReplaySettings:
    """How a replay searches.

    Attributes:
        trials: programs to measure in each space; all of it where it has fewer.
        trials_per_round: programs between two looks at the guide.
        exploration: share of each round that is chosen at random; what is no whole number of programs is made up for
            over the rounds.

    Raises:
        ConfigError: a value that cannot work.
    """

    trials: int
    trials_per_round: int
    exploration: float = 0.05

    def __post_init__(self) -> None:
        for name in ("trials", "trials_per_round"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"replay: {name}={value!r} must be a whole number of at least 1")
        if not 0 <= self.exploration <= 1:
            raise ConfigError(f"replay: exploration={self.exploration!r} must be a share, 0 to 1")


def replay_all(
    spaces: Sequence[MeasuredSpace],
    guides: Mapping[str, MakeGuide],
    settings: ReplaySettings,
    seeds: Sequence[int],
) -> pa.Table:
    """Every method on every space with every seed.

    A method and seed is one tuning of all spaces, one after the other: trials, rounds and elapsed seconds go on.

    Args:
        spaces: what is searched.
        guides: makes what guides the search, by the name of the method.
        settings: how it searches.
        seeds: of the searches.

    Returns:
        A table of `TRIALS_SCHEMA`.

    Raises:
        ConfigError: there is no space.
        KernelcastError: a guide gave a score that is no number.
    """
    if not spaces:
        raise ConfigError("replay: no workload has two programs that ran; measure more, or take another data set")
    rows: list[dict[str, Any]] = []
    for method, guide_of in guides.items():
        for seed in seeds:
            tuning: list[dict[str, Any]] = []
            for space in spaces:
                tuning += replay(space, method, guide_of, settings, seed, tuning[-1] if tuning else None)
            rows += tuning
    return trials_table(rows)


def replay(
    space: MeasuredSpace,
    method: str,
    guide_of: MakeGuide,
    settings: ReplaySettings,
    seed: int,
    after: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """One search on one space: a row of `TRIALS_SCHEMA` for every trial.

    Args:
        space: what is searched.
        method: its name in the rows.
        guide_of: makes what guides it.
        settings: how it searches.
        seed: of the search.
        after: the last trial of the same tuning, of another space; numbers go on from it.

    Raises:
        KernelcastError: the guide gave a score that is no number.
    """
    trial, number, elapsed = (0, 0, 0.0) if after is None else _next(after)
    search = _Search(space, method, guide_of, settings, seed)
    rows: list[dict[str, Any]] = []
    while len(chosen := search.round()):
        measuring = float(space.measure_seconds[chosen].sum())
        elapsed += search.search_seconds + measuring
        for row in chosen.tolist():
            ran = row < space.ran
            rows.append(
                {
                    "method": method,
                    "seed": seed,
                    "network": "",
                    "workload_key": space.workload_key,
                    "workload_name": space.workload_name,
                    "weight": 1,
                    "trial": trial + len(rows),
                    "round": number,
                    "program_key": str(space.program_key[row]),
                    "outcome": str(space.outcome[row]),
                    "score": float(search.scores[row]) if ran else None,
                    "run_seconds": float(space.run_seconds[row]) if ran else None,
                    "search_seconds": search.search_seconds,
                    "model_seconds": search.model_seconds,
                    "measure_seconds": measuring,
                    "elapsed_seconds": elapsed,
                }
            )
        number += 1
    return rows


def _next(last: Mapping[str, Any]) -> tuple[int, int, float]:
    return last["trial"] + 1, last["round"] + 1, last["elapsed_seconds"]


class _Search:
    """One search: what was tried, and what the guide says of the rest."""

    def __init__(
        self, space: MeasuredSpace, method: str, guide_of: MakeGuide, settings: ReplaySettings, seed: int
    ) -> None:
        self._space, self._method, self._settings = space, method, settings
        self._guide_of, self._guide_seed = guide_of, int(space.random(seed, GUIDING).integers(2**31))
        self._random = space.random(seed, CHOOSING)
        # a failure has no views, so no model scored it: it takes the place that another program of the space would
        # have, the same in every round, and the search meets as many failures as chance brings it
        self._places = space.random(seed, FAILING).random(len(space) - space.ran)
        self._ties = self._random.random(len(space))
        self._tried = np.zeros(len(space), dtype=np.bool_)
        self._order: list[int] = []
        self._guide: Guide | None = None
        self._scored: Float64[np.ndarray, " space"] = np.zeros(len(space))
        self.search_seconds = self.model_seconds = 0.0

    @property
    def scores(self) -> Float64[np.ndarray, " space"]:
        """What the programs were chosen by, higher is faster; of failures a stand-in."""
        return self._scored

    def round(self) -> Int64[np.ndarray, " round"]:
        """The next programs to measure, in their order; none when the budget or the space is spent."""
        wanted = min(
            self._settings.trials_per_round,
            self._settings.trials - len(self._order),
            len(self._space) - len(self._order),
        )
        if wanted <= 0:
            return np.zeros(0, dtype=np.int64)
        started = time.perf_counter()
        self._ask()
        self.model_seconds = time.perf_counter() - started
        chosen = picked(self._scored, self._ties, self._tried, wanted, self._settings.exploration, self._random)
        self.search_seconds = time.perf_counter() - started
        self._tried[chosen] = True
        self._order += chosen.tolist()
        return chosen

    def _ask(self) -> None:
        """Lets the guide learn from what was measured, and scores the space where that changed anything."""
        if self._guide is None:
            self._guide = self._guide_of(self._space.programs, self._guide_seed)
        else:
            rows = np.array(self._order, dtype=np.int64)
            rows = rows[rows < self._space.ran]
            if not len(rows) or not self._guide.learn(rows, np.log(self._space.run_seconds[rows])):
                return
        scores = np.asarray(self._guide.scores(), dtype=np.float64)
        if not np.isfinite(scores).all():
            raise KernelcastError(
                f"replay: {self._method} scores {np.count_nonzero(~np.isfinite(scores))} of {len(scores)} programs of "
                f"{self._space.workload_name} with no finite number; train it anew, or leave the method out"
            )
        stand_ins = np.quantile(scores, self._places, method="nearest")
        self._scored = np.concatenate([scores, stand_ins])


def picked(
    scores: Float64[np.ndarray, " space"],
    ties: Float64[np.ndarray, " space"],
    tried: Bool[np.ndarray, " space"],
    wanted: int,
    exploration: float,
    random: np.random.Generator,
) -> Int64[np.ndarray, " wanted"]:
    """The untried programs of the best scores, best first, then random ones of the others.

    Args:
        scores: of all programs, higher is better.
        ties: decides between equal scores, lower first.
        tried: which programs are left out.
        wanted: how many; so many are untried.
        exploration: share of random ones in the mean over the rounds.
        random: rounds `wanted * exploration` up or down, and chooses.
    """
    explored = min(wanted, math.floor(wanted * exploration + random.random()))
    untried = np.flatnonzero(~tried)
    ranked = untried[np.lexsort((ties[untried], -scores[untried]))]
    best, rest = ranked[: wanted - explored], ranked[wanted - explored :]
    return np.concatenate([best, random.choice(rest, explored, replace=False)]).astype(np.int64)
