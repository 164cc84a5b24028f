"""One epoch of the GCN beside the same network of PyTorch Geometric, fed by its DataLoader."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from geometric_gcn import GeometricGCN
from graph_batches import BATCH_PROGRAMS, geometric
from graph_suite import SEED, GraphSuite
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from kernelcast.graphs.dataset.store import read_programs
from kernelcast.graphs.programs import Programs
from kernelcast.models.batching import Batches, moments
from kernelcast.models.losses import LogMSE
from kernelcast.models.networks.gcn import GCN
from kernelcast.models.networks.widths import widths_of
from kernelcast.stages.config_nodes import project_root

logger = logging.getLogger(__name__)

PASSES, QUICK_PASSES = 21, 9


def epoch_figures(suite: GraphSuite) -> dict[str, object]:
    """Whole epochs in turns: batches, forward, backward, optimiser; ours from the store on disk, theirs from memory.

    What is compared is the loop over an epoch, the same function for both: `Batches`, `GCN` and its readout, that
    `kernelcast train` runs, beside `DataLoader`, `GCNConv` and poolings of PyTorch Geometric. The loss, the fused AdamW
    and the weights to begin with are the same; neither has Lightning around it, a worker process, or a second thread.
    Seconds are those of the processor, so that another process that runs meanwhile counts little.

    Theirs once as `GCNConv` comes, which counts degrees in every layer, and once with degrees counted once a batch.
    """
    store = suite.directory / "store"
    suite.build(suite.measured, store)
    programs = read_programs(store)
    with initialize_config_dir(str(Path(project_root()) / "conf"), version_base="1.3"):
        config = compose("train", ["model=gcn", "trainer=default"])
    torch.manual_seed(SEED)
    ours = _network(config, programs)
    plain, careful = (GeometricGCN(ours, config.model.network.dropout, once) for once in (False, True))
    listed = geometric(programs)
    own_batches, their_batches = OwnBatches(programs), GeometricBatches(listed)
    _require_equal(ours, (plain, careful), programs, listed)
    rate = config.trainer.learning_rate
    seconds = _in_turns(
        {
            "epoch_seconds": _epochs(ours, own_batches, rate),
            "epoch_seconds_pyg": _epochs(plain, their_batches, rate),
            "epoch_seconds_pyg_degrees_once": _epochs(careful, their_batches, rate),
            "feeding_seconds": lambda: _exhaust(own_batches),
            "feeding_seconds_pyg": lambda: _exhaust(their_batches),
        },
        QUICK_PASSES if suite.quick else PASSES,
    )
    nodes, edges = programs.counts("ast", "node").mean(), programs.counts("ast", "edge").mean()
    logger.info("%d programs of %.0f nodes, %.0f edges, in batches of %d", len(programs), nodes, edges, BATCH_PROGRAMS)
    return {
        "epoch_speedup_vs_pyg": _ratio(seconds["epoch_seconds"], seconds["epoch_seconds_pyg"]),
        "epoch_speedup_vs_pyg_degrees_once": _ratio(
            seconds["epoch_seconds"], seconds["epoch_seconds_pyg_degrees_once"]
        ),
        "feeding_speedup_vs_pyg": _ratio(seconds["feeding_seconds"], seconds["feeding_seconds_pyg"]),
        **{name: median(values) for name, values in seconds.items()},
        "programs": len(programs),
    }


class OwnBatches:
    """Our batches of all programs with their labels, in another order every time."""

    def __init__(self, programs: Programs) -> None:
        self._batches = Batches(programs, ["ast"])
        self._count = len(programs)
        self._random = np.random.default_rng(SEED)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        rows = self._random.permutation(self._count)
        for begin in range(0, len(rows), BATCH_PROGRAMS):
            batch = self._batches.read(rows[begin : begin + BATCH_PROGRAMS])
            yield batch, batch.labels.log_seconds


class GeometricBatches:
    """The same of PyTorch Geometric."""

    def __init__(self, listed: list[Data]) -> None:
        self._loader: Any = DataLoader(listed, batch_size=BATCH_PROGRAMS, shuffle=True)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        for batch in self._loader:
            yield batch, batch.y


def _network(config: DictConfig, programs: Programs) -> GCN:
    network: GCN = instantiate(config.model.network)(widths=widths_of(programs))
    scales = network.standardised()
    for field, found in moments(programs, list(scales)).items():
        scales[field].take(found)
    network.set_output_range(*LogMSE().output_range(programs.log_seconds))
    return network


def _require_equal(ours: GCN, theirs: Sequence[GeometricGCN], programs: Programs, listed: list[Data]) -> None:
    """Before anything is timed: with the same weights all predict the same."""
    rows = np.arange(min(BATCH_PROGRAMS, len(programs)))
    other = Batch.from_data_list([listed[row] for row in rows])
    with torch.no_grad():
        expected = ours.eval()(Batches(programs, ["ast"]).read(rows))
        for network in theirs:
            torch.testing.assert_close(network.eval()(other), expected, rtol=1e-4, atol=1e-4)


def _epochs(network: nn.Module, batches: Iterable[tuple[Any, Tensor]], rate: float) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, fused=True)

    def epoch() -> None:
        network.train()
        for batch, log_seconds in batches:
            optimizer.zero_grad()
            functional.mse_loss(network(batch), log_seconds).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return epoch


def _exhaust(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


def _in_turns(ways: dict[str, Callable[[], None]], passes: int) -> dict[str, list[float]]:
    """Processor seconds of every way in every pass; the first pass, in which all are new, does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(passes + 1):
        for name, way in ways.items():
            started = time.process_time()
            way()
            if number:
                seconds[name].append(time.process_time() - started)
    return seconds


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return median(their / our for our, their in zip(ours, theirs, strict=True))
