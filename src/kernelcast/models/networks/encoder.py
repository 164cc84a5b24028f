"""What every network does first: nodes of the syntax tree to vectors."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.models.batching import GraphBatch

LARGEST_DEVIATION = 10.0
"""Standardised features are cut here: a value far outside the training data says "large", no more."""


class NodeEncoder(nn.Module):
    """An embedding of the node's kind beside its standardised features, through one linear layer.

    Kaufman et al. 2021, section 3.2 (opcode embedding concatenated with the node's features). Mean and deviation of the
    features come from the training programs and are saved with the weights.

    Args:
        node_kinds: size of the vocabulary of kinds.
        node_features: features of a node.
        kind_width: width of the embedding.
        width: width of the vector that comes out.
    """

    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(self, node_kinds: int, node_features: int, kind_width: int, width: int) -> None:
        super().__init__()
        self.kind = nn.Embedding(node_kinds, kind_width)
        self.project = nn.Linear(kind_width + node_features, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("feature_mean", torch.zeros(node_features))
        self.register_buffer("feature_scale", torch.ones(node_features))

    def standardise(self, mean: Float[Tensor, "features"], deviation: Float[Tensor, "features"]) -> None:
        """Takes mean and deviation from the training nodes; a feature that never varies is only centred."""
        varies = deviation > 1e-6
        self.feature_mean.copy_(mean)
        self.feature_scale.copy_(torch.where(varies, 1.0 / deviation.clamp_min(1e-6), torch.ones_like(deviation)))

    def forward(self, batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """One vector a node."""
        features = (batch.node_features - self.feature_mean) * self.feature_scale
        features = features.clamp(-LARGEST_DEVIATION, LARGEST_DEVIATION)
        joined = torch.cat([self.kind(batch.node_kind), features], dim=1)
        return torch.relu(self.norm(self.project(joined)))
