"""A neural network over program graphs as a cost model; which network is the configuration's choice."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import asdict
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
from kernelcast.graphs.views import ESTIMATES
from kernelcast.models.batching import SequentialBatches, moments
from kernelcast.models.checks import require_learnable, require_version
from kernelcast.models.description import (
    describe,
    describe_factory,
    resolve_class,
    revive,
    revive_factory,
    saved_value,
)
from kernelcast.models.estimate_table import ESTIMATE_VERSION, require_estimate_version, with_estimates
from kernelcast.models.losses import Loss
from kernelcast.models.networks.network import Network
from kernelcast.models.networks.widths import SMALLEST, ViewWidths, widths_of
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.resuming import identity_of
from kernelcast.models.torch_runtime import prediction_device, torch_settings
from kernelcast.models.trainer import TrainerSettings
from kernelcast.models.training import TrainingJob, train_network

logger = logging.getLogger(__name__)

SETTINGS_FILE = "settings.json"
WEIGHTS_FILE = "weights.safetensors"


class NeuralModel:
    """Trains a network and predicts with it.

    Args:
        network: makes the network from `widths`, which are known once the data are.
        loss: what it minimises; it decides what the predictions mean.
        trainer: schedule, batches, device.
        seed: of weights, batches and dropout; equal seeds give equal models on a CPU.

    Raises:
        ConfigError: settings of the network that cannot work.
    """

    learned = True

    def __init__(self, network: Callable[..., Network], loss: Loss, trainer: TrainerSettings, seed: int) -> None:
        self._description, self._make_network = _checked_factory(network)
        self._loss = loss
        self._trainer = trainer
        self._seed = seed
        self._widths: dict[str, ViewWidths] = {}
        self._network: Network | None = None
        self._feature_version: str | None = None
        # the smallest network there is: wrong settings are found now, before any data is read
        with torch_settings(trainer, seed):
            smallest = self._make_network(widths=SMALLEST)
        self._views, self._estimate, self._machine_code = smallest.views, smallest.estimate, smallest.machine_code

    @property
    def kind(self) -> PredictionKind:
        """What the loss makes the network predict."""
        return self._loss.predicts

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Trains a new network; the widths come from the programs.

        Raises:
            KernelcastError: nothing to learn from, or the loss is no longer a number.
        """
        require_learnable(train, self._loss)
        train, valid = self._seen(train), self._seen(valid)
        self._widths = widths_of(train)
        with torch_settings(self._trainer, self._seed):
            network = self._make_network(widths=self._widths)
            self._widths = {view: self._widths[view] for view in network.views}
            scales = network.standardised()
            for field, found in moments(train, list(scales)).items():
                scales[field].take(found)
            network.set_output_range(*self._loss.output_range(train.log_seconds))
            identity = identity_of(self._settings(), train, valid)
            job = TrainingJob(network, self._loss, self._trainer, self._seed, train, valid, identity)
            train_network(job, log, workspace)
        self._network, self._feature_version = network, train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """One number a program, lower is faster, in the unit that `kind` tells."""
        require_version(self._feature_version, programs, self._name)
        assert self._network is not None
        programs = self._seen(programs)
        device = prediction_device(self._trainer)
        parts = [np.zeros(0, dtype=np.float64)]
        with torch_settings(self._trainer, self._seed), torch.inference_mode():
            network = self._network.to(device).eval()
            batches = SequentialBatches(programs, network.views, self._trainer.batch_limits)
            parts += [network(batch.to(device)).cpu().numpy().astype(np.float64) for batch in batches]
            self._network.cpu()
        return np.concatenate(parts)

    def save(self, directory: Path) -> None:
        """Writes settings as JSON and weights as safetensors into an existing folder."""
        if self._network is None:
            raise KernelcastError(f"{self._name} has not been fitted: there is nothing to save")
        write_json(directory / SETTINGS_FILE, {**self._settings(), "feature_version": self._feature_version})
        weights = {name: value.contiguous() for name, value in self._network.state_dict().items()}
        save_file(weights, directory / WEIGHTS_FILE)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            MissingInputError: a file is not there.
            MalformedDataError: a file is torn, or settings and weights do not fit together.
        """
        settings = read_json(directory / SETTINGS_FILE, "train")
        weights = directory / WEIGHTS_FILE
        require(weights, "train")
        require_estimate_version(saved_value(settings, "estimate_version", directory), directory)
        try:
            model = cls(
                revive_factory(settings["network"]),
                revive(settings["loss"]),
                revive(settings["trainer"]),
                settings["seed"],
            )
            model._widths = {view: ViewWidths(**widths) for view, widths in settings["widths"].items()}
            model._feature_version = settings["feature_version"]
            with torch_settings(model._trainer, model._seed):
                model._network = model._make_network(widths=model._widths)
            model._network.load_state_dict(load_file(weights))
        except (ConfigError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise MalformedDataError(
                f"{directory} is not a whole saved model ({error}); run `dvc repro train`"
            ) from error
        return model

    def _seen(self, programs: Programs) -> Programs:
        """With the estimates, where the network looks at them."""
        if ESTIMATES not in self._views:
            return programs
        return with_estimates(programs, self._name, self._estimate, self._machine_code)

    def _settings(self) -> dict[str, Any]:
        return {
            "network": self._description,
            "widths": {view: asdict(widths) for view, widths in self._widths.items()},
            "loss": describe(self._loss),
            "trainer": describe(self._trainer),
            "seed": self._seed,
            "estimate_version": ESTIMATE_VERSION if self._estimate else None,
        }

    @property
    def _name(self) -> str:
        return f"the model {self._description['class'].rpartition('.')[2]}"


def _checked_factory(network: Callable[..., Network]) -> tuple[dict[str, Any], Callable[..., Network]]:
    """The description of a factory and the factory made from it, the names of its arguments checked."""
    description = describe_factory(network)
    factory = revive_factory(description)
    try:
        inspect.signature(resolve_class(description["class"])).bind(**description["arguments"], widths=SMALLEST)
    except TypeError as error:
        raise ConfigError(f"model.network does not fit {description['class']}: {error}") from error
    return description, factory
