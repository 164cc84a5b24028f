"""Losses over single programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Integer
from torch import Tensor
from torch.nn import functional

from kernelcast.models.batching import Labels, best_of_workload
from kernelcast.models.losses.protocol import Aim, Scale
from kernelcast.models.protocol import PredictionKind


@dataclass(frozen=True)
class LogMSE:
    """Mean squared error of the predicted natural logarithm of the seconds (Kaufman et al. 2021, section 3.3)."""

    predicts: ClassVar[PredictionKind] = PredictionKind.LOG_SECONDS
    scale: ClassVar[Scale | None] = Scale.LOG_SECONDS
    aim: ClassVar[Aim | None] = Aim.SQUARED_ERROR
    monitor: ClassVar[str] = "valid/loss"
    maximize: ClassVar[bool] = False

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The mean over all programs, in squared natural-log units."""
        return functional.mse_loss(prediction, labels.log_seconds)

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """Mean and standard deviation of the training labels."""
        spread = float(np.std(log_seconds))
        return float(np.mean(log_seconds)), spread if spread > 0 else 1.0

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """The labels as they are."""
        return log_seconds.astype(np.float32)


@dataclass(frozen=True)
class RelativeThroughput:
    """Mean squared error of the throughput relative to the best program of the workload.

    The label is `best seconds of the workload / seconds`, from 0 to 1 for the fastest, and the prediction is its
    negative, so that lower is faster. It says nothing of seconds: the model ranks. Differences among slow programs
    hardly count. As in TenSet (Zheng et al. 2021, section 5) and TLP (Zhai et al. 2023, section 4).
    """

    predicts: ClassVar[PredictionKind] = PredictionKind.RANK
    scale: ClassVar[Scale | None] = Scale.THROUGHPUT
    aim: ClassVar[Aim | None] = Aim.SQUARED_ERROR
    monitor: ClassVar[str] = "valid/loss"
    maximize: ClassVar[bool] = False

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The mean over all programs, in squared shares of the best throughput."""
        return functional.mse_loss(prediction, -torch.exp(labels.best_log_seconds - labels.log_seconds))

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """Middle and quarter of what a throughput can be."""
        return -0.5, 0.25

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """The relative throughput with a minus sign, from -1 for the fastest to 0."""
        return (-np.exp(best_of_workload(log_seconds, workload) - log_seconds)).astype(np.float32)
