"""A cost model of one's own: ridge regression. docs/how-to/own-model.md says where this file goes."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.files import read_json, require, write_json
from kernelcast.graphs.programs import Programs
from kernelcast.models.checks import require_learnable, require_version
from kernelcast.models.description import saved_value
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.trainer import TrainerSettings

SETTINGS_FILE = "settings.json"
WEIGHTS_FILE = "weights.npz"


class RidgeModel:
    """The logarithm of the time as a weighted sum of the flat features.

    Args:
        loss: has to predict times, as `log_mse` does; the squared error itself is built in.
        trainer: not used: one equation is solved, and there are no epochs; every model takes it.
        seed: not used: nothing is random.
        penalty: on the squared weights, for each program.

    Raises:
        ConfigError: a loss that only ranks, or a penalty that is not above 0.
    """

    learned = True

    def __init__(self, loss: Loss, trainer: TrainerSettings | None, seed: int, penalty: float) -> None:
        if loss.predicts is not PredictionKind.LOG_SECONDS:
            raise ConfigError("ridge regression predicts times and cannot rank; use loss=log_mse")
        if not penalty > 0:
            raise ConfigError(f"model.penalty={penalty}: it must be a number above 0")
        self._loss = loss
        self._penalty = penalty
        self._feature_version: str | None = None
        self._mean = self._scale = self._weights = np.zeros(0)
        self._intercept = 0.0

    @property
    def kind(self) -> PredictionKind:
        """Logarithm of the seconds."""
        return PredictionKind.LOG_SECONDS

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Solves for the weights; nothing is left to stop early, so `valid` is only told about."""
        require_learnable(train, self._loss)
        values = train.features.values.astype(np.float64)
        self._mean, self._scale = values.mean(axis=0), values.std(axis=0) + 1e-9
        self._intercept = float(train.log_seconds.mean())
        scaled = (values - self._mean) / self._scale
        penalties = self._penalty * len(train) * np.eye(scaled.shape[1])
        self._weights = np.linalg.solve(scaled.T @ scaled + penalties, scaled.T @ (train.log_seconds - self._intercept))
        self._feature_version = train.feature_version
        errors = {part: self.predict(of) - of.log_seconds for part, of in (("train", train), ("valid", valid))}
        # what has no programs has no error
        log.metrics({f"{part}/loss": float((error**2).mean()) for part, error in errors.items() if len(error)}, step=0)

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """Natural logarithm of the seconds."""
        require_version(self._feature_version, programs, "the ridge model")
        scaled = (programs.features.values.astype(np.float64) - self._mean) / self._scale
        predicted: Float64[np.ndarray, "programs"] = self._intercept + scaled @ self._weights
        return predicted

    def save(self, directory: Path) -> None:
        """Writes settings as JSON and numbers as NumPy arrays, without pickle."""
        settings = {"penalty": self._penalty, "intercept": self._intercept, "feature_version": self._feature_version}
        write_json(directory / SETTINGS_FILE, settings)
        np.savez(directory / WEIGHTS_FILE, mean=self._mean, scale=self._scale, weights=self._weights)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            MalformedDataError: a file is torn.
        """
        settings = read_json(directory / SETTINGS_FILE, "train")
        require(directory / WEIGHTS_FILE, "train")
        model = cls.__new__(cls)
        model._penalty = saved_value(settings, "penalty", directory)
        model._intercept = saved_value(settings, "intercept", directory)
        model._feature_version = saved_value(settings, "feature_version", directory)
        try:
            with np.load(directory / WEIGHTS_FILE, allow_pickle=False) as arrays:
                model._mean, model._scale, model._weights = (arrays[name] for name in ("mean", "scale", "weights"))
        except (OSError, KeyError, ValueError) as error:
            raise MalformedDataError(f"{directory} is not a whole saved model ({error}); train it again") from error
        return model
