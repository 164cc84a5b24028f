"""Normalisation, ReLU, dropout and a residual connection in one, which on small layers costs more than the layers."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


def norm_relu(
    values: Float[Tensor, "rows width"],
    norm: nn.LayerNorm,
    dropout: float = 0.0,
    residual: Float[Tensor, "rows width"] | None = None,
) -> Float[Tensor, "rows width"]:
    """`residual + dropout(relu(norm(values)))`, the same as torch's modules one after the other.

    On a processor it is one pass over the values in machine code, and the gradient is another.

    Args:
        values: may be of lower precision in mixed precision; what comes out is of the precision of `norm`.
        norm: over the width, with weights.
        dropout: share of the values left out; 0 outside training.
        residual: what is added; nothing by default.
    """
    if not values.is_cpu or dropout >= 1:
        return norm_relu_on_device(values, norm, dropout, residual)
    out: Tensor = _NormReLU.apply(values, residual, norm.weight, norm.bias, norm.eps, dropout)  # type: ignore[no-untyped-call]
    return out


def norm_relu_on_device(values: Tensor, norm: nn.LayerNorm, dropout: float, residual: Tensor | None) -> Tensor:
    """The same on any device."""
    known = functional.dropout(torch.relu(norm(values)), dropout)
    return known if residual is None else residual + known


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, residual: Tensor | None, gain: Tensor, shift: Tensor, epsilon: float, dropout: float
    ) -> Tensor:
        from kernelcast.models.networks.node_kernels import LEVELS, norm_relu_dropout

        values = values.to(gain.dtype).contiguous()
        added = values[:0] if residual is None else residual.to(gain.dtype).contiguous()
        last_kept = max(round((1 - dropout) * LEVELS), 1) - 1
        # drawn only where it counts, so that evaluation leaves torch's generator alone
        seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
        inputs, start, scale, offset = (part.detach().numpy() for part in (values, added, gain, shift))
        out, mean, factor = norm_relu_dropout(inputs, start, scale, offset, epsilon, last_kept, seed)
        ctx.save_for_backward(values, gain, shift)
        ctx.kept = mean, factor, last_kept, seed
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from kernelcast.models.networks.node_kernels import norm_relu_dropout_gradient

        values, gain, shift = (part.detach().numpy() for part in ctx.saved_tensors)
        mean, factor, last_kept, seed = ctx.kept
        found = norm_relu_dropout_gradient(
            gradient.contiguous().numpy(), values, mean, factor, gain, shift, last_kept, seed
        )
        of_values, of_gain, of_shift = (torch.from_numpy(part) for part in found)
        return of_values, gradient if ctx.needs_input_grad[1] else None, of_gain, of_shift, None, None
