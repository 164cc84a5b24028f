"""`Programs`: a set of measured programs as flat arrays, the one thing every cost model takes.

Nothing here is a Python object per program: rows are sliced and gathered by array operations, and the arrays may be
memory-mapped files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int16, Int32, Int64


@dataclass(frozen=True)
class AstGraphs:
    """The abstract syntax trees of many programs, one after the other.

    Nodes of a program stand in depth-first order, parents before children, siblings in program order; node 0 of each
    program is its root. Node numbers in `edge_index` and `node_parent` are local to the program.

    Attributes:
        node_kind: what the node is, an index into `vocabulary.NODE_KINDS`.
        node_features: the features named by `vocabulary.NODE_FEATURES`, log-scaled where they are sizes or counts.
        node_parent: the parent's number, -1 at the root.
        node_depth: edges from the root.
        node_offset: nodes of program p are `node_offset[p]:node_offset[p + 1]`.
        edge_index: source and destination of every edge.
        edge_kind: an index into `vocabulary.EDGE_KINDS`.
        edge_offset: edges of program p are `edge_offset[p]:edge_offset[p + 1]`.
    """

    node_kind: Int16[np.ndarray, " nodes"]
    node_features: Float32[np.ndarray, "nodes node_features"]
    node_parent: Int32[np.ndarray, " nodes"]
    node_depth: Int16[np.ndarray, " nodes"]
    node_offset: Int64[np.ndarray, " programs_plus_1"]
    edge_index: Int32[np.ndarray, "2 edges"]
    edge_kind: Int8[np.ndarray, " edges"]
    edge_offset: Int64[np.ndarray, " programs_plus_1"]

    def __len__(self) -> int:
        return len(self.node_offset) - 1

    def select(self, rows: Int64[np.ndarray, " rows"]) -> AstGraphs:
        """The graphs of `rows`, in that order, repeats allowed."""
        nodes, node_offset = ragged_rows(self.node_offset, rows)
        edges, edge_offset = ragged_rows(self.edge_offset, rows)
        return AstGraphs(
            node_kind=self.node_kind[nodes],
            node_features=self.node_features[nodes],
            node_parent=self.node_parent[nodes],
            node_depth=self.node_depth[nodes],
            node_offset=node_offset,
            edge_index=self.edge_index[:, edges],
            edge_kind=self.edge_kind[edges],
            edge_offset=edge_offset,
        )


@dataclass(frozen=True)
class FlatFeatures:
    """One row of fixed width a program, for models that take a table.

    Attributes:
        values: the features.
        names: one name a column, each ending in its unit where it has one.
    """

    values: Float32[np.ndarray, "programs features"]
    names: tuple[str, ...]

    def select(self, rows: Int64[np.ndarray, " rows"]) -> FlatFeatures:
        """The rows `rows`, in that order."""
        return FlatFeatures(self.values[rows], self.names)

    def column(self, name: str) -> Float32[np.ndarray, " programs"]:
        """One feature of all programs."""
        return self.values[:, self.names.index(name)]


@dataclass(frozen=True)
class Machine:
    """What a model without learning knows of the machine that measured.

    Attributes:
        cores: cores the target uses.
        vector_lanes: float32 lanes of one vector register.
        peak_flops_per_second: of these cores together.
        bytes_per_second: main memory, read plus written.
        cache_bytes: size of the last cache level that one core has for itself.
    """

    cores: int
    vector_lanes: int
    peak_flops_per_second: float
    bytes_per_second: float
    cache_bytes: int


@dataclass(frozen=True)
class Programs:
    """Measured programs with everything a cost model may look at.

    Attributes:
        ast: their syntax trees.
        features: their flat features.
        log_seconds: natural logarithm of the run time in seconds, the label.
        workload: which workload each belongs to, an index into `workload_names`.
        workload_names: names of all workloads of the data set, also of those without a row here.
        program_key: structural hash of each scheduled module.
        machine: where they were measured; None where nobody knows.
        feature_version: version of the views; a model refuses programs of another version.
    """

    ast: AstGraphs
    features: FlatFeatures
    log_seconds: Float64[np.ndarray, " programs"]
    workload: Int32[np.ndarray, " programs"]
    workload_names: tuple[str, ...]
    program_key: np.ndarray
    machine: Machine | None
    feature_version: str

    def __len__(self) -> int:
        return len(self.log_seconds)

    def select(self, rows: Int64[np.ndarray, " rows"]) -> Programs:
        """The programs of `rows`, in that order."""
        rows = np.asarray(rows, dtype=np.int64)
        return Programs(
            ast=self.ast.select(rows),
            features=self.features.select(rows),
            log_seconds=self.log_seconds[rows],
            workload=self.workload[rows],
            workload_names=self.workload_names,
            program_key=self.program_key[rows],
            machine=self.machine,
            feature_version=self.feature_version,
        )


def ragged_rows(
    offset: Int64[np.ndarray, " rows_plus_1"], rows: Int64[np.ndarray, " rows"]
) -> tuple[Int64[np.ndarray, " elements"], Int64[np.ndarray, " chosen_plus_1"]]:
    """Element numbers of the chosen rows of a ragged array, and the offsets of the gathered rows."""
    rows = np.asarray(rows, dtype=np.int64)
    lengths = offset[rows + 1] - offset[rows]
    gathered = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
    elements = np.arange(gathered[-1], dtype=np.int64) + np.repeat(offset[rows] - gathered[:-1], lengths)
    return elements, gathered
