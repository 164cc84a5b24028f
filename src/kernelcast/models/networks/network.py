"""What all networks share: encoder, readout and the range of the output; each adds how nodes learn of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.errors import ConfigError
from kernelcast.models.batching import GraphBatch
from kernelcast.models.networks.encoder import NodeEncoder
from kernelcast.models.networks.readout import Readout


class GraphNetwork(nn.Module, ABC):
    """One number a program from its syntax tree; a subclass fills in `embed`.

    Args:
        node_kinds: size of the vocabulary of node kinds, from the data.
        edge_kinds: size of the vocabulary of edge kinds, from the data.
        node_features: features of a node, from the data.
        kernel_features: features of a program as a whole, from the data.
        width: width of a node's vector.
        kind_width: width of the embedding of a node's kind.
        readout: names of poolings, see `readout.POOLINGS`.
        dropout: share of values left out in training.

    Raises:
        ConfigError: a width or a share that cannot work.
    """

    output_shift: Tensor
    output_scale: Tensor

    def __init__(
        self,
        *,
        node_kinds: int,
        edge_kinds: int,
        node_features: int,
        kernel_features: int,
        width: int,
        kind_width: int,
        readout: Sequence[str],
        dropout: float,
    ) -> None:
        super().__init__()
        require_size("model.network.width", width)
        require_size("model.network.kind_width", kind_width)
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
            raise ConfigError(f"model.network.dropout={dropout}: it must be a number from 0 to below 1")
        self.edge_kinds = edge_kinds
        self.encoder = NodeEncoder(node_kinds, node_features, kind_width, width)
        self.readout = Readout(width, kernel_features, readout, dropout)
        self.register_buffer("output_shift", torch.zeros(()))
        self.register_buffer("output_scale", torch.ones(()))

    def set_output_range(self, shift: float, scale: float) -> None:
        """Makes an untrained network predict numbers of about this mean and spread."""
        self.output_shift.fill_(shift)
        self.output_scale.fill_(scale)

    @abstractmethod
    def embed(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """Vectors of nodes that know of the nodes around them."""

    def forward(self, batch: GraphBatch) -> Float[Tensor, "graphs"]:
        """One number a program, lower is faster."""
        return self.output_shift + self.output_scale * self.readout(self.embed(self.encoder(batch), batch), batch)


def require_size(key: str, value: object) -> None:
    """Makes sure that a width or a number of layers is a whole number of at least 1.

    Raises:
        ConfigError: it is not; the message names `key`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{key}={value}: it must be a whole number of at least 1")
