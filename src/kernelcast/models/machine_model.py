"""What models share that learn nothing and work from the machine that measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.files import read_json, write_json
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.models.checks import require_version
from kernelcast.models.description import saved_value
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.speeds import LEAST_SECONDS, known_machine, pieces_by_machine, used_targets
from kernelcast.models.trainer import TrainerSettings

SETTINGS_FILE = "settings.json"


class MachineModel(ABC):
    """Seconds from counts and from the speeds of the machine; a subclass fills in `seconds`.

    Args:
        loss: not used, there is nothing to minimise; every model takes it.
        trainer: not used, as `loss`.
        seed: not used, nothing is random.
    """

    learned = False

    name: ClassVar[str]
    """What messages call the model: its file in conf/model."""

    def __init__(self, loss: Loss | None, trainer: TrainerSettings | None, seed: int) -> None:
        self._feature_version: str | None = None

    @property
    def kind(self) -> PredictionKind:
        """Logarithm of the seconds."""
        return PredictionKind.LOG_SECONDS

    @abstractmethod
    def seconds(
        self, programs: Programs, rows: Int64[np.ndarray, "rows"], machine: Machine
    ) -> Float64[np.ndarray, "rows"]:
        """Seconds of the programs `rows` on `machine`."""

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Learns nothing but the version of the features.

        Raises:
            ConfigError: the machine that measured is unknown.
        """
        for target in used_targets(train):
            known_machine(train, target, self.name)
        self._feature_version = train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """Natural logarithm of the seconds on the machine of `programs`."""
        require_version(self._feature_version, programs, f"the {self.name} model")
        seconds = np.zeros(len(programs))
        for rows, machine in pieces_by_machine(programs, self.name):
            seconds[rows] = self.seconds(programs, rows, machine)
        return np.log(np.maximum(seconds, LEAST_SECONDS))

    def save(self, directory: Path) -> None:
        """Writes the version of the features into an existing folder; the machine comes with the programs."""
        write_json(directory / SETTINGS_FILE, {"feature_version": self._feature_version})

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote."""
        model = cls(None, None, 0)
        settings = read_json(directory / SETTINGS_FILE, "train")
        model._feature_version = saved_value(settings, "feature_version", directory)
        return model
