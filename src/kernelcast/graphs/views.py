"""The views of a program that a cost model can choose from; `options.ViewOptions` says which are built and how."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int8, Int16, Int32, Int64

from kernelcast.graphs.ragged import PROGRAM, View, along

ESTIMATES = "estimates"
"""The view with what the analytical model makes of each program, as flat features. Models add it where they look at it
(`models.estimate_table`); no store holds it, so that a change of that model makes no store old."""


MACHINE_CODE = "machine_code"
"""The view with what LLVM made of each program, which has to be built for it."""


@dataclass(frozen=True)
class GraphView(View):
    """What the two views that are graphs have in common. Node numbers are local to the program.

    Attributes:
        feature_names: columns of `node_features`, those of the view's table that the options kept.
        kernel_names: columns of `kernel_features`.
        node_offset: nodes of program p are `node_offset[p]:node_offset[p + 1]`.
        edge_offset: edges of program p are `edge_offset[p]:edge_offset[p + 1]`.
        node_features: log-scaled where they are sizes or counts, unless the options say otherwise.
        edge_source: where every edge starts.
        edge_target: where it ends.
        edge_kind: an index into the view's table of kinds of edges.
        kernel_features: tile sizes and static performance figures of the program as a whole; without columns where the
            options leave them out.
    """

    feature_names: tuple[str, ...]
    kernel_names: tuple[str, ...]
    node_offset: Int64[np.ndarray, " programs_plus_1"]
    edge_offset: Int64[np.ndarray, " programs_plus_1"]
    node_features: Float32[np.ndarray, "nodes node_features"] = along("node")
    edge_source: Int32[np.ndarray, " edges"] = along("edge")
    edge_target: Int32[np.ndarray, " edges"] = along("edge")
    edge_kind: Int8[np.ndarray, " edges"] = along("edge")
    kernel_features: Float32[np.ndarray, "programs kernel_features"] = along(PROGRAM)


@dataclass(frozen=True)
class AstGraphs(GraphView):
    """The abstract syntax trees of many programs; columns and kinds of edges stand in `vocabulary`.

    Nodes of a program stand in depth-first order, parents before children, siblings in program order; node 0 of each
    program is its root.

    Attributes:
        node_kind: what the node is, an index into `vocabulary.NODE_KINDS`.
        node_parent: the parent's number, -1 at the root.
        node_depth: edges from the root.
    """

    node_kind: Int16[np.ndarray, " nodes"] = along("node")
    node_parent: Int32[np.ndarray, " nodes"] = along("node")
    node_depth: Int16[np.ndarray, " nodes"] = along("node")


@dataclass(frozen=True)
class DataflowGraphs(GraphView):
    """The dataflow graphs of many programs: parameters and blocks as nodes, tensors as edges; tables in `dataflow`.

    After Kaufman et al. 2021 (arXiv 2008.01040), section 3. Nodes stand in topological order: a tensor's producer
    before its consumers.

    Attributes:
        node_opcode: what the node computes, an index into `dataflow.OPCODES`.
    """

    node_opcode: Int16[np.ndarray, " nodes"] = along("node")


@dataclass(frozen=True)
class FlatFeatures(View):
    """One row of fixed width a program, for models that take a table.

    Attributes:
        names: one name a column.
        values: the features.
    """

    names: tuple[str, ...]
    values: Float32[np.ndarray, "programs features"] = along(PROGRAM)

    def column(self, name: str) -> Float32[np.ndarray, " programs"]:
        """One feature of all programs."""
        return self.values[:, self.names.index(name)]


@dataclass(frozen=True)
class StatementRows(View):
    """One row a statement, for models that add up over statements: ours, or TVM's 164 features of every store.

    Attributes:
        names: one name a column.
        row_offset: rows of program p are `row_offset[p]:row_offset[p + 1]`, in program order.
        values: the features.
    """

    names: tuple[str, ...]
    row_offset: Int64[np.ndarray, " programs_plus_1"]
    values: Float32[np.ndarray, "rows features"] = along("row")


@dataclass(frozen=True)
class TraceTokens(View):
    """Schedule traces as sequences, which needs no module: traces of any TVM, target and device have this view.

    After Zhai et al. 2023 (TLP, arXiv 2211.03578): a step is a schedule primitive with its parameters.

    Attributes:
        names: columns of `values`.
        step_offset: steps of program p are `step_offset[p]:step_offset[p + 1]`.
        primitive: an index into `trace.PRIMITIVES`.
        values: the numbers of a step: decisions, attributes and where its operands come from.
    """

    names: tuple[str, ...]
    step_offset: Int64[np.ndarray, " programs_plus_1"]
    primitive: Int16[np.ndarray, " steps"] = along("step")
    values: Float32[np.ndarray, "steps values"] = along("step")


VIEW_TYPES: dict[str, type[View]] = {
    "ast": AstGraphs,
    "dataflow": DataflowGraphs,
    "features": FlatFeatures,
    "statements": StatementRows,
    "per_store": StatementRows,
    "trace": TraceTokens,
    MACHINE_CODE: FlatFeatures,
}
"""Every view by the name that configuration and files use."""

MODULE_VIEWS = frozenset(VIEW_TYPES) - {"trace"}
"""Views that need the scheduled module, not only the trace."""
