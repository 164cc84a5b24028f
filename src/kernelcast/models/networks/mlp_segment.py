"""The segment-sum network of Zheng et al. 2021 (TenSet): statements on their own, then their sum."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.errors import ConfigError
from kernelcast.models.batching import Batch
from kernelcast.models.networks.checks import require_share, require_size
from kernelcast.models.networks.network import Network, view_widths
from kernelcast.models.networks.segments import segment_sum
from kernelcast.models.networks.standardised import Standardised
from kernelcast.models.networks.widths import Widths

VIEWS = ("statements", "per_store")


class SegmentMLP(Network):
    """`f(sum_i g(x_i))` over the rows x_i of a program, g and f being multilayer perceptrons; f has residual layers.

    Zheng et al. 2021 (TenSet, NeurIPS Datasets and Benchmarks), section 5 and appendix; they use the rows of
    `per_store`. A program without rows is the empty sum.

    Args:
        widths: of the data.
        view: `statements`, a row a statement, or `per_store`, TVM's features of every store.
        width: of all hidden layers.
        row_layers: layers of g.
        program_layers: residual layers of f.
        dropout: share of values left out in training.

    Raises:
        ConfigError: a view, a width or a share that cannot work.
    """

    def __init__(
        self, *, widths: Widths, view: str, width: int, row_layers: int, program_layers: int, dropout: float
    ) -> None:
        super().__init__()
        if view not in VIEWS:
            raise ConfigError(f"model.network.view={view}: use {' or '.join(VIEWS)}")
        require_size("model.network.width", width)
        require_size("model.network.row_layers", row_layers)
        require_size("model.network.program_layers", program_layers)
        require_share("model.network.dropout", dropout)
        features = view_widths(widths, view).features
        self.view = view
        self.views = (view,)
        self.scale = Standardised(features)
        hidden = [features] + [width] * row_layers
        self.row_layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(hidden))
        self.norm = nn.LayerNorm(width)
        self.program_layers = nn.ModuleList(nn.Linear(width, width) for _ in range(program_layers))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, 1)

    def standardised(self) -> Mapping[tuple[str, str], Standardised]:
        """Every column of the rows."""
        return {(self.view, "values"): self.scale}

    def score(self, batch: Batch) -> Float[Tensor, "programs"]:
        """One number a program from the sum over its rows."""
        rows = batch.rows(self.view)
        values = self.scale(rows.values)
        for layer in self.row_layers:
            values = torch.relu(layer(values))
        programs = self.norm(segment_sum(values, rows.program, len(rows.counts)))
        for layer in self.program_layers:
            programs = programs + self.dropout(torch.relu(layer(programs)))
        return self.output(programs).squeeze(1)
