"""The TreeGRU of Chen et al. 2018: a recurrent network from the leaves of the syntax tree up to its root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.errors import ConfigError
from kernelcast.models.networks.checks import require_size
from kernelcast.models.networks.network import GraphNetwork
from kernelcast.models.networks.widths import Widths
from kernelcast.models.view_batches import GraphBatch


class ChildSumGRU(nn.Module):
    r"""A gated recurrent unit whose past is the sum over a node's children.

    With input x of a node and states h_c of its children::

        s = sum_c h_c                     r_c = sigmoid(W_r x + U_r h_c)
        z = sigmoid(W_z x + U_z s)        n   = tanh(W_n x + U_n sum_c r_c * h_c)
        h = z * s + (1 - z) * n

    Chen et al. 2018 (arXiv 1805.08166), section 3.1; the child-sum form is that of Tai et al. 2015, section 3.1. All
    nodes of one depth, in all programs of the batch, are one matrix product.

    Args:
        width: of inputs and states.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(width, 3 * width)
        self.update = nn.Linear(width, width, bias=False)
        self.reset = nn.Linear(width, width, bias=False)
        self.candidate = nn.Linear(width, width, bias=False)

    def forward(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """The state of every node."""
        inputs = self.input(nodes)
        states: list[Tensor] = []
        for depth in range(len(batch.levels) - 1, -1, -1):
            level = batch.levels[depth]
            of_update, of_reset, of_candidate = inputs[level].chunk(3, dim=1)
            if not states:
                past = gated = torch.zeros_like(of_update)
            else:
                children = states[-1]
                place = batch.slot[batch.parent[batch.levels[depth + 1]]]
                reset = torch.sigmoid(of_reset[place] + self.reset(children))
                past = torch.zeros_like(of_update).index_add(0, place, children)
                gated = torch.zeros_like(of_update).index_add(0, place, reset * children)
            update = torch.sigmoid(of_update + self.update(past))
            candidate = torch.tanh(of_candidate + self.candidate(gated))
            states.append(update * past + (1 - update) * candidate)
        order = torch.cat(batch.levels[::-1])
        return torch.empty_like(nodes).index_copy(0, order, torch.cat(states))


class TreeGRU(GraphNetwork):
    """Layers of `ChildSumGRU`, each with a residual connection.

    Args:
        widths: see `GraphNetwork`, as the others that are not listed here.
        layers: number of passes from the leaves to the root.
    """

    def __init__(
        self,
        *,
        widths: Widths,
        view: str,
        width: int,
        kind_width: int,
        layers: int,
        readout: Sequence[str],
        dropout: float,
        reduction: Mapping[str, int] | None = None,
        estimate: bool = False,
        machine_code: bool = False,
    ) -> None:
        super().__init__(
            widths=widths,
            view=view,
            width=width,
            kind_width=kind_width,
            readout=readout,
            dropout=dropout,
            reduction=reduction,
            estimate=estimate,
            machine_code=machine_code,
        )
        require_size("model.network.layers", layers)
        if view != "ast":
            raise ConfigError(f"model.network.view={view}: a TreeGRU needs a tree, use ast")
        self.recurrences = nn.ModuleList(ChildSumGRU(width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def embed(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """Vectors of nodes that know of everything below them."""
        for recurrence, norm in zip(self.recurrences, self.norms, strict=True):
            nodes = nodes + self.dropout(norm(recurrence(nodes, batch)))
        return nodes
