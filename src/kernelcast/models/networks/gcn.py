"""The graph convolutional network of Tomczak et al. 2019 over the syntax tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.models.networks.adjacency import Adjacency
from kernelcast.models.networks.checks import require_size
from kernelcast.models.networks.network import GraphNetwork
from kernelcast.models.networks.norm_relu import norm_relu
from kernelcast.models.networks.widths import Widths
from kernelcast.models.view_batches import GraphBatch


class GraphConvolution(nn.Module):
    """`D^-1/2 (A + I) D^-1/2 x W + b`, the same as PyTorch Geometric's `GCNConv` with the same weights.

    Kipf and Welling 2017 (arXiv 1609.02907), equation 2.

    Args:
        width: of a node's vector, before and after.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lin = nn.Linear(width, width, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, nodes: Float[Tensor, "nodes width"], adjacency: Adjacency) -> Float[Tensor, "nodes width"]:
        """New vectors of all nodes."""
        return adjacency.times(self.lin(nodes), self.bias)


class GCN(GraphNetwork):
    """Convolutions over all edges alike, each with a residual connection.

    `x <- x + dropout(relu(norm(D^-1/2 (A + I) D^-1/2 x W)))`, A being the adjacency of all edges, whatever their kind.
    Tomczak et al. 2019 (arXiv 1904.11876), section 3; Kipf and Welling 2017 for the convolution.

    Args:
        widths: see `GraphNetwork`, as the others that are not listed here.
        layers: number of convolutions.
    """

    def __init__(
        self,
        *,
        widths: Widths,
        view: str,
        width: int,
        kind_width: int,
        layers: int,
        readout: Sequence[str],
        dropout: float,
        reduction: Mapping[str, int] | None = None,
        estimate: bool = False,
        machine_code: bool = False,
    ) -> None:
        super().__init__(
            widths=widths,
            view=view,
            width=width,
            kind_width=kind_width,
            readout=readout,
            dropout=dropout,
            reduction=reduction,
            estimate=estimate,
            machine_code=machine_code,
        )
        require_size("model.network.layers", layers)
        self.convolutions = nn.ModuleList(GraphConvolution(width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.dropout = dropout

    def embed(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """Vectors of nodes that know of the nodes up to `layers` edges away."""
        # the same for all layers, so computed once
        adjacency = Adjacency.of(batch.edge_index, batch.num_nodes)
        share = self.dropout if self.training else 0.0
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            assert isinstance(norm, nn.LayerNorm)
            nodes = norm_relu(convolution(nodes, adjacency), norm, share, residual=nodes)
        return nodes
