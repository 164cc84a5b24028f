"""Self-attention over the elements of each program, in windows: a long program costs what many short ones cost."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from kernelcast.errors import ConfigError
from kernelcast.models.networks.segments import owners, places

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Windows:
    """Elements of programs, cut into windows and padded to the longest of them.

    Every program begins a window, so what else is in the batch changes nothing.

    Attributes:
        count: windows.
        longest: elements of the longest window.
        index: where each element is among the `count * longest` places.
    """

    count: int
    longest: int
    index: Int64[Tensor, "elements"]

    @classmethod
    def of(cls, counts: Int64[Tensor, "programs"], most: int) -> Windows:
        """Windows of `most` consecutive elements of a program; the last one of a program may have fewer."""
        place = places(counts)
        of_program = (counts + most - 1) // most
        first = torch.cumsum(of_program, 0) - of_program
        window = first.index_select(0, owners(counts)) + place // most
        longest = min(int(counts.max()), most)
        return cls(int(of_program.sum()), longest, window * longest + place % most)

    def pad(self, values: Float[Tensor, "elements width"]) -> Float[Tensor, "windows longest width"]:
        """The values by window, zeros where a window has no element."""
        padded = values.new_zeros(self.count * self.longest, values.shape[1]).index_copy(0, self.index, values)
        return padded.view(self.count, self.longest, -1)

    def absent(self) -> Bool[Tensor, "windows longest"]:
        """Where a window has no element."""
        absent = torch.ones(self.count * self.longest, dtype=torch.bool, device=self.index.device)
        return absent.index_fill_(0, self.index, False).view(self.count, self.longest)

    def unpad(self, padded: Float[Tensor, "windows longest width"]) -> Float[Tensor, "elements width"]:
        """What `pad` was given."""
        return padded.flatten(0, 1).index_select(0, self.index)


class SelfAttention(nn.Module):
    """Layers of a Transformer encoder over the elements of each program, which know their place in it.

    Vaswani et al. 2017 (arXiv 1706.03762), sections 3.1 and 3.5 (sines and cosines of the place), normalised before
    each part instead of after it. An element attends to those of its own window, the `window` consecutive elements of
    its program that it is among; a program no longer than that attends to all of itself. So memory grows with the
    elements times `window`, not with their square. The log says when a program is cut.

    Args:
        width: of an element's vector.
        heads: of the attention; they divide `width`.
        layers: number of layers; the hidden layer of each is twice as wide as an element's vector.
        dropout: share of values left out in training.
        window: elements of a window.

    Raises:
        ConfigError: the heads do not divide the width.
    """

    def __init__(self, width: int, heads: int, layers: int, dropout: float, window: int) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"model.network.width={width}: the {heads} heads of the attention must divide it")
        self.window = window
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self._cut = False

    def forward(
        self, elements: Float[Tensor, "elements width"], counts: Int64[Tensor, "programs"]
    ) -> Float[Tensor, "elements width"]:
        """New vectors of all elements."""
        if not len(elements):
            return elements
        if not self._cut and int(counts.max()) > self.window:
            self._cut = True
            logger.info(
                "a program has %d elements: attention goes by windows of %d of them", int(counts.max()), self.window
            )
        windows = Windows.of(counts, self.window)
        padded = windows.pad(elements + positions(places(counts), elements.shape[1]))
        absent = windows.absent()
        for layer in self.layers:
            padded = layer(padded, src_key_padding_mask=absent)
        return windows.unpad(padded)


def positions(place: Int64[Tensor, "elements"], width: int) -> Float[Tensor, "elements width"]:
    """Sines and cosines of each place, of wave lengths from 2 pi to 10,000 times that."""
    half = (width + 1) // 2
    rates = torch.exp(torch.arange(half, device=place.device) * (-math.log(10_000.0) / half))
    angles = place[:, None].float() * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
