"""The abstract syntax tree of a scheduled program as arrays.

After Tomczak et al. 2019 (arXiv 1904.11876), with the context of AutoTVM (arXiv 1805.08166, appendix A) at loops and
memory features of the kind that Ansor (arXiv 2006.06762, appendix B) takes at accesses: the tree holds loops, blocks,
branches, statements, accesses and arithmetic; its leaves are constants and variables. `vocabulary.NODE_FEATURES` is
the table of its features.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from kernelcast.graphs.columns import columns_of, place_kernel_features
from kernelcast.graphs.facts import Facts
from kernelcast.graphs.kernel_features import KERNEL_FEATURES
from kernelcast.graphs.options import DIRECTIONS, ViewOptions
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.views import AstGraphs
from kernelcast.graphs.vocabulary import NODE_FEATURES


def syntax_tree(
    table: ProgramTable,
    facts: Facts,
    options: ViewOptions,
    kernel_row: Float64[np.ndarray, " kernel_features"],
) -> AstGraphs:
    """The tree of one program, as `AstGraphs` of length 1.

    Args:
        table: the program.
        facts: what is known of its rows.
        options: which parts of the tree and which features it keeps, and where the features of the program go.
        kernel_row: of `kernel_features.kernel_features`.
    """
    from kernelcast.graphs.kernels.syntax_edges import syntax_edges
    from kernelcast.graphs.kernels.syntax_nodes import family, node_features, number_nodes

    buffers = table.buffers
    rows, node = number_nodes(facts.place, table.parent, options.indices)
    above, children, position = family(rows, node, table.parent)
    features = node_features(
        rows,
        children,
        position,
        table.kind,
        table.extent,
        table.dtype,
        table.dtype_bytes,
        table.value,
        facts.statement,
        facts.executions,
        facts.reduction,
        facts.lanes,
        facts.scalar,
        facts.unroll_limit,
        facts.unrolled,
        facts.flops,
        facts.iterations,
        facts.touched,
        facts.largest,
        facts.access,
        facts.access_buffer,
        facts.elements,
        facts.access_bytes,
        facts.strides,
        facts.reuse,
        facts.runs,
        facts.repeated,
        facts.removable,
        buffers.shape,
        buffers.shape_offset,
        buffers.dtype_bytes,
        buffers.temporary,
        options.log_scale,
    )
    source, target, edge_kind = syntax_edges(
        above,
        node,
        table.kind,
        table.variable,
        facts.index_span,
        facts.index_terms,
        facts.access_row,
        facts.access_buffer,
        len(buffers.names),
        options.buffer_edges,
        options.definition_edges,
        # in the order of BOTH, FORWARD, BACKWARD
        DIRECTIONS.index(options.direction),
    )
    kept = columns_of(NODE_FEATURES, options)
    names, features, kernel_names, kernel_values = place_kernel_features(
        kept.names,
        features[:, kept.kept] if options.leave_out else features,
        columns_of(KERNEL_FEATURES, options),
        kernel_row,
        options.static_features,
    )
    return AstGraphs(
        feature_names=names,
        kernel_names=kernel_names,
        node_offset=np.array([0, len(rows)], dtype=np.int64),
        edge_offset=np.array([0, len(edge_kind)], dtype=np.int64),
        node_kind=table.kind[rows],
        node_features=features,
        node_parent=above,
        node_depth=table.depth[rows],
        edge_source=source,
        edge_target=target,
        edge_kind=edge_kind,
        kernel_features=kernel_values,
    )
