"""Features brought to mean 0 and deviation 1, as they were in the training programs."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.models.batching import Moments

LARGEST_DEVIATION = 10.0
"""Standardised features are cut here: a value far outside the training data says "large", no more."""


class Standardised(nn.Module):
    """`clamp((x - mean) / deviation)` by column; mean and deviation are saved with the weights.

    Args:
        features: columns.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def take(self, moments: Moments) -> None:
        """Takes mean and deviation of the training programs; a feature that never varies is only centred."""
        deviation = torch.from_numpy(moments.deviation).float()
        self.mean.copy_(torch.from_numpy(moments.mean).float())
        self.scale.copy_(torch.where(deviation > 1e-6, 1.0 / deviation.clamp_min(1e-6), torch.ones_like(deviation)))

    def forward(self, values: Float[Tensor, "rows features"]) -> Float[Tensor, "rows features"]:
        """The same values, standardised."""
        return (values - self.mean).mul_(self.scale).clamp_(-LARGEST_DEVIATION, LARGEST_DEVIATION)
