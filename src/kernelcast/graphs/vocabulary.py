"""What a node, an edge and a feature of a graph can be: the tables that fix every number in `AstGraphs`.

Sizes and counts are stored as `log1p` of their value unless the options say otherwise, flags as 0 or 1. A feature that
means nothing for a kind of node is 0. A change of any table, or of how a feature is computed, raises `FEATURE_VERSION`:
models refuse programs of another one.
"""

from __future__ import annotations

from dataclasses import dataclass

FEATURE_VERSION = 3
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

`structure`: places in the tree. `loops`: extents, kinds, unrolling. `work`: operations and lanes. `memory`: bytes
touched and strides. `reuse`: reuse distances. `context`: what AutoTVM (arXiv 1805.08166, appendix A) says of the loops
around: products above and below, memory touched by each buffer. `types`: data types.
"""


@dataclass(frozen=True)
class Column:
    """One column of a view that is always whole.

    Attributes:
        name: unique in its table.
        unit: what it counts, and how it is scaled.
        meaning: what it says.
    """

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Feature:
    """One column that options may leave out or scale.

    Attributes:
        name: unique in its table.
        unit: what it counts, before scaling; `flag` for 0 or 1, which is never scaled.
        group: one of `FEATURE_GROUPS`.
        meaning: what it says; kinds of rows that it means something for stand before a colon.
        source: the work that it follows.
    """

    name: str
    unit: str
    group: str
    meaning: str
    source: str


TOMCZAK = "Tomczak et al. 2019 (arXiv 1904.11876), section 3"
AUTOTVM = "AutoTVM (arXiv 1805.08166), appendix A.2"
ANSOR = "Ansor (arXiv 2006.06762), appendix B"
OWN = "kernelcast"

NODE_FEATURES: tuple[Feature, ...] = (
    Feature("executions", "executions", "loops", "How often the node is reached in one run.", TOMCZAK),
    Feature("children", "nodes", "structure", "Number of children.", OWN),
    Feature("position", "nodes", "structure", "Number of siblings before it.", TOMCZAK),
    Feature("extent", "iterations", "loops", "Iterations of a loop; length of a block axis.", TOMCZAK),
    Feature("iterations_below", "iterations", "loops", "Loop: innermost iterations in one execution of it.", OWN),
    Feature("flops_below", "flops", "work", "Loop, block: floating-point operations in one execution.", ANSOR),
    Feature(
        "bytes_below",
        "bytes",
        "memory",
        "Loop: distinct bytes touched in one execution, in cache lines of 64 bytes.",
        ANSOR,
    ),
    Feature("reduction", "flag", "loops", "Loop, axis: drives an axis that is reduced; is reduced.", AUTOTVM),
    Feature(
        "lanes",
        "lanes",
        "work",
        "Loop: its extent if vectorised; others: extent of the vectorised loop around; 0 if run one by one.",
        ANSOR,
    ),
    Feature(
        "lane_parts",
        "parts",
        "work",
        "Powers of two that the lanes add up to: machine vectors have such lengths; 0 if run one by one.",
        OWN,
    ),
    Feature("unroll_limit", "steps", "loops", "Loop: `pragma_auto_unroll_max_step` in force.", ANSOR),
    Feature(
        "unrolled",
        "flag",
        "loops",
        "Loop: its iterations end up as straight code, by kind or under the unroll limit.",
        ANSOR,
    ),
    Feature(
        "top_down", "iterations", "context", "Loop: product of the extents from the outermost loop to it.", AUTOTVM
    ),
    Feature("bottom_up", "iterations", "context", "Loop: product of the extents of the loops in it.", AUTOTVM),
    Feature(
        "largest_bytes",
        "bytes",
        "context",
        "Loop: bytes of `bytes_below` in the buffer with the most of them.",
        AUTOTVM,
    ),
    Feature("second_bytes", "bytes", "context", "Loop: the same of the buffer with the second most.", AUTOTVM),
    Feature("third_bytes", "bytes", "context", "Loop: the same of the buffer with the third most.", AUTOTVM),
    Feature("is_float", "flag", "types", "Expression, access: value of floating-point type.", OWN),
    Feature("dtype_bytes", "bytes", "types", "Expression, access: size of one value.", OWN),
    Feature("magnitude", "value", "structure", "Constant: absolute value, at most 1e6.", OWN),
    Feature("dimensions", "dimensions", "memory", "Access: dimensions of the buffer longer than 1.", OWN),
    Feature("buffer_bytes", "bytes", "memory", "Access: size of the buffer.", ANSOR),
    Feature("temporary", "flag", "memory", "Access: the buffer is not a parameter of the function.", OWN),
    Feature(
        "stride_1", "elements", "memory", "Access: distance between two iterations of the innermost loop.", AUTOTVM
    ),
    Feature("stride_2", "elements", "memory", "Access: the same of the loop around that one, 0 without.", AUTOTVM),
    Feature("stride_3", "elements", "memory", "Access: the same of the third loop from inside, 0 without.", AUTOTVM),
    Feature("stride_4", "elements", "memory", "Access: the same of the fourth loop from inside, 0 without.", AUTOTVM),
    Feature(
        "runs",
        "runs",
        "memory",
        "Access: pieces of one stride that the first 64 iterations of the innermost loop fall into.",
        OWN,
    ),
    Feature("contiguous", "flag", "memory", "Access: one element apart in the innermost loop.", OWN),
    Feature("invariant", "flag", "memory", "Access: does not move in the innermost loop.", OWN),
    Feature(
        "inner_bytes",
        "bytes",
        "memory",
        "Access: bytes touched by one execution of the innermost loop, in cache lines.",
        OWN,
    ),
    Feature(
        "touched_bytes",
        "bytes",
        "memory",
        "Access: distinct bytes touched by the whole program, in cache lines.",
        ANSOR,
    ),
    Feature("reuse", "accesses per element", "reuse", "Access: executions over distinct elements touched.", AUTOTVM),
    Feature(
        "reuse_trips",
        "iterations",
        "reuse",
        "Access: extent of the innermost loop that leaves the address unchanged.",
        ANSOR,
    ),
    Feature(
        "reuse_distance", "accesses", "reuse", "Access: executions of it between two iterations of that loop.", ANSOR
    ),
    Feature(
        "reuse_bytes",
        "bytes",
        "reuse",
        "Access: bytes that all accesses touch between two iterations of that loop.",
        ANSOR,
    ),
    Feature(
        "repeated",
        "iterations",
        "reuse",
        "Store: product of the loops around it that move nothing and reduce nothing; the same values again.",
        OWN,
    ),
    Feature("removable", "iterations", "reuse", "Store: the part of it around straight code, done once by LLVM.", OWN),
)
"""Columns of `AstGraphs.node_features`, in order."""

NODE_KIND_INDEX: dict[str, int] = {name: index for index, name in enumerate(NODE_KINDS)}
EDGE_KIND_INDEX: dict[str, int] = {name: index for index, name in enumerate(EDGE_KINDS)}
NODE_FEATURE_INDEX: dict[str, int] = {feature.name: index for index, feature in enumerate(NODE_FEATURES)}
