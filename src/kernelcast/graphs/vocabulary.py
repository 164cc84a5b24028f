"""What a node, an edge and a feature of a graph can be: the tables that fix every number in `AstGraphs`.

Sizes and counts are stored as `log1p` of their value, flags as 0 or 1. A feature that means nothing for a kind of node
is 0. A change of any table, or of how a feature is computed, raises `FEATURE_VERSION`: models refuse programs of
another one.
"""

from __future__ import annotations

from dataclasses import dataclass

FEATURE_VERSION = 1
"""Version of the tables below and of the flat features; part of the hash that `Programs.feature_version` carries."""

NODE_KINDS: tuple[str, ...] = (
    "function",
    "loop_serial",
    "loop_parallel",
    "loop_vectorized",
    "loop_unrolled",
    "loop_thread_binding",
    "block",
    "init",
    "branch",
    "axis_spatial",
    "axis_reduce",
    "axis_other",
    "store",
    "load",
    "evaluate",
    "variable",
    "constant",
    "add",
    "sub",
    "mul",
    "div",
    "floordiv",
    "floormod",
    "mod",
    "min",
    "max",
    "compare",
    "logical",
    "select",
    "cast",
    "exp",
    "sqrt",
    "tanh",
    "math",
    "call",
    "other",
)
"""Kinds of nodes. `math` is any other function of one value (log, erf, sin, ...), `call` any other call, `other` what
this version does not know: a program with unknown parts still becomes a graph."""

EDGE_KINDS: tuple[str, ...] = (
    "parent_to_child",
    "child_to_parent",
    "next_sibling",
    "previous_sibling",
    "next_same_buffer",
    "previous_same_buffer",
    "definition_to_use",
    "use_to_definition",
)
"""Kinds of edges; each kind at an even place is followed by its reverse, and every edge has its reverse edge.

`next_same_buffer` chains the accesses to one buffer in the order of their nodes; `definition_to_use` goes from a loop
to the block axes that it drives, and from an axis to each of its uses as an index.
"""


DTYPES: tuple[str, ...] = (
    "none",
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "float8",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "handle",
    "other",
)
"""Types of values, without their lanes."""

FEATURE_GROUPS: tuple[str, ...] = ("structure", "loops", "work", "memory", "reuse", "context", "types")
"""What features are about, so that the options can leave a group out.

`structure`: places in the tree. `loops`: extents, kinds, unrolling. `work`: operations and lanes. `memory`: bytes touched
and strides. `reuse`: reuse distances. `context`: what AutoTVM (arXiv 1805.08166, appendix A) says of the loops around: products
above and below, memory touched by each buffer. `types`: data types.
"""


@dataclass(frozen=True)
class Feature:
    """One column: what it is called, in which unit it was before scaling, and what it means.

    Attributes:
        name: unique in its table.
        unit: `log1p(UNIT)` for sizes and counts, `flag` for 0 or 1.
        meaning: one line.
    """

    name: str
    unit: str
    meaning: str


NODE_FEATURES: tuple[Feature, ...] = (
    Feature(
        "executions",
        "log1p(executions)",
        "how often the node is reached: product of the extents of the loops around it",
    ),
    Feature("children", "log1p(nodes)", "number of children"),
    Feature("position", "log1p(nodes)", "number of siblings before it"),
    Feature("extent", "log1p(iterations)", "iterations of a loop; length of a block axis"),
    Feature("iterations_below", "log1p(iterations)", "loop: innermost iterations in one execution of the loop"),
    Feature("flops_below", "log1p(flops)", "loop, block: floating-point operations in one execution"),
    Feature("bytes_below", "log1p(bytes)", "loop: distinct bytes touched in one execution, in cache lines of 64 bytes"),
    Feature("reduction", "flag", "loop: drives an axis that is reduced"),
    Feature(
        "lanes",
        "log1p(lanes)",
        "loop: its extent if vectorised; others: extent of the vectorised loop around; 0 if run one by one",
    ),
    Feature("unroll_limit", "log1p(steps)", "loop: `pragma_auto_unroll_max_step` in force"),
    Feature("unrolled", "flag", "loop: its iterations end up as straight code, by kind or under the unroll limit"),
    Feature("is_float", "flag", "expression, access: value of floating-point type"),
    Feature("dtype_bytes", "log1p(bytes)", "expression, access: size of one value"),
    Feature("magnitude", "log1p(value)", "constant: absolute value, at most 1e6"),
    Feature("dimensions", "log1p(dimensions)", "access: dimensions of the buffer longer than 1"),
    Feature("buffer_bytes", "log1p(bytes)", "access: size of the buffer"),
    Feature("temporary", "flag", "access: the buffer is not a parameter of the function"),
    Feature("stride", "log1p(elements)", "access: distance between two iterations of the innermost loop"),
    Feature("contiguous", "flag", "access: that distance is one element"),
    Feature("invariant", "flag", "access: that distance is zero"),
    Feature(
        "inner_bytes", "log1p(bytes)", "access: bytes touched by one execution of the innermost loop, in cache lines"
    ),
    Feature("touched_bytes", "log1p(bytes)", "access: distinct bytes touched by the whole program, in cache lines"),
    Feature("reuse", "log1p(accesses per element)", "access: executions over distinct elements touched"),
    Feature(
        "reuse_trips", "log1p(iterations)", "access: extent of the innermost loop that leaves the address unchanged"
    ),
    Feature("reuse_bytes", "log1p(bytes)", "access: bytes all accesses touch between two iterations of that loop"),
)
"""Columns of `AstGraphs.node_features`, in order."""

NODE_KIND_INDEX: dict[str, int] = {name: index for index, name in enumerate(NODE_KINDS)}
EDGE_KIND_INDEX: dict[str, int] = {name: index for index, name in enumerate(EDGE_KINDS)}
NODE_FEATURE_INDEX: dict[str, int] = {feature.name: index for index, feature in enumerate(NODE_FEATURES)}
