"""The programs of a batch by workload, without a loop over the workloads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64, Integer
from torch import Tensor


@dataclass(frozen=True)
class Lists:
    """The programs of every workload in one row, the fastest first; equal times stay in the order of the batch.

    Attributes:
        program: number in the batch; 0 where a row has ended.
        filled: whether there is a program.
    """

    program: Int64[Tensor, "lists longest"]
    filled: Bool[Tensor, "lists longest"]

    @property
    def counts(self) -> Int64[Tensor, "lists"]:
        """Programs of each list."""
        return self.filled.sum(dim=1)

    def spread(self, values: Float[Tensor, "programs"], empty: float) -> Float[Tensor, "lists longest"]:
        """One number a program at its place, `empty` where a row has ended."""
        return values[self.program].masked_fill(~self.filled, empty)


def lists_of(log_seconds: Float[Tensor, "programs"], workload: Int64[Tensor, "programs"]) -> Lists:
    """The lists of all workloads of a batch."""
    fastest_first = torch.argsort(log_seconds, stable=True)
    order = fastest_first[torch.argsort(workload[fastest_first], stable=True)]
    _, row, counts = torch.unique_consecutive(workload[order], return_inverse=True, return_counts=True)
    place = torch.arange(len(order), device=order.device) - (torch.cumsum(counts, 0) - counts)[row]
    longest = int(counts.max()) if len(counts) else 0
    program = order.new_zeros((len(counts), longest))
    program[row, place] = order
    filled = torch.zeros_like(program, dtype=torch.bool)
    filled[row, place] = True
    return Lists(program, filled)


def comparable_pairs(
    log_seconds: Float[Tensor, "programs"], workload: Int64[Tensor, "programs"]
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


def places(
    values: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
) -> Float32[np.ndarray, "programs"]:
    """The place of each program among those of its workload, 0 the least value; equal values share a place."""
    order = np.lexsort((values, workload))
    in_order, group = values[order], workload[order]
    starts = np.r_[True, group[1:] != group[:-1]][: len(order)]
    steps = np.cumsum(starts | np.r_[True, in_order[1:] != in_order[:-1]][: len(order)])
    found = np.empty(len(order), dtype=np.float32)
    found[order] = steps - np.maximum.accumulate(np.where(starts, steps, 0))
    return found
