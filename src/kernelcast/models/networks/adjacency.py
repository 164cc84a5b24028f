"""The normalised adjacency matrix of a batch of graphs, and its product with vectors of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernelcast.models.networks.segments import csr

SHORT = 2**16
"""Numbers below this have a sort of their own, ten times as quick as that of large ones."""


@dataclass(frozen=True)
class Adjacency:
    """`D^-1/2 (A + I) D^-1/2` of a batch of graphs, D being the number of edges into each node and one more.

    Kipf and Welling 2017 (arXiv 1609.02907), equation 2. An edge from a node to itself counts no more than the I.

    Attributes:
        incoming: without the diagonal, a row for each node that edges lead to.
        outgoing: the transposed of it, for gradients.
        diagonal: of the matrix.
    """

    incoming: Tensor
    outgoing: Tensor
    diagonal: Float[Tensor, "nodes 1"]

    @classmethod
    def of(cls, edge_index: Int64[Tensor, "2 edges"], nodes: int) -> Adjacency:
        """The adjacency of the edges, each from its source to its target."""
        source, target = edge_index
        loops = source == target
        if bool(loops.any()):
            source, target = source[~loops], target[~loops]
        inverse = (torch.bincount(target, minlength=nodes) + 1).float().rsqrt()
        weight = inverse.index_select(0, source) * inverse.index_select(0, target)
        return cls(
            incoming=_by_rows(target, source, weight, nodes),
            outgoing=_by_rows(source, target, weight, nodes),
            diagonal=(inverse * inverse)[:, None],
        )

    def times(
        self, vectors: Float[Tensor, "nodes width"], bias: Float[Tensor, "width"]
    ) -> Float[Tensor, "nodes width"]:
        """The product with a vector of each node, and a bias added to each."""
        product: Tensor = _Product.apply(vectors, bias, self)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """The matrix has no gradient, so that its transposed is all that is kept for those of the others."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, bias: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.adjacency = adjacency
        vectors = vectors.float()
        return product(adjacency.incoming, vectors).addcmul_(vectors, adjacency.diagonal).add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        adjacency: Adjacency = ctx.adjacency
        of_vectors = product(adjacency.outgoing, gradient).addcmul_(gradient, adjacency.diagonal)
        return of_vectors, gradient.sum(0), None


def product(matrix: Tensor, vectors: Float[Tensor, "nodes width"]) -> Float[Tensor, "nodes width"]:
    """A sparse matrix times vectors; on a CPU by the kernel for reductions, several times as quick as that of MKL."""
    return torch.sparse.mm(matrix, vectors.contiguous(), "sum") if vectors.is_cpu else torch.sparse.mm(matrix, vectors)


def _by_rows(row: Tensor, column: Tensor, value: Tensor, nodes: int) -> Tensor:
    order = _order(row, nodes)
    first = torch.zeros(nodes + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=nodes), 0, out=first[1:])
    return csr(first, column.index_select(0, order), value.index_select(0, order), (nodes, nodes))


def _order(numbers: Int64[Tensor, "edges"], limit: int) -> Int64[Tensor, "edges"]:
    """The order that sorts numbers below `limit`, equal ones as they stand."""
    if numbers.is_cpu and limit <= SHORT:
        return torch.from_numpy(np.argsort(numbers.numpy().astype(np.uint16), kind="stable"))
    return torch.argsort(numbers, stable=True)
