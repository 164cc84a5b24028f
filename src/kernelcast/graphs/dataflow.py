"""The dataflow graph of a scheduled program: parameters and computations as nodes, tensors as edges.

After Kaufman et al. 2021 (arXiv 2008.01040), section 3.1: an opcode a node, the shape, type and layout of its tensor,
and static performance figures. Their nodes are operations of XLA; here they are the blocks of TensorIR, so a node also
says how the schedule runs it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from kernelcast.graphs.columns import columns_of, place_kernel_features
from kernelcast.graphs.facts import Facts
from kernelcast.graphs.kernel_features import KERNEL_FEATURES
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.slots import KAUFMAN, PLACES, shape_features
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.views import DataflowGraphs
from kernelcast.graphs.vocabulary import OWN, Feature

OPCODE_MEANINGS: dict[str, str] = {
    "parameter": "a tensor that the program is given",
    "fill": "the same value everywhere",
    "iota": "values that follow from the place alone",
    "copy": "another tensor's values, in the same order",
    "transpose": "another tensor's values in another order, layout or shape",
    "broadcast": "another tensor's values, repeated, or some of them",
    "cast": "another tensor's values in another data type",
    "pad": "another tensor's values where a condition holds, a constant elsewhere",
    "choose": "values of one tensor or of another, by a condition",
    "gather": "values of a tensor at places that another tensor names",
    "add": "elementwise; the outermost operation is an addition",
    "subtract": "elementwise; the outermost operation is a subtraction",
    "multiply": "elementwise; the outermost operation is a multiplication",
    "divide": "elementwise; the outermost operation is a division",
    "minimum": "elementwise; the outermost operation is a minimum",
    "maximum": "elementwise; the outermost operation is a maximum, as of a ReLU",
    "compare": "elementwise; the outermost operation is a comparison or a logical one",
    "integer": "elementwise; the outermost operation is a division of integers or its remainder",
    "exp": "elementwise with an exponential",
    "sqrt": "elementwise with a square root or its reciprocal",
    "tanh": "elementwise with a hyperbolic tangent",
    "function": "elementwise with another function, as the logarithm or the error function",
    "reduce_sum": "a sum over some axes",
    "reduce_product": "a product over some axes",
    "reduce_maximum": "a maximum over some axes",
    "reduce_minimum": "a minimum over some axes",
    "reduce_other": "another reduction, as the place of a maximum",
    "contraction": "a sum of products of two tensors",
    "convolution": "a sum of products in which a window of one tensor moves over the other",
    "depthwise_convolution": "a convolution of each channel for itself",
    "intrinsic": "a call for its effect alone",
    "other": "none of these",
}
"""Every opcode and what it says. Of several functions in an elementwise computation the outermost one counts."""

OPCODES: tuple[str, ...] = tuple(OPCODE_MEANINGS)

EDGE_KIND_MEANINGS: dict[str, str] = {
    "producer_to_consumer": "from what makes a tensor to what reads it; one edge a tensor",
    "consumer_to_producer": "its reverse",
}
"""Every kind of edge and what it says."""

EDGE_KINDS: tuple[str, ...] = tuple(EDGE_KIND_MEANINGS)


def _order_features() -> tuple[Feature, ...]:
    meaning = (
        "layout: rank of the {} dimension longer than 1 among the dimensions of the tensor, by when the loops from the "
        "innermost outwards first move it: 1 for the first, 0 if none does; of a parameter as the reader that runs "
        "most often meets it, so that weights laid out anew are told from others"
    )
    return tuple(
        Feature(f"order_{slot + 1}", "rank", "memory", meaning.format(place), KAUFMAN)
        for slot, place in enumerate(PLACES)
    )


NODE_FEATURES: tuple[Feature, ...] = (
    *shape_features("shape", "structure", "the tensor that the node makes"),
    *_order_features(),
    Feature("is_float", "flag", "types", "the elements are floating-point numbers", KAUFMAN),
    Feature("is_integer", "flag", "types", "the elements are integers", KAUFMAN),
    Feature("dtype_bytes", "bytes", "types", "size of one element", KAUFMAN),
    Feature("tensor_bytes", "bytes", "memory", "size of the tensor", OWN),
    Feature("is_output", "flag", "structure", "the tensor is a result of the program", KAUFMAN),
    Feature("is_temporary", "flag", "structure", "the tensor is neither given to the program nor its result", OWN),
    Feature("inputs", "edges", "structure", "number of tensors that it reads, counted by who made them", OWN),
    Feature("readers", "edges", "structure", "number of nodes that read its tensors", OWN),
    Feature("executions", "executions", "loops", "how often its statement runs", OWN),
    Feature("loops", "loops", "loops", "number of loops around its statement", OWN),
    Feature("inner_extent", "iterations", "loops", "extent of the innermost loop around its statement", OWN),
    Feature("parallel_extent", "iterations", "loops", "product of the parallel loops around its statement", OWN),
    Feature("reduced_extent", "iterations", "loops", "product of the lengths of the axes that it reduces", KAUFMAN),
    Feature("unroll_limit", "steps", "loops", "`pragma_auto_unroll_max_step` in force at its statement", OWN),
    Feature(
        "pieces",
        "pieces",
        "loops",
        "in how many pieces its tensor is made, each read before the next one is made: iterations of the loops that it "
        "shares with a reader, the most over all readers; 1 where it is made at once",
        OWN,
    ),
    Feature("flops", "flops", "work", "floating-point operations in one run of the program", KAUFMAN),
    Feature("transcendental_flops", "flops", "work", "those of them that are exp, sqrt, tanh, erf, log, ...", KAUFMAN),
    Feature("integer_operations", "operations", "work", "operations with integers, not counting those of indices", OWN),
    Feature("lanes", "lanes", "work", "lanes that its statement runs in; 1 where it is not vectorised", OWN),
    Feature("read_bytes", "bytes", "memory", "distinct bytes of its inputs that it reads, in cache lines", KAUFMAN),
    Feature("written_bytes", "bytes", "memory", "distinct bytes that it writes, in cache lines", KAUFMAN),
)
"""Columns of `DataflowGraphs.node_features`, in order. Of a parameter those from `executions` on are 0."""


def dataflow_graph(
    table: ProgramTable, facts: Facts, kernel_row: Float64[np.ndarray, " kernel_features"], options: ViewOptions
) -> DataflowGraphs:
    """The dataflow graph of one program, as `DataflowGraphs` of length 1.

    Args:
        table: the program.
        facts: what is known of its rows.
        kernel_row: of `kernel_features.kernel_features`.
        options: which edges and features it keeps, and where the features of the program as a whole go.
    """
    from kernelcast.graphs.kernels.computations import find_computations, read_rows
    from kernelcast.graphs.kernels.dataflow_nodes import node_values
    from kernelcast.graphs.kernels.opcodes import opcodes

    rows = read_rows(table)
    found = find_computations(table, rows, facts.executions)
    codes = opcodes(table, rows, found)
    values = node_values(table, facts, rows, found)
    kept = columns_of(NODE_FEATURES, options)
    names, features, kernel_names, kernel = place_kernel_features(
        kept.names,
        kept.scaled(values),
        columns_of(KERNEL_FEATURES, options),
        kernel_row,
        options.static_features,
    )
    sources, targets, kinds = [], [], []
    for kind, direction in enumerate(("forward", "backward")):
        if options.direction in ("both", direction):
            sources.append(found.edges[:, kind])
            targets.append(found.edges[:, 1 - kind])
            kinds.append(np.full(len(found.edges), kind, dtype=np.int8))
    edge_kind = np.concatenate(kinds)
    return DataflowGraphs(
        feature_names=names,
        kernel_names=kernel_names,
        node_offset=np.array([0, len(codes)], dtype=np.int64),
        edge_offset=np.array([0, len(edge_kind)], dtype=np.int64),
        node_opcode=codes,
        node_features=features,
        edge_source=np.concatenate(sources),
        edge_target=np.concatenate(targets),
        edge_kind=edge_kind,
        kernel_features=kernel,
    )
