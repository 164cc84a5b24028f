"""What every network does first: nodes of the syntax tree to vectors."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from kernelcast.models.networks.norm_relu import norm_relu
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
        # the columns of the kinds by kind, not by node: the layer is the same, and no node's kind needs a gradient
        of_kind, of_features = self.project.weight.tensor_split([self.kind.embedding_dim], dim=1)
        known = functional.linear(self.scale(batch.node_features), of_features, self.project.bias)
        by_kind = functional.linear(self.kind.weight, of_kind)
        return norm_relu(known + by_kind.index_select(0, batch.node_kind), self.norm)
