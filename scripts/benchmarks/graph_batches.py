"""Batches a second beside PyTorch Geometric's DataLoader, on the same graphs, in turns."""

from __future__ import annotations

import logging
import time
from statistics import median
from typing import Any

import numpy as np
import torch
from graph_suite import GraphSuite
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from kernelcast.graphs.dataset.store import read_programs
from kernelcast.graphs.programs import Programs
from kernelcast.models.view_batches import graph_batch

logger = logging.getLogger(__name__)

BATCH_PROGRAMS = 64


def batch_figures(suite: GraphSuite) -> dict[str, object]:
    """The same rows in the same batches: ours from the store on disk, theirs from objects in memory."""
    store = suite.directory / "store"
    suite.build(suite.measured, store)
    programs = read_programs(store)
    listed = geometric(programs)
    loader: Any = DataLoader(listed, batch_size=BATCH_PROGRAMS, shuffle=True)
    random = np.random.default_rng(0)
    ours, theirs = [], []
    for number in range(8 if suite.quick else 21):
        rows = random.permutation(len(programs))
        started = time.perf_counter()
        for begin in range(0, len(rows), BATCH_PROGRAMS):
            graph_batch(programs.view("ast", rows[begin : begin + BATCH_PROGRAMS]))
        middle = time.perf_counter()
        for _ in loader:
            pass
        if number:
            ours.append((middle - started) / len(rows))
            theirs.append((time.perf_counter() - middle) / len(rows))
    ratio = median(their / our for our, their in zip(ours, theirs, strict=True))
    logger.info(
        "a graph: %.1f us, PyTorch Geometric %.1f us (%d graphs of %.0f nodes, %.0f edges)",
        median(ours) * 1e6, median(theirs) * 1e6, len(programs),
        programs.counts("ast", "node").mean(), programs.counts("ast", "edge").mean(),
    )  # fmt: skip
    return {
        "batches_vs_pyg": ratio,
        "microseconds_per_graph": median(ours) * 1e6,
        "microseconds_per_graph_pyg": median(theirs) * 1e6,
    }


def geometric(programs: Programs) -> list[Data]:
    """The same graphs as objects of PyTorch Geometric, with the fields that our batches have but depth and parents."""
    trees = programs.ast
    edge_index = torch.from_numpy(np.stack([trees.edge_source, trees.edge_target]).astype(np.int64))
    listed = []
    for program in range(len(programs)):
        nodes = slice(trees.node_offset[program], trees.node_offset[program + 1])
        edges = slice(trees.edge_offset[program], trees.edge_offset[program + 1])
        listed.append(
            Data(
                x=torch.from_numpy(trees.node_features[nodes]),
                kind=torch.from_numpy(trees.node_kind[nodes].astype(np.int64)),
                edge_index=edge_index[:, edges].contiguous(),
                edge_kind=torch.from_numpy(trees.edge_kind[edges].astype(np.int64)),
                kernel=torch.from_numpy(trees.kernel_features[program : program + 1]),
                y=torch.tensor([programs.log_seconds[program]], dtype=torch.float32),
                workload=torch.tensor([int(programs.workload[program])]),
            )
        )
    return listed
