"""What every network does first: nodes of the syntax tree to vectors."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.models.networks.standardised import Standardised
from kernelcast.models.view_batches import GraphBatch


class NodeEncoder(nn.Module):
    """An embedding of the node's kind beside its standardised features, through one linear layer.

    Kaufman et al. 2021, section 3.2 (opcode embedding concatenated with the node's features).

    Args:
        node_kinds: size of the vocabulary of kinds.
        node_features: features of a node.
        kind_width: width of the embedding.
        width: width of the vector that comes out.
    """

    def __init__(self, node_kinds: int, node_features: int, kind_width: int, width: int) -> None:
        super().__init__()
        self.kind = nn.Embedding(node_kinds, kind_width)
        self.scale = Standardised(node_features)
        self.project = nn.Linear(kind_width + node_features, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """One vector a node."""
        joined = torch.cat([self.kind(batch.node_kind), self.scale(batch.node_features)], dim=1)
        return torch.relu(self.norm(self.project(joined)))
