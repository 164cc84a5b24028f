"""ReLU and dropout in one, at little cost beside small layers."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LEVELS = 2**16
"""Values of the random numbers that decide what is left out."""


class ReLUDropout(nn.Module):
    """`dropout(relu(x))`: in training a share of the values is 0 and the others are enlarged to the same expectation.

    The same as PyTorch's ReLU and Dropout one after the other. On a CPU these draw 64 random bits a value, which costs
    more than a graph convolution; here four values share them, and the share is a multiple of 2^-16.

    Args:
        share: of values left out.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.kept_levels = max(round((1 - share) * LEVELS), 1)

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Only the ReLU outside training."""
        if not self.training or self.kept_levels == LEVELS:
            return torch.relu(values)
        dropped: Tensor = _ReLUDropout.apply(values, self.kept_levels)  # type: ignore[no-untyped-call]
        return dropped


class _ReLUDropout(torch.autograd.Function):
    """What came through is above 0, so that the output alone tells the gradient's way."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, kept_levels: int) -> Tensor:
        ctx.enlarged = LEVELS / kept_levels
        # one draw makes four numbers of 16 bits, from -2^15 on
        draws = torch.empty(-(-values.numel() // 4), dtype=torch.int64, device=values.device).random_(-(2**63), None)
        numbers = draws.view(torch.int16)[: values.numel()].view(values.shape)
        kept = torch.empty(values.shape, dtype=values.dtype, device=values.device)
        # a comparison that writes numbers instead of truths is several times as quick
        torch.lt(numbers, kept_levels - LEVELS // 2, out=kept)
        output = torch.relu(values).mul_(kept).mul_(ctx.enlarged)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, output, 0).mul_(ctx.enlarged), None
