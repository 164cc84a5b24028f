"""What makes one vector of a program of the vectors of its elements: poolings, a recurrent network, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from kernelcast.errors import ConfigError
from kernelcast.models.networks.attention import SelfAttention
from kernelcast.models.networks.checks import require_size
from kernelcast.models.networks.segments import places, segment_max, segment_mean, segment_sum


@dataclass(frozen=True)
class Elements:
    """Which elements are whose; those of a program stand side by side.

    Attributes:
        owner: the program of each element.
        counts: elements of each program; may be 0.
    """

    owner: Int64[Tensor, "elements"]
    counts: Int64[Tensor, "programs"]


Values = Float[Tensor, "elements width"]
Reduced = Float[Tensor, "programs width"]


def pool_mean(values: Values, elements: Elements) -> Reduced:
    """Mean over the elements of each program."""
    return segment_mean(values, elements.owner, elements.counts)


def pool_sum(values: Values, elements: Elements) -> Reduced:
    """A tenth of the sum over the elements of each program, to stay near the scale of the other poolings."""
    return segment_sum(values, elements.owner, len(elements.counts)) / 10.0


def pool_max(values: Values, elements: Elements) -> Reduced:
    """Largest value over the elements of each program."""
    return segment_max(values, elements.owner, elements.counts)


def pool_root(values: Values, elements: Elements) -> Reduced:
    """The vector of each program's first element, in a tree its root.

    Chen et al. 2018: a TreeGRU gathers the whole tree there.
    """
    present = torch.nonzero(elements.counts).squeeze(1)
    first = (torch.cumsum(elements.counts, 0) - elements.counts).index_select(0, present)
    reduced = values.new_zeros(len(elements.counts), values.shape[1])
    return reduced.index_copy(0, present, values.index_select(0, first))


POOLINGS: dict[str, Callable[[Tensor, Elements], Tensor]] = {
    "mean": pool_mean,
    "sum": pool_sum,
    "max": pool_max,
    "root": pool_root,
}
"""Reductions without weights."""


@dataclass(frozen=True)
class ReductionSettings:
    """Settings of the reductions that have weights.

    Attributes:
        layers: of the LSTM, and of the Transformer.
        heads: of the attention of the Transformer; they divide the width of an element's vector.
        window: elements that attend to each other; longer programs are cut into so many at a time, see `SelfAttention`.

    Raises:
        ConfigError: one is not a whole number of at least 1.
    """

    layers: int = 1
    heads: int = 4
    window: int = 256

    def __post_init__(self) -> None:
        for field in fields(self):
            require_size(f"model.network.reduction.{field.name}", getattr(self, field.name))

    @classmethod
    def of(cls, settings: Mapping[str, int] | None) -> ReductionSettings:
        """The settings that a configuration gives.

        Raises:
            ConfigError: one is not known, or not a whole number of at least 1.
        """
        given = dict(settings or {})
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"model.network.reduction.{name}: not a setting of a reduction, use {', '.join(known)}"
                )
        return cls(**given)


class LSTMReduction(nn.Module):
    """The last state of an LSTM over the elements in their order (Kaufman et al. 2021, section 3.2).

    Programs of any length side by side without padding: the first elements of all, then the second ones, and so on.

    Args:
        width: of an element's vector, and of the state.
        layers: LSTMs on top of each other.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers)

    def forward(self, values: Values, elements: Elements) -> Reduced:
        """One vector a program; zeros where it has no elements."""
        reduced = values.new_zeros(len(elements.counts), values.shape[1])
        if not len(values):
            return reduced
        longest_first = torch.argsort(elements.counts, descending=True, stable=True)
        rank = torch.empty_like(longest_first)
        rank[longest_first] = torch.arange(len(rank), device=rank.device)
        place = places(elements.counts)
        order = torch.argsort(place * len(rank) + rank.index_select(0, elements.owner))
        going = torch.bincount(place)
        _, (state, _) = self.lstm(PackedSequence(values.index_select(0, order), going.cpu()))
        return reduced.index_copy(0, longest_first[: state.shape[1]], state[-1])


class TransformerReduction(nn.Module):
    """A small Transformer encoder over the elements, then their mean (Kaufman et al. 2021, section 3.2).

    Args:
        width: of an element's vector.
        settings: heads, layers and window.
        dropout: share of values left out in training.
    """

    def __init__(self, width: int, settings: ReductionSettings, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(width, settings.heads, settings.layers, dropout, settings.window)

    def forward(self, values: Values, elements: Elements) -> Reduced:
        """One vector a program; zeros where it has no elements."""
        return pool_mean(self.attention(values, elements.counts), elements)


LEARNED: dict[str, Callable[[int, ReductionSettings, float], nn.Module]] = {
    "lstm": lambda width, settings, dropout: LSTMReduction(width, settings.layers),
    "transformer": TransformerReduction,
}
"""Reductions with weights."""


class Reductions(nn.Module):
    """Several reductions side by side.

    Args:
        width: of an element's vector.
        names: of `POOLINGS` and `LEARNED`.
        settings: of those with weights.
        dropout: share of values that those with weights leave out in training.

    Attributes:
        width: of what comes out.

    Raises:
        ConfigError: an unknown reduction, or none.
    """

    def __init__(self, width: int, names: Sequence[str], settings: ReductionSettings, dropout: float) -> None:
        super().__init__()
        known = (*POOLINGS, *LEARNED)
        if isinstance(names, str) or not names or any(name not in known for name in names):
            shown = names if isinstance(names, str) else list(names)
            raise ConfigError(f"model.network.readout={shown}: use a list of one or more of {', '.join(known)}")
        self.names = tuple(names)
        self.width = width * len(self.names)
        self.learned = nn.ModuleDict(
            {name: LEARNED[name](width, settings, dropout) for name in self.names if name in LEARNED}
        )

    def forward(self, values: Values, elements: Elements) -> Float[Tensor, "programs reduced"]:
        """One vector a program."""
        return torch.cat([self._reduction(name)(values, elements) for name in self.names], dim=1)

    def _reduction(self, name: str) -> Callable[[Tensor, Elements], Tensor]:
        return POOLINGS[name] if name in POOLINGS else self.learned[name]
