"""TVM's `XGBModel` trained on given rows: its objective, its training loop and its prediction.

What is worked around: it takes tuning candidates only, so what takes rows is called inside it; it stops
by its training error, which falls for thousands of rounds, so who calls may end it; it gives each program the sum over
its rows and fails where the last program has none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from kernelcast.tvm_compat.loading import load_tvm
from kernelcast.tvm_compat.store_groups import StoreGroup, filled_groups

MODULE = "tvm.s_tir.meta_schedule.cost_model.xgb_model"


def train_xgb(
    groups: Sequence[StoreGroup],
    config: Mapping[str, Any],
    early_stopping_rounds: int,
    ends: Callable[[Any, int], bool],
) -> Any:
    """The booster that TVM trains: each program's label is the least time of its group over its own.

    Args:
        groups: the programs, workload by workload.
        config: fields of TVM's `XGBConfig`.
        early_stopping_rounds: rounds without a smaller training error before TVM stops.
        ends: called with the booster and the number of each round (from 0); True stops too.
    """
    module = _module()
    model = module.XGBModel(
        config=module.XGBConfig(**config), early_stopping_rounds=early_stopping_rounds, verbose_eval=0
    )
    kept = filled_groups(groups)
    rows = [one for group in kept for one in group.rows]
    # as `XGBModel.update` makes them
    ratios = np.concatenate([group.run_seconds.min() / group.run_seconds for group in kept])
    with _watched(module, ends):
        model._train(xs=rows, ys=ratios)
    return model.booster


class StoreRows:
    """Programs whose scores are wanted, once or after every round; XGBoost then only adds the new tree.

    Args:
        rows: TVM's features of every store of each program.
    """

    def __init__(self, rows: Sequence[Float32[np.ndarray, "stores features"]]) -> None:
        self._count = len(rows)
        self._filled = [place for place, one in enumerate(rows) if len(one)]
        self._packed = _module().PackSum(xs=[rows[place] for place in self._filled], ys=None) if self._filled else None

    def scores(self, booster: Any) -> Float64[np.ndarray, "programs"]:
        """TVM's score of every program, higher is faster; 0 where it stores nothing."""
        scores = np.zeros(self._count, dtype=np.float64)
        if self._packed is not None:
            # what `XGBModel._predict` does
            scores[self._filled] = self._packed.predict_with_score(booster.predict(self._packed.dmatrix))
        return scores


@contextmanager
def _watched(module: Any, ends: Callable[[Any, int], bool]) -> Iterator[None]:
    """Within, TVM's callback of each round also asks `ends`."""
    name = "_get_custom_call_back"
    make = getattr(module, name)

    def made(**arguments: Any) -> Any:
        callback = make(**arguments)
        after = callback.after_iteration

        def after_iteration(model: Any, epoch: int, evals_log: Any) -> bool:
            # both are asked in every round
            stops, ended = after(model, epoch, evals_log), ends(model, epoch)
            return stops or ended

        callback.after_iteration = after_iteration
        return callback

    setattr(module, name, made)
    try:
        yield
    finally:
        setattr(module, name, make)


def _module() -> Any:
    load_tvm()
    return importlib.import_module(MODULE)
