"""What every loss has."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Protocol

import numpy as np
from jaxtyping import Float, Float32, Float64, Integer
from torch import Tensor

from kernelcast.errors import ConfigError
from kernelcast.models.batching import Labels
from kernelcast.models.protocol import PredictionKind


class Aim(StrEnum):
    """What boosted trees can minimise in the place of a loss; each library has a name of its own for it."""

    SQUARED_ERROR = "squared_error"
    """Of the label."""

    PAIRWISE = "pairwise"
    """The order of pairs of one workload."""

    LAMBDARANK = "lambdarank"
    """The order of pairs of one workload, by what a swap would change at the top of the list."""


class Scale(StrEnum):
    """The numbers that a loss wants as predictions; a loss that only ranks takes any."""

    LOG_SECONDS = "log_seconds"
    """Natural logarithm of the run time in seconds."""

    THROUGHPUT = "throughput"
    """The best time of the workload over the program's own, with a minus sign: from -1, the fastest, to 0."""


class Loss(Protocol):
    """A loss over the programs of a batch."""

    @property
    def predicts(self) -> PredictionKind:
        """What a model trained with it predicts."""

    @property
    def scale(self) -> Scale | None:
        """The numbers that it makes the model predict; None where only their order counts."""

    @property
    def aim(self) -> Aim | None:
        """What boosted trees minimise for it; None where they have nothing like it."""

    @property
    def monitor(self) -> str:
        """The validation metric that decides when to stop and which weights to keep."""

    @property
    def maximize(self) -> bool:
        """Whether a larger `monitor` is better."""

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The loss, a scalar with a gradient."""

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """Shift and scale of a network's output, so that it starts near the labels."""

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """The labels that boosted trees get; larger is slower."""


def require_positive(key: str, value: object) -> None:
    """Makes sure that a setting is a finite number above 0.

    Raises:
        ConfigError: it is not; the message names `key`.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not value > 0:  # type: ignore[operator]
        raise ConfigError(f"{key}={value}: it must be a number above 0")
