"""What every network does last: vectors of the nodes, and features of the program as a whole, to one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch_geometric.utils import scatter

from kernelcast.errors import ConfigError
from kernelcast.models.networks.standardised import Standardised
from kernelcast.models.view_batches import GraphBatch


def pool_mean(nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "graphs width"]:
    """Mean over the nodes of each program."""
    return scatter(nodes, batch.graph, dim=0, dim_size=batch.num_graphs, reduce="mean")


def pool_sum(nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "graphs width"]:
    """A tenth of the sum over the nodes of each program, to stay near the scale of the other poolings."""
    return scatter(nodes, batch.graph, dim=0, dim_size=batch.num_graphs, reduce="sum") / 10.0


def pool_max(nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "graphs width"]:
    """Largest value over the nodes of each program."""
    return scatter(nodes, batch.graph, dim=0, dim_size=batch.num_graphs, reduce="max")


def pool_root(nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "graphs width"]:
    """The vector of each program's root (Chen et al. 2018: a TreeGRU gathers the whole tree there)."""
    return nodes[batch.root]


POOLINGS: dict[str, Callable[[Tensor, GraphBatch], Tensor]] = {
    "mean": pool_mean,
    "sum": pool_sum,
    "max": pool_max,
    "root": pool_root,
}


class Readout(nn.Module):
    """Poolings side by side, normalised, and the kernel's features beside them, through one hidden layer.

    Kaufman et al. 2021, section 3.2: static performance features and tile sizes join the kernel's embedding.

    Args:
        width: width of a node's vector.
        kernel_features: features of a program as a whole; may be 0.
        poolings: names of `POOLINGS`.
        dropout: share of the hidden layer left out in training.

    Raises:
        ConfigError: an unknown pooling, or none.
    """

    def __init__(self, width: int, kernel_features: int, poolings: Sequence[str], dropout: float) -> None:
        super().__init__()
        unknown = [name for name in poolings if name not in POOLINGS]
        if unknown or not poolings:
            raise ConfigError(f"model.network.readout={list(poolings)}: use one or more of {', '.join(POOLINGS)}")
        self.poolings = tuple(poolings)
        self.scale = Standardised(kernel_features)
        self.norm = nn.LayerNorm(width * len(self.poolings))
        self.layers = nn.Sequential(
            nn.Linear(width * len(self.poolings) + kernel_features, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, 1),
        )

    def forward(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "graphs"]:
        """One number a program."""
        pooled = torch.cat([POOLINGS[name](nodes, batch) for name in self.poolings], dim=1)
        return self.layers(torch.cat([self.norm(pooled), self.scale(batch.kernel_features)], dim=1)).squeeze(1)
