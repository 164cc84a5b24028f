"""Losses over all programs of one workload that a batch has, as a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Integer
from torch import Tensor
from torch.nn import functional

from kernelcast.errors import ConfigError
from kernelcast.models.batching import Labels
from kernelcast.models.losses.groups import comparable_pairs, lists_of, places
from kernelcast.models.losses.protocol import Aim, Scale, require_positive
from kernelcast.models.protocol import PredictionKind


@dataclass(frozen=True)
class LambdaRank:
    """Pairs of one workload in the order of their times, those whose swap would change NDCG more counting for more.

    The gain of a program is the best time of its workload over its own; at place r of the predicted order (1 the
    fastest) it counts `1 / log2(1 + r)` of it, below place `top` nothing. The loss of a workload is the sum over its
    pairs (i slower than j) of `|change of NDCG by swapping i and j| * ln(1 + exp(-steepness * (s_i - s_j)))`, s being
    the predictions and the change taken as a constant; the mean over the workloads that have pairs. Burges 2010, "From
    RankNet to LambdaRank to LambdaMART", sections 3 and 4.

    Attributes:
        steepness: of the logistic, one over units of the prediction.
        top: places that count; None counts all.
    """

    predicts: ClassVar[PredictionKind] = PredictionKind.RANK
    scale: ClassVar[Scale | None] = None
    aim: ClassVar[Aim | None] = Aim.LAMBDARANK
    monitor: ClassVar[str] = "valid/kendall_tau"
    maximize: ClassVar[bool] = True

    steepness: float = 1.0
    top: int | None = None

    def __post_init__(self) -> None:
        require_positive("loss.steepness", self.steepness)
        if self.top is not None and (isinstance(self.top, bool) or not isinstance(self.top, int) or self.top < 1):
            raise ConfigError(f"loss.top={self.top}: it must be a whole number of at least 1, or null")

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The mean over the workloads with pairs; zero, with a gradient of zeros, where there is none."""
        slower, faster = comparable_pairs(labels.log_seconds, labels.workload)
        if len(slower) == 0:
            return prediction.sum() * 0.0
        gain = torch.exp(labels.best_log_seconds - labels.log_seconds)
        discount = self._discounts(prediction.detach(), labels.workload)
        ideal = self._discounts(labels.log_seconds, labels.workload)
        _, group = torch.unique(labels.workload, return_inverse=True)
        best = torch.zeros(len(group), dtype=gain.dtype, device=gain.device).index_add_(0, group, gain * ideal)[group]
        change = (gain[faster] - gain[slower]) * (discount[faster] - discount[slower]).abs() / best[slower]
        difference = prediction[slower] - prediction[faster]
        total = (change * functional.softplus(-self.steepness * difference)).sum()
        return total / len(torch.unique(group[slower]))

    def _discounts(
        self, values: Float[Tensor, "programs"], workload: Integer[Tensor, "programs"]
    ) -> Float[Tensor, "programs"]:
        """What each program's place counts in the order of the values, the least first."""
        lists = lists_of(values, workload)
        counted = 1 / torch.log2(torch.arange(lists.filled.shape[1], device=values.device, dtype=values.dtype) + 2)
        if self.top is not None:
            counted[self.top :] = 0
        discounts = torch.empty_like(values)
        discounts[lists.program[lists.filled]] = counted.expand_as(lists.filled)[lists.filled]
        return discounts

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """No shift and no scale: a score has no unit."""
        return 0.0, 1.0

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """The place of each program among those of its workload, 0 the fastest; equal times share a place."""
        return places(log_seconds, workload)


@dataclass(frozen=True)
class ListMLE:
    """The true order of a workload's programs should be the likely one, if each place is drawn by a softmax.

    With the programs of a workload from the fastest to the slowest and p being minus the predictions, the loss of a
    place is `ln(sum over k from i on of exp(p_k)) - p_i`; the mean over the places that have a choice, that is all but
    the last of each workload. Equal times stand in the order of the batch. Xia et al. 2008, "Listwise Approach to
    Learning to Rank", section 4.3.
    """

    predicts: ClassVar[PredictionKind] = PredictionKind.RANK
    scale: ClassVar[Scale | None] = None
    # no library of boosted trees has a likelihood of orders
    aim: ClassVar[Aim | None] = None
    monitor: ClassVar[str] = "valid/kendall_tau"
    maximize: ClassVar[bool] = True

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The mean over the places with a choice; zero, with a gradient of zeros, where there is none."""
        lists = lists_of(labels.log_seconds, labels.workload)
        choices = len(prediction) - len(lists.counts)
        if choices == 0:
            return prediction.sum() * 0.0
        preference = -prediction
        # a value that adds nothing to the sums and, unlike minus infinity, has a gradient
        empty = torch.finfo(prediction.dtype).min / 4
        spread = lists.spread(preference, empty)
        of_the_rest = torch.logcumsumexp(spread.flip(1), dim=1).flip(1)
        return (of_the_rest[lists.filled] - spread[lists.filled]).sum() / choices

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """No shift and no scale: a score has no unit."""
        return 0.0, 1.0

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """The place of each program among those of its workload, 0 the fastest; equal times share a place."""
        return places(log_seconds, workload)
