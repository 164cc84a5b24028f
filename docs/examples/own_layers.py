"""A graph network of one's own: neighbours averaged and gated. docs/how-to/own-model.md says where this file goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.models.networks.checks import require_size
from kernelcast.models.networks.network import GraphNetwork
from kernelcast.models.networks.segments import segment_mean
from kernelcast.models.networks.widths import Widths
from kernelcast.models.view_batches import GraphBatch


class GatedMean(GraphNetwork):
    """Every node takes in the mean of its neighbours, as much of it as a gate lets through.

    `x <- x + sigmoid(U [x, m]) * relu(V m)`, m being the mean over the nodes with an edge to x.

    Args:
        widths: of the data; see `GraphNetwork`, as the others that are not listed here.
        layers: how often.
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
    ) -> None:
        super().__init__(
            widths=widths,
            view=view,
            width=width,
            kind_width=kind_width,
            readout=readout,
            dropout=dropout,
            reduction=reduction,
        )
        require_size("model.network.layers", layers)
        self.gates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.values = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def embed(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """Vectors of nodes that know of the nodes up to `layers` edges away."""
        source, destination = batch.edge_index
        degree = torch.bincount(destination, minlength=batch.num_nodes)
        for gate, value in zip(self.gates, self.values, strict=True):
            mean = segment_mean(nodes.index_select(0, source), destination, degree)
            open_share = torch.sigmoid(gate(torch.cat([nodes, mean], dim=1)))
            nodes = nodes + open_share * torch.relu(value(mean))
        return nodes
