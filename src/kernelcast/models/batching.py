"""Batches of graphs by array operations: no Python object per graph, and the same batches as PyTorch Geometric's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from kernelcast.graphs.programs import Programs
from kernelcast.graphs.views import AstGraphs, DataflowGraphs, GraphView

AST = "ast"

PIECE_NODES = 200_000
"""Nodes that are read at once where all programs are gone through."""


@dataclass(frozen=True)
class GraphBatch:
    """Graphs of several programs as one graph without edges between them.

    Nodes keep the order of the view: program after program, in a tree parents before children.

    Attributes:
        node_kind: index into `vocabulary.NODE_KINDS` or `dataflow.OPCODES`.
        node_features: raw node features, not yet standardised.
        graph: the program that each node belongs to.
        root: number in the batch of each program's first node.
        edge_index: source and destination, numbers in the batch.
        edge_kind: index into `vocabulary.EDGE_KINDS` or `dataflow.EDGE_KINDS`.
        kernel_features: features of each program as a whole, not yet standardised.
        log_seconds: natural logarithm of the run time in seconds, the label.
        workload: the workload of each program.
        parent: the parent's number in the batch, -1 at a root; no entries where the graphs are no trees.
        depth: edges from the root; no entries where the graphs are no trees.
    """

    node_kind: Int64[Tensor, "nodes"]
    node_features: Float32[Tensor, "nodes features"]
    graph: Int64[Tensor, "nodes"]
    root: Int64[Tensor, "graphs"]
    edge_index: Int64[Tensor, "2 edges"]
    edge_kind: Int64[Tensor, "edges"]
    kernel_features: Float32[Tensor, "graphs kernel_features"]
    log_seconds: Float32[Tensor, "graphs"]
    workload: Int64[Tensor, "graphs"]
    parent: Int64[Tensor, "tree_nodes"]
    depth: Int64[Tensor, "tree_nodes"]

    @property
    def num_graphs(self) -> int:
        """Programs in the batch, also those whose last nodes have no edge."""
        return len(self.root)

    @property
    def num_nodes(self) -> int:
        """Nodes of all programs together."""
        return len(self.node_kind)

    @cached_property
    def levels(self) -> tuple[Int64[Tensor, "level_nodes"], ...]:
        """The nodes of each depth, from the roots down; only trees have them."""
        order = torch.argsort(self.depth, stable=True)
        return tuple(torch.split(order, torch.bincount(self.depth).tolist())) if len(order) else ()

    @cached_property
    def slot(self) -> Int64[Tensor, "tree_nodes"]:
        """Place of each node in its own level."""
        slot = torch.empty_like(self.depth)
        for level in self.levels:
            slot[level] = torch.arange(len(level), device=slot.device)
        return slot

    def to(self, device: torch.device | str, non_blocking: bool = False) -> GraphBatch:
        """The same batch on another device."""
        moved = {field.name: getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self)}
        return GraphBatch(**moved)


def make_batch(programs: Programs, rows: Int64[np.ndarray, "graphs"], view: str = AST) -> GraphBatch:
    """The batch of the programs `rows`, in that order; reads nothing of the others.

    The number of nodes comes from the offsets, never from the edges, so that nodes without an edge are kept and the
    following graphs stay in place.

    Args:
        programs: where they are.
        rows: which of them.
        view: `ast` or `dataflow`.
    """
    rows = np.asarray(rows, dtype=np.int64)
    graphs: GraphView = programs.view(view, rows)
    first_node = graphs.node_offset[:-1]
    node_counts = graphs.counts("node")
    edges = np.empty((2, len(graphs.edge_kind)), dtype=np.int64)
    shift = np.repeat(first_node, graphs.counts("edge"))
    np.add(graphs.edge_source, shift, out=edges[0])
    np.add(graphs.edge_target, shift, out=edges[1])
    parent = depth = np.zeros(0, dtype=np.int64)
    if isinstance(graphs, AstGraphs):
        kind, depth = graphs.node_kind, graphs.node_depth.astype(np.int64)
        parent = graphs.node_parent + np.repeat(first_node, node_counts)
        # the first node of a tree is its root, and no other one
        parent[first_node] = -1
    else:
        assert isinstance(graphs, DataflowGraphs), view
        kind = graphs.node_opcode
    return GraphBatch(
        node_kind=torch.from_numpy(kind.astype(np.int64)),
        node_features=torch.from_numpy(graphs.node_features),
        graph=torch.from_numpy(np.repeat(np.arange(len(rows), dtype=np.int64), node_counts)),
        root=torch.from_numpy(first_node),
        edge_index=torch.from_numpy(edges),
        edge_kind=torch.from_numpy(graphs.edge_kind.astype(np.int64)),
        kernel_features=torch.from_numpy(graphs.kernel_features),
        log_seconds=torch.from_numpy(programs.log_seconds[rows].astype(np.float32)),
        workload=torch.from_numpy(programs.workload[rows].astype(np.int64)),
        parent=torch.from_numpy(parent),
        depth=torch.from_numpy(depth),
    )


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of every column."""

    mean: Float64[np.ndarray, "features"]
    deviation: Float64[np.ndarray, "features"]


def moments(programs: Programs, view: str) -> tuple[Moments, Moments]:
    """Moments of the node and of the kernel features, read in pieces that fit into memory."""
    counts = np.zeros(2)
    sums: list[np.ndarray] = [np.zeros(1)] * 2
    squares: list[np.ndarray] = [np.zeros(1)] * 2
    for rows in SequentialBatches(programs, PIECE_NODES, view=view).plan:
        graphs: GraphView = programs.view(view, rows)
        for what, values in enumerate((graphs.node_features, graphs.kernel_features)):
            exact = values.astype(np.float64)
            counts[what] += len(exact)
            sums[what] = sums[what] + exact.sum(axis=0)
            squares[what] = squares[what] + np.square(exact).sum(axis=0)
    means = [total / count for total, count in zip(sums, counts, strict=True)]
    found = [
        Moments(mean, np.sqrt(np.maximum(square / count - np.square(mean), 0.0)))
        for mean, square, count in zip(means, squares, counts, strict=True)
    ]
    return found[0], found[1]


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

    def __init__(self, programs: Programs, batch_nodes: int, chunk_programs: int, seed: int, view: str = AST) -> None:
        self._programs = programs
        self._batch_nodes = batch_nodes
        self._chunk_programs = chunk_programs
        self._seed = seed
        self._view = view
        self._epoch = 0
        self._sizes = programs.counts(view, "node")
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
        return (make_batch(self._programs, rows, self._view) for rows in plan)


class SequentialBatches:
    """Batches for validation and prediction, in the order of `rows` (all of them, as they stand, by default)."""

    def __init__(
        self,
        programs: Programs,
        batch_nodes: int,
        rows: Int64[np.ndarray, "graphs"] | None = None,
        view: str = AST,
    ) -> None:
        self._programs = programs
        self._view = view
        chosen = np.arange(len(programs), dtype=np.int64) if rows is None else np.asarray(rows, dtype=np.int64)
        sizes = programs.counts(view, "node")[chosen]
        self.plan = pack(np.split(chosen, len(chosen)), sizes.tolist(), batch_nodes) if len(chosen) else []

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[GraphBatch]:
        return (make_batch(self._programs, rows, self._view) for rows in self.plan)
