"""TVM's `MLPModel`, the neural cost model of its tuner, as a peer: its own classes trained on our programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float64
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError
from kernelcast.files import read_json, require, write_json
from kernelcast.graphs.programs import Programs
from kernelcast.models.checks import require_version
from kernelcast.models.description import describe, revive
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.setting_checks import require_counts, require_numbers
from kernelcast.models.store_rows import by_workload, require_stores, rows_of_stores, store_groups
from kernelcast.models.torch_runtime import prediction_device, torch_settings
from kernelcast.models.trainer import TrainerSettings
from kernelcast.models.validation import mean_kendall_tau
from kernelcast.tvm_compat import predict_mlp, store_scale, train_mlp

SETTINGS_FILE = "settings.json"
WEIGHTS_FILE = "weights.safetensors"
SCALE = "scale"
"""Name in the file of weights of what the rows are divided by."""


@dataclass(frozen=True)
class TvmMlpSettings:
    """TVM's `SegmentSumMLPConfig` and `TrainerConfig`, as far as they matter for training on a whole data set.

    Attributes:
        width: of the hidden layers.
        epochs: passes over the training programs; the one with the least loss of the validation programs is kept.
        batch_size: programs of a batch.
        learning_rate: of Adam at the start; every tenth of the epochs takes a fifth off.
        weight_decay: of Adam.
        gradient_clip: largest norm of the gradient.

    Raises:
        ConfigError: a value that cannot work.
    """

    width: int
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    gradient_clip: float

    def __post_init__(self) -> None:
        require_counts(self, "width", "epochs", "batch_size")
        require_numbers(self, "learning_rate", "weight_decay", "gradient_clip")

    def training(self) -> dict[str, Any]:
        """The fields of TVM's `TrainerConfig`."""
        return {
            "num_epoch_full": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "grad_clip_norm": self.gradient_clip,
        }


class TvmMlpModel:
    """TVM's MLPModel on the view `per_store`: each store through a network, the sum through another one.

    Args:
        settings: of the network and its training.
        loss: not used: TVM has its own, LambdaRank over whatever programs a batch has.
        trainer: its threads and accelerator; TVM has its own epochs and batches.
        seed: of weights and batches.
    """

    learned = True

    def __init__(self, settings: TvmMlpSettings, loss: Loss | None, trainer: TrainerSettings, seed: int) -> None:
        self._settings = settings
        self._trainer = trainer
        self._seed = seed
        self._inputs = 0
        self._feature_version: str | None = None
        self._weights: dict[str, Any] = {}

    @property
    def kind(self) -> PredictionKind:
        """An order: the loss only compares."""
        return PredictionKind.RANK

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Lets TVM train its network; without validation programs those of training decide which epoch is kept.

        Raises:
            KernelcastError: there is nothing to learn from, or the loss is no longer a number.
            ConfigError: the programs have no view `per_store`.
        """
        require_stores(train)
        train = by_workload(train)
        valid = by_workload(valid) if len(valid) else train
        groups = store_groups(train)
        scale = store_scale(groups)

        def watch(epoch: int, losses: Mapping[str, float], scores: np.ndarray) -> None:
            metrics = {f"{part}/loss": value for part, value in losses.items()}
            metrics["valid/kendall_tau"] = mean_kendall_tau(-scores, valid.log_seconds, valid.workload)
            log.metrics({name: value for name, value in metrics.items() if np.isfinite(value)}, epoch)

        self._inputs = len(scale)
        with torch_settings(self._trainer, self._seed):
            try:
                weights = train_mlp(
                    groups, store_groups(valid), scale, self._network(), self._settings.training(), self._device, watch
                )
            except FileNotFoundError as error:
                raise KernelcastError(
                    "the loss of TVM's MLPModel was no number in any epoch; lower model.settings.learning_rate"
                ) from error
        self._weights, self._feature_version = {**weights, SCALE: torch.from_numpy(scale)}, train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """TVM's scores with a minus sign: lower is faster."""
        require_version(self._feature_version, programs, "TVM's MLPModel")
        weights = {name: value for name, value in self._weights.items() if name != SCALE}
        scale = self._weights[SCALE].numpy()
        with torch_settings(self._trainer, self._seed):
            return -predict_mlp(weights, scale, self._network(), rows_of_stores(programs), self._device)

    def save(self, directory: Path) -> None:
        """Writes settings as JSON and weights as safetensors into an existing folder."""
        if self._feature_version is None:
            raise KernelcastError("TVM's MLPModel has not been fitted: there is nothing to save")
        settings = {
            "settings": describe(self._settings),
            "trainer": describe(self._trainer),
            "seed": self._seed,
            "inputs": self._inputs,
            "feature_version": self._feature_version,
        }
        write_json(directory / SETTINGS_FILE, settings)
        save_file({name: value.contiguous() for name, value in self._weights.items()}, directory / WEIGHTS_FILE)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            MissingInputError: a file is not there.
            MalformedDataError: a file is torn or lacks an entry.
        """
        settings = read_json(directory / SETTINGS_FILE, "train")
        require(directory / WEIGHTS_FILE, "train")
        try:
            model = cls(revive(settings["settings"]), None, revive(settings["trainer"]), settings["seed"])
            model._inputs, model._feature_version = settings["inputs"], settings["feature_version"]
            model._weights = load_file(directory / WEIGHTS_FILE)
            _ = model._weights[SCALE]
        except (ConfigError, KeyError, TypeError, SafetensorError) as error:
            raise MalformedDataError(
                f"{directory} is not a whole saved model ({error}); run `dvc repro train`"
            ) from error
        return model

    @property
    def _device(self) -> str:
        return str(prediction_device(self._trainer))

    def _network(self) -> dict[str, Any]:
        """The fields of TVM's `SegmentSumMLPConfig`."""
        return {"input_dim": self._inputs, "hidden_dim": self._settings.width}
