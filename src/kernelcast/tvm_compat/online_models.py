"""TVM's own cost models as its tuner uses them, with what has to be repaired so that they work.

- `XGBModel` and `RandomModel` draw from NumPy's global generator, and `MLPModel` from torch's: here each has a state of
  its own, so that equal seeds search alike whatever else a process does.
- `XGBModel` fails where the last candidate of a batch stores nothing.
- `MLPModel`: see `mlp_model`. TVM holds out a fifth of the workloads, which is none of four, and then fails: here a
  fifth of the programs of each.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelcast.tvm_compat.loading import load_tvm
from kernelcast.tvm_compat.mlp_model import load_module, repaired, score_network
from kernelcast.tvm_compat.xgb_model import MODULE as XGB_MODULE

HELD_OUT = 5
"""One in so many programs decides which epoch of `MLPModel` is kept."""


class NumpyState:
    """A state of NumPy's global generator that comes back at every use."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed).get_state()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Within, the global generator is this one."""
        before = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._state)  # noqa: NPY002
        try:
            yield
        finally:
            self._state = np.random.get_state()  # noqa: NPY002
            np.random.set_state(before)  # noqa: NPY002


class TorchState:
    """A state of torch's generator on the processor that comes back at every use, and a number of threads."""

    def __init__(self, torch: Any, seed: int, cores: int) -> None:
        self._torch = torch
        self._cores = cores
        self._state = torch.Generator().manual_seed(seed).get_state()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Within, the generator is this one."""
        before, threads = self._torch.get_rng_state(), self._torch.get_num_threads()
        self._torch.set_rng_state(self._state)
        self._torch.set_num_threads(self._cores)
        try:
            yield
        finally:
            self._state = self._torch.get_rng_state()
            self._torch.set_rng_state(before)
            self._torch.set_num_threads(threads)


def online_random(seed: int) -> tuple[Any, NumpyState]:
    """TVM's `RandomModel`, and what to use it within."""
    load_tvm()
    state = NumpyState(seed)
    with state():
        model = importlib.import_module("tvm.s_tir.meta_schedule.cost_model").RandomModel(seed=seed)
    return model, state


def online_xgb(seed: int, cores: int) -> tuple[Any, NumpyState]:
    """TVM's `XGBModel` with its default settings, and what to use it within.

    Args:
        seed: of XGBoost, and of the random scores before there are 100 trials.
        cores: threads of XGBoost.
    """
    load_tvm()
    module = importlib.import_module(XGB_MODULE)
    utils = importlib.import_module("tvm.ir.utils")

    class Repaired(module.XGBModel._cls):  # type: ignore[misc, name-defined, unused-ignore]
        """TVM's, which gives programs that store nothing the score 0."""

        def _predict(self, xs: list[np.ndarray]) -> np.ndarray:
            filled = [place for place, rows in enumerate(xs) if len(rows)]
            scores = np.zeros(len(xs), dtype=np.float64)
            if filled:
                scores[filled] = super()._predict([xs[place] for place in filled])
            return scores

    model = utils.derived_object(Repaired)(config=module.XGBConfig(seed=seed, nthread=cores), verbose_eval=0)
    return model, NumpyState(seed)


def online_mlp(seed: int, cores: int) -> tuple[Any, TorchState]:
    """TVM's `MLPModel` with its default settings, on the processor, and what to use it within.

    Args:
        seed: of the weights and the batches.
        cores: threads of torch.
    """
    module = load_module()
    state = TorchState(module.torch, seed, cores)

    class Trainer(module.SegmentSumMLPTrainer):  # type: ignore[misc, name-defined, unused-ignore]
        """TVM's, which holds out programs of every workload."""

        def train_full(self) -> None:
            every = self.state.data
            parts: OrderedDict[str, Any] = OrderedDict()
            held_out = []
            for key, group in every.items():
                last = np.arange(len(group.features)) % HELD_OUT == HELD_OUT - 1
                for name, rows in ((key, ~last), (f"{key} held out", last)):
                    if rows.any():
                        features = [group.features[row] for row in np.flatnonzero(rows)]
                        parts[name] = module.FeatureGroup(name, features, group.costs[rows])
                if last.any():
                    held_out.append(f"{key} held out")
            if not held_out:
                return
            self.state.data = parts
            try:
                with repaired(module, None, held_out):
                    super().train_full()
            finally:
                self.state.data = every

    with state():
        config = module.SegmentSumMLPConfig()
        trainer = Trainer(module.TrainerConfig(), module.State(config))
        trainer.state.model = score_network(module, config.to_dict())
    trainer.device = "cpu"
    return module.MLPModel(trainer=trainer), state
