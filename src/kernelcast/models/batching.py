"""Batches of graphs by array operations: no Python object per graph, and the same batches as PyTorch Geometric's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from kernelcast.graphs.programs import Programs


@dataclass(frozen=True)
class GraphBatch:
    """Syntax trees of several programs as one graph without edges between them.

    Nodes keep the order of `AstGraphs`: program after program, parents before children.

    Attributes:
        node_kind: index into `vocabulary.NODE_KINDS`.
        node_features: raw node features, not yet standardised.
        parent: the parent's number in the batch, -1 at a root.
        graph: the program that each node belongs to.
        root: number in the batch of each program's root.
        edge_index: source and destination, numbers in the batch.
        edge_kind: index into `vocabulary.EDGE_KINDS`.
        levels: the nodes of each depth, from the roots down.
        slot: place of each node in its own level.
        log_seconds: natural logarithm of the run time in seconds, the label.
        workload: the workload of each program.
    """

    node_kind: Int64[Tensor, "nodes"]
    node_features: Float32[Tensor, "nodes features"]
    parent: Int64[Tensor, "nodes"]
    graph: Int64[Tensor, "nodes"]
    root: Int64[Tensor, "graphs"]
    edge_index: Int64[Tensor, "2 edges"]
    edge_kind: Int64[Tensor, "edges"]
    levels: tuple[Int64[Tensor, "level_nodes"], ...]
    slot: Int64[Tensor, "nodes"]
    log_seconds: Float32[Tensor, "graphs"]
    workload: Int64[Tensor, "graphs"]

    @property
    def num_graphs(self) -> int:
        """Programs in the batch, also those whose last nodes have no edge."""
        return len(self.root)

    @property
    def num_nodes(self) -> int:
        """Nodes of all programs together."""
        return len(self.node_kind)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> GraphBatch:
        """The same batch on another device."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                moved[field.name] = tuple(part.to(device, non_blocking=non_blocking) for part in value)
            else:
                moved[field.name] = value.to(device, non_blocking=non_blocking)
        return GraphBatch(**moved)


def make_batch(programs: Programs, rows: Int64[np.ndarray, "graphs"]) -> GraphBatch:
    """The batch of the programs `rows`, in that order.

    The number of nodes comes from the offsets, never from the edges, so that nodes without an edge are kept and the
    following graphs stay in place.
    """
    rows = np.asarray(rows, dtype=np.int64)
    graphs = programs.ast.select(rows)
    first_node = graphs.node_offset[:-1]
    node_counts = np.diff(graphs.node_offset)
    edge_shift = np.repeat(first_node, np.diff(graphs.edge_offset))
    parent = graphs.node_parent.astype(np.int64)
    parent = np.where(parent < 0, -1, parent + np.repeat(first_node, node_counts))
    levels, slot = _levels(graphs.node_depth)
    return GraphBatch(
        node_kind=torch.from_numpy(graphs.node_kind.astype(np.int64)),
        node_features=torch.from_numpy(np.ascontiguousarray(graphs.node_features, dtype=np.float32)),
        parent=torch.from_numpy(parent),
        graph=torch.from_numpy(np.repeat(np.arange(len(rows), dtype=np.int64), node_counts)),
        root=torch.from_numpy(np.ascontiguousarray(first_node)),
        edge_index=torch.from_numpy(graphs.edge_index.astype(np.int64) + edge_shift),
        edge_kind=torch.from_numpy(graphs.edge_kind.astype(np.int64)),
        levels=tuple(torch.from_numpy(level) for level in levels),
        slot=torch.from_numpy(slot),
        log_seconds=torch.from_numpy(programs.log_seconds[rows].astype(np.float32)),
        workload=torch.from_numpy(programs.workload[rows].astype(np.int64)),
    )


def pack(parts: Sequence[np.ndarray], sizes: Sequence[int], limit: int) -> list[np.ndarray]:
    """Joins neighbouring `parts` into batches whose `sizes` add up to at most `limit`; a larger part stands alone."""
    batches: list[np.ndarray] = []
    waiting: list[np.ndarray] = []
    total = 0
    for part, size in zip(parts, sizes, strict=True):
        if waiting and total + size > limit:
            batches.append(np.concatenate(waiting))
            waiting, total = [], 0
        waiting.append(part)
        total += size
    if waiting:
        batches.append(np.concatenate(waiting))
    return batches


class ShuffledBatches:
    """Training batches: another order every epoch, the same ones for the same seed.

    Programs of a workload are shuffled and cut into chunks; the chunks of all workloads are shuffled and packed into
    batches. So a batch has pairs to compare from several workloads, and never more nodes than it may.
    """

    def __init__(self, programs: Programs, batch_nodes: int, chunk_programs: int, seed: int) -> None:
        self._programs = programs
        self._batch_nodes = batch_nodes
        self._chunk_programs = chunk_programs
        self._seed = seed
        self._epoch = 0
        self._sizes = np.diff(programs.ast.node_offset)
        order = np.argsort(programs.workload, kind="stable")
        cuts = np.flatnonzero(np.diff(programs.workload[order])) + 1
        self._workloads = np.split(order, cuts) if len(order) else []

    def plan(self, epoch: int) -> list[Int64[np.ndarray, "graphs"]]:
        """The rows of every batch of `epoch`."""
        random = np.random.default_rng([self._seed, epoch])
        chunks: list[np.ndarray] = []
        for rows in self._workloads:
            # parts of equal size: a last chunk of one program would have nothing to be compared with
            pieces = -(-len(rows) // self._chunk_programs)
            for piece in np.array_split(random.permutation(rows), pieces):
                chunks += pack(np.split(piece, len(piece)), self._sizes[piece].tolist(), self._batch_nodes)
        chunks = [chunks[index] for index in random.permutation(len(chunks))]
        return pack(chunks, [int(self._sizes[chunk].sum()) for chunk in chunks], self._batch_nodes)

    def __iter__(self) -> Iterator[GraphBatch]:
        plan = self.plan(self._epoch)
        self._epoch += 1
        return (make_batch(self._programs, rows) for rows in plan)


class SequentialBatches:
    """Batches for validation and prediction, in the order of `rows` (all of them, as they stand, by default)."""

    def __init__(self, programs: Programs, batch_nodes: int, rows: Int64[np.ndarray, "graphs"] | None = None) -> None:
        self._programs = programs
        chosen = np.arange(len(programs), dtype=np.int64) if rows is None else np.asarray(rows, dtype=np.int64)
        sizes = np.diff(programs.ast.node_offset)[chosen].tolist()
        self._plan = pack(np.split(chosen, len(chosen)), sizes, batch_nodes) if len(chosen) else []

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[GraphBatch]:
        return (make_batch(self._programs, rows) for rows in self._plan)


def _levels(depth: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    order = np.argsort(depth, kind="stable").astype(np.int64)
    counts = np.bincount(depth) if len(depth) else np.zeros(0, dtype=np.int64)
    ends = np.cumsum(counts)
    slot = np.empty(len(depth), dtype=np.int64)
    slot[order] = np.arange(len(depth), dtype=np.int64) - np.repeat(ends - counts, counts)
    return np.split(order, ends[:-1]) if len(depth) else [], slot
