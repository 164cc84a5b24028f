"""GraphSAGE as Kaufman et al. 2021 use it, over the syntax tree with typed edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.utils import scatter

from kernelcast.models.networks.checks import require_size
from kernelcast.models.networks.network import GraphNetwork
from kernelcast.models.networks.widths import Widths
from kernelcast.models.setting_checks import require_flag
from kernelcast.models.view_batches import GraphBatch


class TypedSAGELayer(nn.Module):
    """Each node joins its own vector with the mean message of its neighbours, one mean for every kind of edge.

    `y_i = l2(f([x_i, mean_{j in N_1(i)} g(x_j), ..., mean_{j in N_K(i)} g(x_j)]))`, N_k(i) being the sources of the
    edges of kind k into i, f and g linear with a ReLU after g. Kaufman et al. 2021, section 3.2.

    Args:
        width: of a node's vector.
        message_width: of a message.
        edge_kinds: K; a kind has its own place in f, so that direction and type are told apart.
        l2_normalize: whether vectors are brought to length 1, as in the paper.
    """

    def __init__(self, width: int, message_width: int, edge_kinds: int, l2_normalize: bool) -> None:
        super().__init__()
        self.edge_kinds = edge_kinds
        self.l2_normalize = l2_normalize
        self.message = nn.Linear(width, message_width)
        self.update = nn.Linear(width + edge_kinds * message_width, width)

    def forward(
        self,
        nodes: Float[Tensor, "nodes width"],
        edge_index: Tensor,
        edge_kind: Tensor,
    ) -> Float[Tensor, "nodes width"]:
        """New vectors of all nodes."""
        messages = torch.relu(self.message(nodes))
        # one scatter for all kinds: every node has a place for each
        place = edge_index[1] * self.edge_kinds + edge_kind
        mean = scatter(messages[edge_index[0]], place, dim=0, dim_size=len(nodes) * self.edge_kinds, reduce="mean")
        updated = self.update(torch.cat([nodes, mean.view(len(nodes), -1)], dim=1))
        return functional.normalize(updated, dim=1) if self.l2_normalize else updated


class GraphSAGE(GraphNetwork):
    """Layers of `TypedSAGELayer`, each with a residual connection.

    Args:
        widths: see `GraphNetwork`, as the others that are not listed here.
        message_width: width of what a node tells its neighbours.
        layers: number of layers.
        l2_normalize: whether each layer brings the vectors to length 1.
    """

    def __init__(
        self,
        *,
        widths: Widths,
        view: str,
        width: int,
        kind_width: int,
        message_width: int,
        layers: int,
        l2_normalize: bool,
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
        require_size("model.network.message_width", message_width)
        require_flag("model.network.l2_normalize", l2_normalize)
        self.layers = nn.ModuleList(
            TypedSAGELayer(width, message_width, widths[view].edge_kinds, l2_normalize) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def embed(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """Vectors of nodes that know of the nodes up to `layers` edges away."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            nodes = nodes + self.dropout(torch.relu(norm(layer(nodes, batch.edge_index, batch.edge_kind))))
        return nodes
