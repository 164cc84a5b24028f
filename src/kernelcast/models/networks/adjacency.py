"""The normalised adjacency matrix of a batch of graphs, and its product with vectors of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernelcast.models.networks.segments import csr


@dataclass(frozen=True)
class EdgeRows:
    """The nodes that edges lead to or come from, by the node at the other end; ones of a sparse matrix by rows.

    Attributes:
        first: where each node's row begins, and the end of the last one.
        nodes: the columns of all rows one after the other, in the order of the edges.
    """

    first: Int64[Tensor, "nodes_plus_1"]
    nodes: Int64[Tensor, "edges"]

    @classmethod
    def of(cls, row: Int64[Tensor, "edges"], column: Int64[Tensor, "edges"], nodes: int) -> EdgeRows:
        """The rows of all edges but those from a node to itself."""
        if row.is_cpu:
            from kernelcast.models.networks.node_kernels import rows_of_edges

            return cls(*map(torch.from_numpy, rows_of_edges(row.numpy(), column.numpy(), nodes)))
        return cls(*rows_on_device(row, column, nodes))

    def product(
        self,
        scale: Float[Tensor, "nodes"],
        vectors: Float[Tensor, "nodes width"],
        bias: Float[Tensor, "width"],
    ) -> Float[Tensor, "nodes width"]:
        """`S (A + I) S vectors + bias`, S being the diagonal matrix of `scale` and A that of these rows."""
        if vectors.is_cpu:
            from kernelcast.models.networks.node_kernels import scaled_product

            arrays = (part.detach().numpy() for part in (self.first, self.nodes, scale, vectors.contiguous(), bias))
            return torch.from_numpy(scaled_product(*arrays))
        return product_on_device(self.first, self.nodes, scale, vectors, bias)


def rows_on_device(row: Tensor, column: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """What `node_kernels.rows_of_edges` does, on any device."""
    apart = torch.nonzero(row != column).squeeze(1)
    row, column = row.index_select(0, apart), column.index_select(0, apart)
    first = torch.zeros(nodes + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=nodes), 0, out=first[1:])
    return first, column.index_select(0, torch.argsort(row, stable=True))


def product_on_device(first: Tensor, nodes: Tensor, scale: Tensor, vectors: Tensor, bias: Tensor) -> Tensor:
    """What `node_kernels.scaled_product` does, on any device."""
    scaled = vectors * scale[:, None]
    ones = csr(first, nodes, scaled.new_ones(len(nodes)), (len(scale), len(scale)))
    return torch.sparse.mm(ones, scaled).add_(scaled).mul_(scale[:, None]).add_(bias)


@dataclass(frozen=True)
class Adjacency:
    """`D^-1/2 (A + I) D^-1/2` of a batch of graphs, D being the number of edges into each node and one more.

    Kipf and Welling 2017 (arXiv 1609.02907), equation 2. An edge from a node to itself counts no more than the I.

    Attributes:
        incoming: the edges by the node that they lead to.
        outgoing: the edges by the node that they come from, for gradients.
        scale: the diagonal of `D^-1/2`.
    """

    incoming: EdgeRows
    outgoing: EdgeRows
    scale: Float[Tensor, "nodes"]

    @classmethod
    def of(cls, edge_index: Int64[Tensor, "2 edges"], nodes: int) -> Adjacency:
        """The adjacency of the edges, each from its source to its target."""
        source, target = edge_index
        incoming = EdgeRows.of(target, source, nodes)
        return cls(incoming, EdgeRows.of(source, target, nodes), (torch.diff(incoming.first) + 1).double().rsqrt())

    def times(
        self, vectors: Float[Tensor, "nodes width"], bias: Float[Tensor, "width"]
    ) -> Float[Tensor, "nodes width"]:
        """The product with a vector of each node, and a bias added to each; in the precision of the bias."""
        product: Tensor = _Product.apply(vectors, bias, self)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """The matrix has no gradient, so that its transposed is all that is kept for those of the others."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, bias: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.adjacency = adjacency
        return adjacency.incoming.product(adjacency.scale.to(bias.dtype), vectors.to(bias.dtype), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        adjacency: Adjacency = ctx.adjacency
        of_bias = gradient.sum(0)
        of_vectors = adjacency.outgoing.product(adjacency.scale.to(gradient.dtype), gradient, torch.zeros_like(of_bias))
        return of_vectors, of_bias, None
