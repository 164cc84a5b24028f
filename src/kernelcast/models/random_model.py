"""The model that knows nothing: what every other one must beat."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Float64

from kernelcast.files import read_json, write_json
from kernelcast.graphs.programs import Programs
from kernelcast.models.checks import require_version
from kernelcast.models.description import saved_value
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.trainer import TrainerSettings

SETTINGS_FILE = "settings.json"


class RandomModel:
    """Ranks programs by a number drawn for each from the seed and the program's key.

    The same program gets the same number in whatever company it is predicted.

    Args:
        loss: not used, there is nothing to minimise; every model takes it.
        trainer: not used, as `loss`.
        seed: of the numbers.
    """

    learned = False

    def __init__(self, loss: Loss | None, trainer: TrainerSettings | None, seed: int) -> None:
        self._seed = seed
        self._feature_version: str | None = None

    @property
    def kind(self) -> PredictionKind:
        """An order, if a meaningless one."""
        return PredictionKind.RANK

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Learns nothing but the version of the features."""
        self._feature_version = train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """Numbers from 0 to 1, evenly spread."""
        require_version(self._feature_version, programs, "the random model")
        return np.array([self._draw(str(key)) for key in programs.program_key], dtype=np.float64)

    def save(self, directory: Path) -> None:
        """Writes the seed into an existing folder."""
        write_json(directory / SETTINGS_FILE, {"seed": self._seed, "feature_version": self._feature_version})

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote."""
        settings = read_json(directory / SETTINGS_FILE, "train")
        model = cls(None, None, saved_value(settings, "seed", directory))
        model._feature_version = saved_value(settings, "feature_version", directory)
        return model

    def _draw(self, key: str) -> float:
        return float(np.random.default_rng([self._seed, *key.encode()]).random())
