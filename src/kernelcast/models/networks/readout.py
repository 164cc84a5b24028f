"""What a network does last: vectors of the elements, and features of the program as a whole, to one number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.models.networks.reductions import Elements, Reductions, ReductionSettings
from kernelcast.models.networks.standardised import Standardised
from kernelcast.models.view_batches import GraphBatch


class Readout(nn.Module):
    """Reductions side by side, normalised, and the kernel's features beside them, through one hidden layer.

    Kaufman et al. 2021, section 3.2: static performance features and tile sizes join the kernel's embedding.

    Args:
        width: width of an element's vector.
        kernel_features: features of a program as a whole; may be 0.
        names: of `reductions.POOLINGS` and `reductions.LEARNED`.
        dropout: share of the hidden layer left out in training.
        settings: of the reductions that have weights.
        estimates: columns of the view of estimates; 0 where the network does not look at it.

    Raises:
        ConfigError: an unknown reduction, or none.
    """

    def __init__(
        self,
        width: int,
        kernel_features: int,
        names: Sequence[str],
        dropout: float,
        settings: ReductionSettings | None = None,
        estimates: int = 0,
    ) -> None:
        super().__init__()
        self.reductions = Reductions(width, names, settings or ReductionSettings(), dropout)
        self.scale = Standardised(kernel_features)
        self.estimate_scale = Standardised(estimates)
        self.norm = nn.LayerNorm(self.reductions.width)
        self.layers = nn.Sequential(
            nn.Linear(self.reductions.width + kernel_features + estimates, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, 1),
        )

    def forward(
        self,
        nodes: Float[Tensor, "nodes width"],
        batch: GraphBatch,
        estimates: Float[Tensor, "graphs estimates"] | None = None,
    ) -> Float[Tensor, "graphs"]:
        """One number a program of a batch of graphs."""
        return self.read(nodes, Elements(batch.graph, batch.counts), batch.kernel_features, estimates)

    def read(
        self,
        values: Float[Tensor, "elements width"],
        elements: Elements,
        kernel_features: Float[Tensor, "programs kernel_features"] | None = None,
        estimates: Float[Tensor, "programs estimates"] | None = None,
    ) -> Float[Tensor, "programs"]:
        """One number a program of any batch."""
        known = [self.norm(self.reductions(values, elements))]
        if kernel_features is not None:
            known.append(self.scale(kernel_features))
        if estimates is not None:
            known.append(self.estimate_scale(estimates))
        return self.layers(torch.cat(known, dim=1)).squeeze(1)
