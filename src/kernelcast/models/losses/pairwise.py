"""Losses over pairs of programs of one workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Float32, Float64, Integer
from torch import Tensor
from torch.nn import functional

from kernelcast.errors import ConfigError
from kernelcast.models.batching import Labels
from kernelcast.models.losses.groups import comparable_pairs, places
from kernelcast.models.losses.protocol import Aim, Scale, require_positive
from kernelcast.models.protocol import PredictionKind


@dataclass(frozen=True)
class PairwiseRank:
    """Every pair of programs of one workload should be predicted in the order of their times.

    Mean over the pairs (i, j) of one workload where i is slower than j of `f(s_i - s_j)`, s being the predictions:
    `hinge` is `max(0, margin - z)`, `logistic` is `ln(1 + exp(-z))`. Kaufman et al. 2021, section 3.3 (both forms).

    Attributes:
        surrogate: `hinge` or `logistic`.
        margin: of the hinge, in units of the prediction.
        weighting: `equal` counts every pair once; `distance` weighs a pair by the difference of its log seconds, so
            that two programs as fast as each other, which noise may have swapped, count for little.
    """

    predicts: ClassVar[PredictionKind] = PredictionKind.RANK
    scale: ClassVar[Scale | None] = None
    aim: ClassVar[Aim | None] = Aim.PAIRWISE
    monitor: ClassVar[str] = "valid/kendall_tau"
    maximize: ClassVar[bool] = True

    surrogate: str = "hinge"
    margin: float = 1.0
    weighting: str = "equal"

    def __post_init__(self) -> None:
        if self.surrogate not in ("hinge", "logistic"):
            raise ConfigError(f"loss.surrogate={self.surrogate}: use hinge or logistic")
        if self.weighting not in ("equal", "distance"):
            raise ConfigError(f"loss.weighting={self.weighting}: use equal or distance")
        require_positive("loss.margin", self.margin)

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The mean over the comparable pairs; zero, with a gradient of zeros, where there is none."""
        slower, faster = comparable_pairs(labels.log_seconds, labels.workload)
        if len(slower) == 0:
            return prediction.sum() * 0.0
        difference = prediction[slower] - prediction[faster]
        if self.surrogate == "hinge":
            loss = functional.relu(self.margin - difference)
        else:
            loss = functional.softplus(-difference)
        if self.weighting == "equal":
            return loss.mean()
        distance = labels.log_seconds[slower] - labels.log_seconds[faster]
        return (loss * distance).sum() / distance.sum()

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """No shift and no scale: a score has no unit."""
        return 0.0, 1.0

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """The place of each program among those of its workload, 0 the fastest; equal times share a place."""
        return places(log_seconds, workload)
