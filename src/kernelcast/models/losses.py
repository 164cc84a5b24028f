"""What the learned models minimise, and what follows from it: what they predict and what boosted trees aim at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64, Integer
from torch import Tensor
from torch.nn import functional

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


class Loss(Protocol):
    """A loss over the programs of a batch.

    Attributes:
        predicts: what a model trained with it predicts.
        aim: what boosted trees minimise for it; None where they have nothing like it.
        monitor: the validation metric that decides when to stop and which weights to keep.
        maximize: whether a larger `monitor` is better.
    """

    predicts: ClassVar[PredictionKind]
    aim: ClassVar[Aim | None]
    monitor: ClassVar[str]
    maximize: ClassVar[bool]

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The loss, a scalar with a gradient."""

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """Shift and scale of a network's output, so that it starts near the labels."""

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """The labels that boosted trees get; larger is slower."""


@dataclass(frozen=True)
class PairwiseRank:
    """Every pair of programs of one workload should be predicted in the order of their times.

    Mean over the pairs (i, j) of one workload where i is slower than j of `f(s_i - s_j)`, s being the predictions:
    `hinge` is `max(0, margin - z)`, `logistic` is `ln(1 + exp(-z))`. Kaufman et al. 2021, section 3.3 (both forms).

    Attributes:
        surrogate: `hinge` or `logistic`.
        margin: of the hinge, in units of the prediction.
    """

    predicts: ClassVar[PredictionKind] = PredictionKind.RANK
    aim: ClassVar[Aim | None] = Aim.PAIRWISE
    monitor: ClassVar[str] = "valid/kendall_tau"
    maximize: ClassVar[bool] = True

    surrogate: str = "hinge"
    margin: float = 1.0

    def __post_init__(self) -> None:
        if self.surrogate not in ("hinge", "logistic"):
            raise ConfigError(f"loss.surrogate={self.surrogate}: use hinge or logistic")
        if isinstance(self.margin, bool) or not isinstance(self.margin, int | float) or not self.margin > 0:
            raise ConfigError(f"loss.margin={self.margin}: it must be a number above 0")

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The mean over the comparable pairs; zero, with a gradient of zeros, where there is none."""
        slower, faster = comparable_pairs(labels.log_seconds, labels.workload)
        if len(slower) == 0:
            return prediction.sum() * 0.0
        difference = prediction[slower] - prediction[faster]
        if self.surrogate == "hinge":
            return functional.relu(self.margin - difference).mean()
        return functional.softplus(-difference).mean()

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """No shift and no scale: a score has no unit."""
        return 0.0, 1.0

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """The place of each program among those of its workload, 0 the fastest; equal times share a place."""
        labels = np.zeros(len(log_seconds), dtype=np.float32)
        for index in np.unique(workload):
            rows = np.flatnonzero(workload == index)
            labels[rows] = np.unique(log_seconds[rows], return_inverse=True)[1]
        return labels


@dataclass(frozen=True)
class LogMSE:
    """Mean squared error of the predicted natural logarithm of the seconds (Kaufman et al. 2021, section 3.3)."""

    predicts: ClassVar[PredictionKind] = PredictionKind.LOG_SECONDS
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


def comparable_pairs(
    log_seconds: Float[Tensor, "graphs"], workload: Int64[Tensor, "graphs"]
) -> tuple[Int64[Tensor, "pairs"], Int64[Tensor, "pairs"]]:
    """All pairs of one workload with unequal times: the slower and the faster of each.

    Memory is the sum of the squared group sizes, not the square of the number of programs.
    """
    order = torch.argsort(workload, stable=True)
    _, counts = torch.unique_consecutive(workload[order], return_counts=True)
    starts = torch.repeat_interleave(torch.cumsum(counts, 0) - counts, counts)
    partners = torch.repeat_interleave(counts, counts)
    first = torch.repeat_interleave(torch.arange(len(order), device=order.device), partners)
    begin = torch.repeat_interleave(torch.cumsum(partners, 0) - partners, partners)
    second = starts[first] + torch.arange(len(first), device=order.device) - begin
    first, second = order[first], order[second]
    keep = log_seconds[first] > log_seconds[second]
    return first[keep], second[keep]
