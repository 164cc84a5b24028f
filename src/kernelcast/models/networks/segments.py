"""Sums, means and maxima over the elements of each program, whose elements stand side by side in a batch.

On a CPU a comparison that writes booleans, and indexing by a list, cost several times what the same costs as numbers
and as `index_select`; the forms here are the quick ones.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable


def owners(counts: Int64[Tensor, "programs"]) -> Int64[Tensor, "elements"]:
    """The program of each element."""
    return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)


def places(counts: Int64[Tensor, "programs"]) -> Int64[Tensor, "elements"]:
    """The place of each element among those of its program, from 0."""
    first = torch.cumsum(counts, 0) - counts
    return torch.arange(int(counts.sum()), device=counts.device) - torch.repeat_interleave(first, counts)


def segment_sum(
    values: Float[Tensor, "elements width"], owner: Int64[Tensor, "elements"], count: int
) -> Float[Tensor, "programs width"]:
    """The sum over the elements of each of `count` programs; 0 where there is none."""
    return values.new_zeros(count, values.shape[1]).index_add(0, owner, values)


def segment_mean(
    values: Float[Tensor, "elements width"],
    owner: Int64[Tensor, "elements"],
    counts: Int64[Tensor, "programs"],
) -> Float[Tensor, "programs width"]:
    """The mean over the elements of each program; 0 where there is none."""
    return segment_sum(values, owner, len(counts)) / counts.clamp_min(1).to(values.dtype)[:, None]


def segment_max(
    values: Float[Tensor, "elements width"],
    owner: Int64[Tensor, "elements"],
    counts: Int64[Tensor, "programs"],
) -> Float[Tensor, "programs width"]:
    """The largest value of each program in each column; 0 where there is none.

    Elements that share the largest value share its gradient.
    """
    largest: Tensor = _SegmentMax.apply(values, owner, counts)  # type: ignore[no-untyped-call]
    return largest


class _SegmentMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, owner: Tensor, counts: Tensor) -> Tensor:
        if values.is_cpu:
            ends = torch.cumsum(counts, 0)
            first = torch.cat([ends.new_zeros(1), ends])
            chosen = torch.arange(len(values))
            ones = values.new_ones(len(values))
            largest = torch.sparse.mm(csr(first, chosen, ones, (len(counts), len(values))), values.contiguous(), "amax")
        else:
            place = owner[:, None].expand_as(values)
            empty = values.new_zeros(len(counts), values.shape[1])
            largest = empty.scatter_reduce(0, place, values, "amax", include_self=False)
        ctx.save_for_backward(values, owner, largest)
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        values, owner, largest = ctx.saved_tensors
        is_largest = torch.empty_like(values)
        torch.eq(values, largest.index_select(0, owner), out=is_largest)
        sharers = torch.zeros_like(largest).index_add_(0, owner, is_largest)
        shared = (gradient / sharers.clamp_min_(1)).index_select(0, owner)
        return shared.mul_(is_largest), None, None


def csr(first: Int64[Tensor, "rows_plus_1"], column: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix by rows, made without checks."""
    with warnings.catch_warnings():
        # said once of every such matrix: that the form is new in torch
        warnings.filterwarnings("ignore", message=".*Sparse CSR tensor support is in beta.*")
        return torch.sparse_csr_tensor(first, column, value, shape, check_invariants=False)
