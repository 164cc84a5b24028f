"""What networks share: the views that they look at, the range of the output, and the frame of those over graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kernelcast.errors import ConfigError
from kernelcast.graphs.views import ESTIMATES
from kernelcast.models.batching import Batch
from kernelcast.models.networks.checks import require_share, require_size
from kernelcast.models.networks.encoder import NodeEncoder
from kernelcast.models.networks.readout import Readout
from kernelcast.models.networks.reductions import ReductionSettings
from kernelcast.models.networks.standardised import Standardised
from kernelcast.models.networks.widths import ViewWidths, Widths
from kernelcast.models.setting_checks import require_flag
from kernelcast.models.view_batches import GraphBatch

GRAPH_VIEWS = ("ast", "dataflow")


class Network(nn.Module, ABC):
    """One number a program from some of its views.

    A subclass takes `widths` (see `Widths`) and its own settings, all by name, sets `views` to what it looks at (the
    first one counts for the size of a batch), with `estimates` among them `estimate` and `machine_code` to what that
    view is to hold, lists what it standardises, and computes `score`.
    """

    views: tuple[str, ...]
    estimate: bool = False
    machine_code: bool = False
    output_shift: Tensor
    output_scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("output_shift", torch.zeros(()))
        self.register_buffer("output_scale", torch.ones(()))

    @abstractmethod
    def standardised(self) -> Mapping[tuple[str, str], Standardised]:
        """What is brought to mean 0 and deviation 1, by the view and the field in it; taken from the data in `fit`."""

    @abstractmethod
    def score(self, batch: Batch) -> Float[Tensor, "programs"]:
        """One number a program, without unit."""

    def forward(self, batch: Batch) -> Float[Tensor, "programs"]:
        """One number a program, lower is faster, in the unit of the loss."""
        # in mixed precision a score has too few digits for seconds
        return self.output_shift + self.output_scale * self.score(batch).to(self.output_scale.dtype)

    def set_output_range(self, shift: float, scale: float) -> None:
        """Makes an untrained network predict numbers of about this mean and spread."""
        self.output_shift.fill_(shift)
        self.output_scale.fill_(scale)


class GraphNetwork(Network, ABC):
    """A network over one view of graphs; a subclass fills in `embed`.

    Args:
        widths: of the data.
        view: `ast` (the syntax tree) or `dataflow`.
        width: width of a node's vector.
        kind_width: width of the embedding of a node's kind.
        readout: names of reductions, see `reductions.POOLINGS` and `reductions.LEARNED`.
        dropout: share of values left out in training.
        reduction: settings of the reductions that have weights, see `ReductionSettings`; the defaults of it by default.
        estimate: whether the readout sees what the analytical model makes of the program, beside the kernel's features.
        machine_code: whether it sees what LLVM made of the program.

    Raises:
        ConfigError: a view, a width, a share or a flag that cannot work.
    """

    def __init__(
        self,
        *,
        widths: Widths,
        view: str,
        width: int,
        kind_width: int,
        readout: Sequence[str],
        dropout: float,
        reduction: Mapping[str, int] | None = None,
        estimate: bool = False,
        machine_code: bool = False,
    ) -> None:
        super().__init__()
        if view not in GRAPH_VIEWS:
            raise ConfigError(f"model.network.view={view}: use {' or '.join(GRAPH_VIEWS)}")
        require_size("model.network.width", width)
        require_size("model.network.kind_width", kind_width)
        require_share("model.network.dropout", dropout)
        require_flag("model.network.estimate", estimate)
        require_flag("model.network.machine_code", machine_code)
        of_view = view_widths(widths, view)
        self.view = view
        self.estimate, self.machine_code = estimate, machine_code
        self.views = (view, ESTIMATES) if estimate or machine_code else (view,)
        estimates = view_widths(widths, ESTIMATES).features if ESTIMATES in self.views else 0
        self.encoder = NodeEncoder(of_view.kinds, of_view.features, kind_width, width)
        settings = ReductionSettings.of(reduction)
        self.readout = Readout(width, of_view.kernel_features, readout, dropout, settings, estimates)

    def standardised(self) -> Mapping[tuple[str, str], Standardised]:
        """Features of the nodes and of the kernel, and the estimates."""
        found = {(self.view, "node_features"): self.encoder.scale, (self.view, "kernel_features"): self.readout.scale}
        return found | ({(ESTIMATES, "values"): self.readout.estimate_scale} if ESTIMATES in self.views else {})

    @abstractmethod
    def embed(self, nodes: Float[Tensor, "nodes width"], batch: GraphBatch) -> Float[Tensor, "nodes width"]:
        """Vectors of nodes that know of the nodes around them."""

    def score(self, batch: Batch) -> Float[Tensor, "programs"]:
        """Encodes the nodes, lets them learn of each other, and reads the program out of them."""
        graphs = batch.graphs(self.view)
        estimates = batch.flat(ESTIMATES).values if ESTIMATES in self.views else None
        return self.readout(self.embed(self.encoder(graphs), graphs), graphs, estimates)


def view_widths(widths: Widths, view: str) -> ViewWidths:
    """The widths of the view.

    Raises:
        ConfigError: the data do not have it.
    """
    try:
        return widths[view]
    except KeyError:
        raise ConfigError(
            f"the network looks at the view `{view}`, which these programs do not have (only {', '.join(widths)}); add "
            "it to features.views and run `dvc repro graphs`"
        ) from None
