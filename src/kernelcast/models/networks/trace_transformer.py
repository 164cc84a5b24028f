"""The trace network of Zhai et al. 2023 (TLP): attention over the steps of the schedule, which needs no module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from kernelcast.graphs.trace_columns import BLOCK_BUCKETS, COLUMN_NAMES, WORD_BUCKETS, WORDS
from kernelcast.models.batching import Batch
from kernelcast.models.networks.attention import SelfAttention
from kernelcast.models.networks.checks import require_share, require_size
from kernelcast.models.networks.network import Network, view_widths
from kernelcast.models.networks.readout import Readout
from kernelcast.models.networks.reductions import Elements, ReductionSettings
from kernelcast.models.networks.standardised import Standardised
from kernelcast.models.networks.widths import Widths
from kernelcast.models.view_batches import StepBatch

CODES: dict[str, int] = {
    # none, the known words, the buckets of others, the long ones
    "word": len(WORDS) + WORD_BUCKETS + 2,
    "block": BLOCK_BUCKETS + 1,
}
"""Columns of a step that are codes and no numbers, and how many codes there are."""


class TraceTransformer(Network):
    """Steps to vectors, layers of self-attention over those of a program, and a readout.

    A step's vector comes of embeddings of its primitive, its first text and its block's name beside its standardised
    numbers. Zhai et al. 2023 (arXiv 2211.03578), section 4: a linear layer over the features of a step, self-attention,
    and the sum over the steps. Embeddings instead of one-hot codes are ours. A program without steps is as good as its
    readout without any.

    Args:
        widths: of the data.
        width: of a step's vector.
        code_width: of each embedding.
        layers: of self-attention.
        heads: of the attention; they divide `width`.
        window: steps that attend to each other; longer traces are cut into so many at a time, see `SelfAttention`.
        readout: names of reductions, see `reductions.POOLINGS` and `reductions.LEARNED`.
        dropout: share of values left out in training.

    Raises:
        ConfigError: a width, a number or a share that cannot work.
    """

    views = ("trace",)
    numbers: Int64[Tensor, "numbers"]

    def __init__(
        self,
        *,
        widths: Widths,
        width: int,
        code_width: int,
        layers: int,
        heads: int,
        window: int,
        readout: Sequence[str],
        dropout: float,
    ) -> None:
        super().__init__()
        sizes = {"width": width, "code_width": code_width, "layers": layers, "heads": heads, "window": window}
        for name, value in sizes.items():
            require_size(f"model.network.{name}", value)
        require_share("model.network.dropout", dropout)
        of_view = view_widths(widths, "trace")
        self.primitive = nn.Embedding(of_view.kinds, code_width)
        self.codes = nn.ModuleDict({name: nn.Embedding(count, code_width) for name, count in CODES.items()})
        self.places = {name: COLUMN_NAMES.index(name) for name in CODES}
        kept = [column for column in range(of_view.features) if column not in self.places.values()]
        self.register_buffer("numbers", torch.tensor(kept), persistent=False)
        self.scale = Standardised(of_view.features)
        self.project = nn.Linear((1 + len(CODES)) * code_width + len(kept), width)
        self.norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, layers, dropout, window)
        self.readout = Readout(width, 0, readout, dropout, ReductionSettings(heads=heads, window=window))

    def standardised(self) -> Mapping[tuple[str, str], Standardised]:
        """Every column of the steps; of the codes it is not used."""
        return {("trace", "values"): self.scale}

    def encode(self, steps: StepBatch) -> Float[Tensor, "steps width"]:
        """One vector a step, by itself."""
        parts = [self.primitive.weight.index_select(0, steps.primitive)]
        for name, embedding in self.codes.items():
            assert isinstance(embedding, nn.Embedding)
            parts.append(embedding.weight.index_select(0, steps.values[:, self.places[name]].long()))
        parts.append(self.scale(steps.values).index_select(1, self.numbers))
        return torch.relu(self.norm(self.project(torch.cat(parts, dim=1))))

    def score(self, batch: Batch) -> Float[Tensor, "programs"]:
        """One number a program from its trace alone."""
        steps = batch.steps("trace")
        attended = self.attention(self.encode(steps), steps.counts)
        return self.readout.read(attended, Elements(steps.program, steps.counts))
