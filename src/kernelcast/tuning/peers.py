"""TVM's own cost models for a comparison: as its tuner uses them, repaired, each with a random state of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kernelcast.measurement.evolution import load_xgboost
from kernelcast.tvm_compat import load_tvm, online_mlp, online_random, online_xgb


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
    return _within(*online_xgb(seed, cores))


def tvm_mlp_model(seed: int, cores: int) -> Any:
    """TVM's `MLPModel`: a network that is trained as trials come, from weights drawn by `seed`.

    Args:
        seed: of its weights and batches.
        cores: threads of torch.
    """
    return _within(*online_mlp(seed, cores))


def random_model(seed: int) -> Any:
    """TVM's `RandomModel`: with it the search mutates and measures at random."""
    return _within(*online_random(seed))


def _within(model: Any, use: _Use) -> Any:
    """The same cost model, used within `use`."""
    load_tvm()
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel

    # asked directly: on a way through C++ an interrupt becomes another error
    inner = model._inst

    @derived_object
    class Peer(PyCostModel):  # type: ignore[misc]
        """Passes everything on."""

        def load(self, path: str) -> None:
            inner.load(path)

        def save(self, path: str) -> None:
            inner.save(path)

        def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
            with use():
                inner.update(context, candidates, results)

        def predict(self, context: Any, candidates: Sequence[Any]) -> Any:
            with use():
                return inner.predict(context, candidates)

    return Peer()
