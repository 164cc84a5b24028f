"""The graph convolutional network of Tomczak et al. 2019 over the syntax tree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from kernelcast.models.networks.network import GraphNetwork, require_size
from kernelcast.models.networks.widths import Widths
from kernelcast.models.view_batches import GraphBatch


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
    ) -> None:
        super().__init__(
            widths=widths,
            view=view,
            width=width,
            kind_width=kind_width,
            readout=readout,
            dropout=dropout,
        )
        require_size("model.network.layers", layers)
        self.convolutions = nn.ModuleList(GCNConv(width, width, normalize=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def embed(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """Vectors of nodes that know of the nodes up to `layers` edges away."""
        # the same for all layers, so computed once
        edge_index, weight = gcn_norm(batch.edge_index, None, batch.num_nodes, dtype=nodes.dtype)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            nodes = nodes + self.dropout(torch.relu(norm(convolution(nodes, edge_index, weight))))
        return nodes
