"""TVM's own cost models for a comparison: as its tuner uses them, repaired, and watched in the same way as ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np

from kernelcast.measurement.evolution import load_xgboost
from kernelcast.tvm_compat import load_tvm, online_mlp, online_random, online_xgb, structural_key


class _Use(Protocol):
    def __call__(self) -> AbstractContextManager[None]:
        """What each use of a model happens within."""


def tvm_xgb_model(seed: int, cores: int) -> Any:
    """TVM's `XGBModel`: random before 100 trials, then trees that are grown anew as trials come.

    Args:
        seed: of its random scores and of XGBoost.
        cores: threads of XGBoost.
    """
    load_xgboost()
    return _watched(*online_xgb(seed, cores))


def tvm_mlp_model(seed: int, cores: int) -> Any:
    """TVM's `MLPModel`: a network that is trained as trials come, from weights drawn by `seed`.

    Args:
        seed: of its weights and batches.
        cores: threads of torch.
    """
    return _watched(*online_mlp(seed, cores))


def random_model(seed: int) -> Any:
    """TVM's `RandomModel`: with it the search mutates and measures at random."""
    return _watched(*online_random(seed))


def _watched(model: Any, use: _Use) -> Any:
    """The same cost model with `seconds` and `score_of`; see `cost_model.tvm_cost_model`."""
    load_tvm()
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel

    @derived_object
    class WatchedModel(PyCostModel):  # type: ignore[misc]
        """Passes everything on."""

        def __init__(self) -> None:
            super().__init__()
            self.seconds = 0.0
            self._scores: dict[str, dict[str, float]] = {}
            self._over: set[str] = set()

        def load(self, path: str) -> None:
            model.load(path)

        def save(self, path: str) -> None:
            model.save(path)

        def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
            with self._clock():
                model.update(context, candidates, results)
            self._over.add(structural_key(context.mod))

        def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
            with self._clock():
                scores: np.ndarray = model.predict(context, candidates)
            # not its own work, and so outside its time
            key = structural_key(context.mod)
            if key in self._over:
                self._over.remove(key)
                self._scores[key] = {}
            keys = [structural_key(candidate.sch.mod) for candidate in candidates]
            self._scores.setdefault(key, {}).update(zip(keys, scores.tolist(), strict=True))
            return scores

        def score_of(self, candidate: Any) -> float | None:
            key = structural_key(candidate.sch.mod)
            found = (scores.get(key) for scores in self._scores.values())
            return next((score for score in found if score is not None), None)

        @contextmanager
        def _clock(self) -> Iterator[None]:
            started = time.perf_counter()
            try:
                with use():
                    yield
            finally:
                self.seconds += time.perf_counter() - started

    return WatchedModel()
