"""TVM's `MLPModel` trained on given rows: its network, its loss and its training loop.

What is worked around in TVM 0.27:

- `train_full` passes an argument that torch no longer has, divides by a tenth of the epochs, of which 9 have none, and
  leaves a file in the folder for temporary files;
- it holds out a random fifth of the workloads, none of four, and then fails; the programs held out are given here;
- rows are divided by the largest of whatever is loaded together, so that a program's score changes with its company;
  here always by the largest of those trained on;
- a batch of one program fails, since its score loses its only axis.
"""

from __future__ import annotations

import importlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from kernelcast.tvm_compat.loading import load_tvm
from kernelcast.tvm_compat.store_groups import StoreGroup, WatchEpoch, filled_groups

MODULE = "tvm.s_tir.meta_schedule.cost_model.mlp_model"
LOGGER = "mlp_model"


def store_scale(groups: Sequence[StoreGroup]) -> Float32[np.ndarray, "features"]:
    """What TVM divides the rows by: the largest of each column, 1 where that is 0."""
    largest = np.max([rows.max(axis=0) for group in filled_groups(groups) for rows in group.rows], axis=0)
    return np.where(largest == 0, 1, largest).astype(np.float32)


def train_mlp(
    groups: Sequence[StoreGroup],
    held_out: Sequence[StoreGroup],
    scale: Float32[np.ndarray, "features"],
    network: Mapping[str, Any],
    training: Mapping[str, Any],
    device: str,
    watch: WatchEpoch,
) -> dict[str, Any]:
    """The weights that TVM trains, of the epoch with the least loss of the programs held out.

    Args:
        groups: the programs to learn from, workload by workload.
        held_out: those that decide which epoch is kept.
        scale: see `store_scale`.
        network: fields of TVM's `SegmentSumMLPConfig`.
        training: fields of TVM's `TrainerConfig`.
        device: of torch.
        watch: gets the losses of every epoch, and the scores of the programs held out, in their order.

    Raises:
        FileNotFoundError: no epoch had a loss that is a number.
    """
    module = load_module()
    state = module.State(module.SegmentSumMLPConfig(**network))
    state.model = score_network(module, network)
    keys = [f"held out {number}" for number in range(len(held_out))]
    for number, group in enumerate(filled_groups(groups)):
        state.add_to_group(group.rows, group.run_seconds, f"train {number}")
    for key, group in zip(keys, held_out, strict=True):
        state.add_to_group(group.rows, group.run_seconds, key)
    trainer = _watched_trainer(module, sum(len(group.rows) for group in held_out), watch)(
        module.TrainerConfig(**training), state
    )
    trainer.device = device
    with repaired(module, scale, keys):
        trainer.train_full()
    weights: dict[str, Any] = state.model.state_dict()
    return weights


def predict_mlp(
    weights: Mapping[str, Any],
    scale: Float32[np.ndarray, "features"],
    network: Mapping[str, Any],
    rows: Sequence[Float32[np.ndarray, "stores features"]],
    device: str,
) -> Float64[np.ndarray, "programs"]:
    """TVM's score of every program, higher is faster."""
    if not rows:
        return np.zeros(0, dtype=np.float64)
    module = load_module()
    state = module.State(module.SegmentSumMLPConfig(**network))
    state.model = score_network(module, network)
    state.model.load_state_dict(dict(weights))
    trainer = module.SegmentSumMLPTrainer(module.TrainerConfig(), state)
    trainer.device = device
    with repaired(module, scale, []), module.torch.no_grad():
        return np.asarray(trainer.predict_incremental(list(rows)), dtype=np.float64)


def load_module() -> Any:
    """TVM's module of the model."""
    # TVM's module needs torch, and `load_tvm` hides it where it has not been imported
    importlib.import_module("torch")
    load_tvm()
    return importlib.import_module(MODULE)


def score_network(module: Any, settings: Mapping[str, Any]) -> Any:
    """The network with fields of TVM's `SegmentSumMLPConfig`."""

    class Network(module.SegmentSumMLP):  # type: ignore[misc]
        """TVM's, with one score a program also where there is one program."""

        def forward(self, segment_sizes: Any, features: Any) -> Any:
            return super().forward(segment_sizes, features).reshape(-1)

    return Network(**settings)


def _watched_trainer(module: Any, held_out: int, watch: WatchEpoch) -> Any:
    class Trainer(module.SegmentSumMLPTrainer):  # type: ignore[misc]
        """TVM's, which tells how each epoch went."""

        epoch = 0
        train_loss = 0.0

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.scores: list[np.ndarray] = []
            self.losses: list[float] = []

        def train_step(self, data: Any, batch: int = 0, train_loss: float | None = None) -> float:
            self.train_loss = super().train_step(data, batch, train_loss)
            return self.train_loss

        def predict_step(self, data: Any) -> Any:
            scores, loss, tops = super().predict_step(data)
            self.scores.append(scores)
            self.losses.append(loss)
            if sum(map(len, self.scores)) == held_out:
                losses = {"train": self.train_loss, "valid": float(np.mean(self.losses))}
                watch(self.epoch, losses, np.concatenate(self.scores).astype(np.float64))
                self.epoch, self.scores, self.losses = self.epoch + 1, [], []
            return scores, loss, tops

    return Trainer


@contextmanager
def repaired(module: Any, scale: Float32[np.ndarray, "features"] | None, held_out: Sequence[str]) -> Iterator[None]:
    """Within, TVM's module works as the text above says; without a `scale` rows are divided as TVM does it."""
    torch, schedules = module.torch, module.torch.optim.lr_scheduler
    step_schedule = schedules.StepLR
    talker = logging.getLogger(LOGGER)
    level = talker.level

    class Loader(module.SegmentDataLoader):  # type: ignore[misc]
        """TVM's, which divides by `scale` whatever is loaded."""

        def __init__(self, features: Any, *arguments: Any, **named: Any) -> None:
            super().__init__(features, *arguments, **named)
            self.features = torch.from_numpy(np.concatenate(features) / scale)

    def schedule(optimizer: Any, step_size: int, gamma: float, verbose: bool) -> Any:
        return step_schedule(optimizer, step_size=max(step_size, 1), gamma=gamma)

    with tempfile.TemporaryDirectory() as folder:
        weights = SimpleNamespace(name=str(Path(folder, "weights.pt")))
        replaced = {
            (schedules, "StepLR"): schedule,
            (module, "SegmentDataLoader"): Loader,
            (module, "random"): SimpleNamespace(sample=lambda keys, k: list(held_out)),
            (module, "tempfile"): SimpleNamespace(NamedTemporaryFile=lambda: weights),
        }
        if scale is None:
            del replaced[module, "SegmentDataLoader"]
        before = {place: getattr(*place) for place in replaced}
        try:
            talker.setLevel(logging.WARNING)
            for place, value in replaced.items():
                setattr(*place, value)
            yield
        finally:
            for place, value in before.items():
                setattr(*place, value)
            talker.setLevel(level)
