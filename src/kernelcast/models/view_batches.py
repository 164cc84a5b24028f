"""A view of several programs as tensors, made by array operations: no Python object per program.

Batches of graphs are the same as PyTorch Geometric's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from kernelcast.graphs.programs import Programs
from kernelcast.graphs.views import (
    ESTIMATES,
    MACHINE_CODE,
    AstGraphs,
    DataflowGraphs,
    FlatFeatures,
    GraphView,
    StatementRows,
    TraceTokens,
)


@dataclass(frozen=True)
class ViewBatch:
    """What all have in common: fields that are tensors, moved together."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same batch on another device."""
        moved = {field.name: getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self)}
        return type(self)(**moved)


@dataclass(frozen=True)
class GraphBatch(ViewBatch):
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
    def counts(self) -> Int64[Tensor, "graphs"]:
        """Nodes of each program."""
        return torch.diff(self.root, append=self.root.new_tensor([self.num_nodes]))

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


@dataclass(frozen=True)
class RowBatch(ViewBatch):
    """Rows of several programs, program after program: a row a statement, or a row a store.

    Attributes:
        values: raw features, not yet standardised.
        program: the program that each row belongs to.
        counts: rows of each program; may be 0.
    """

    values: Float32[Tensor, "rows features"]
    program: Int64[Tensor, "rows"]
    counts: Int64[Tensor, "programs"]


@dataclass(frozen=True)
class StepBatch(ViewBatch):
    """Schedule traces of several programs, program after program.

    Attributes:
        primitive: index into `trace.PRIMITIVES`.
        values: raw numbers of each step, not yet standardised.
        program: the program that each step belongs to.
        counts: steps of each program; may be 0.
    """

    primitive: Int64[Tensor, "steps"]
    values: Float32[Tensor, "steps features"]
    program: Int64[Tensor, "steps"]
    counts: Int64[Tensor, "programs"]


@dataclass(frozen=True)
class FlatBatch(ViewBatch):
    """One row a program.

    Attributes:
        values: raw features, not yet standardised.
    """

    values: Float32[Tensor, "programs features"]


def graph_batch(graphs: GraphView) -> GraphBatch:
    """The graphs of all programs of a view.

    The number of nodes comes from the offsets, never from the edges, so that nodes without an edge are kept and the
    following graphs stay in place.
    """
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
        assert isinstance(graphs, DataflowGraphs)
        kind = graphs.node_opcode
    return GraphBatch(
        node_kind=torch.from_numpy(kind.astype(np.int64)),
        node_features=torch.from_numpy(graphs.node_features),
        graph=torch.from_numpy(_owners(node_counts)),
        root=torch.from_numpy(first_node),
        edge_index=torch.from_numpy(edges),
        edge_kind=torch.from_numpy(graphs.edge_kind.astype(np.int64)),
        kernel_features=torch.from_numpy(graphs.kernel_features),
        parent=torch.from_numpy(parent),
        depth=torch.from_numpy(depth),
    )


def row_batch(rows: StatementRows) -> RowBatch:
    """The rows of all programs of a view."""
    counts = rows.counts("row")
    return RowBatch(torch.from_numpy(rows.values), torch.from_numpy(_owners(counts)), torch.from_numpy(counts))


def step_batch(tokens: TraceTokens) -> StepBatch:
    """The traces of all programs of a view."""
    counts = tokens.counts("step")
    return StepBatch(
        primitive=torch.from_numpy(tokens.primitive.astype(np.int64)),
        values=torch.from_numpy(tokens.values),
        program=torch.from_numpy(_owners(counts)),
        counts=torch.from_numpy(counts),
    )


def flat_batch(features: FlatFeatures) -> FlatBatch:
    """The features of all programs of a view."""
    return FlatBatch(torch.from_numpy(features.values))


MAKERS: dict[str, Callable[[Any], ViewBatch]] = {
    "ast": graph_batch,
    "dataflow": graph_batch,
    "features": flat_batch,
    "statements": row_batch,
    "per_store": row_batch,
    "trace": step_batch,
    MACHINE_CODE: flat_batch,
    ESTIMATES: flat_batch,
}
"""What makes the batch of each view."""

ELEMENTS: dict[str, str | None] = {
    "ast": "node",
    "dataflow": "node",
    "features": None,
    "statements": "row",
    "per_store": "row",
    "trace": "step",
    MACHINE_CODE: None,
    ESTIMATES: None,
}
"""What a program has many of in each view; None where it has one row."""


def sizes(programs: Programs, view: str) -> Int64[np.ndarray, "programs"]:
    """Nodes, rows or steps of each program in a view, without reading it."""
    axis = ELEMENTS[view]
    return np.ones(len(programs), dtype=np.int64) if axis is None else programs.counts(view, axis)


def _owners(counts: Int64[np.ndarray, "programs"]) -> Int64[np.ndarray, "elements"]:
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)
