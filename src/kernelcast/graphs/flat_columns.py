"""The columns of our flat views: one row a statement, and one row a program.

A row of a program has the same width whatever the number of loops, statements and buffers: sums and statistics over its
statements, then the rows of the three statements that compute most.
"""

from __future__ import annotations

from kernelcast.graphs.vocabulary import ANSOR, AUTOTVM, OWN, Feature

INNER_LOOPS = 8
"""Loops of a statement that have columns, from the innermost outwards."""

RANKED_LOADS = 3
"""Loads of a statement that have columns: those of the largest buffers."""

RANKED_STATEMENTS = ("first", "second", "third")
"""Statements of a program that have columns: by the operations, then the executions, that they make in all."""

CACHE_KIB = (8, 32, 128, 512, 2048, 8192)
"""Cache sizes of the traffic columns: from less than a first-level cache to a share of a last-level one."""

FLOPS = "flops"
UNIQUE_BYTES = "unique_bytes"
MOVED_BYTES = "moved_bytes"
VECTOR_SHARE = "vector_share"
PARALLEL_SHARE = "parallel_share"
PARALLEL_EXTENT = "parallel_extent"
PARALLEL_STARTS = "parallel_starts"
LOOP_STARTS = "loop_starts"
LOOP_ITERATIONS = "loop_iterations"

_ORDER = (
    "innermost",
    *(f"{number} innermost" for number in ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")),
)


def _loop_columns(place: int) -> tuple[Feature, ...]:
    loop, prefix = f"the {_ORDER[place]} loop", f"inner{place + 1}"
    return (
        Feature(f"{prefix}_extent", "iterations", "loops", f"Iterations of {loop}; 0 without.", ANSOR),
        Feature(
            f"{prefix}_touched_bytes", "bytes", "memory", f"Distinct bytes that one execution of {loop} touches.", ANSOR
        ),
        Feature(f"{prefix}_is_reduction", "flag", "loops", f"{loop.capitalize()} drives a reduced axis.", OWN),
        Feature(f"{prefix}_is_straight", "flag", "loops", f"{loop.capitalize()} ends up as straight code.", OWN),
        Feature(
            f"{prefix}_intensity",
            "flops per byte",
            "work",
            f"Arithmetic intensity: operations in one execution of {loop} over the bytes that it touches.",
            ANSOR,
        ),
    )


def _access_columns(prefix: str, access: str) -> tuple[Feature, ...]:
    return (
        Feature(
            f"{prefix}_inner_bytes",
            "bytes",
            "memory",
            f"Of {access}: bytes touched by one execution of the innermost loop.",
            OWN,
        ),
        Feature(f"{prefix}_touched_bytes", "bytes", "memory", f"Of {access}: distinct bytes touched in all.", ANSOR),
        Feature(
            f"{prefix}_reuse",
            "accesses per element",
            "reuse",
            f"Of {access}: executions over distinct elements.",
            AUTOTVM,
        ),
        Feature(
            f"{prefix}_reuse_trips",
            "iterations",
            "reuse",
            f"Of {access}: extent of the innermost loop that leaves the address unchanged.",
            ANSOR,
        ),
        Feature(
            f"{prefix}_reuse_bytes",
            "bytes",
            "reuse",
            f"Of {access}: bytes that all accesses touch between two iterations of that loop.",
            ANSOR,
        ),
        Feature(
            f"{prefix}_reuse_distance",
            "accesses",
            "reuse",
            f"Of {access}: executions of it between two iterations of that loop.",
            ANSOR,
        ),
        Feature(f"{prefix}_buffer_bytes", "bytes", "memory", f"Of {access}: size of the buffer.", ANSOR),
        Feature(
            f"{prefix}_runs",
            "runs",
            "memory",
            f"Of {access}: pieces of one stride that the first 64 iterations of the innermost loop fall into.",
            OWN,
        ),
        *(
            Feature(
                f"{prefix}_stride_{place + 1}",
                "elements",
                "memory",
                f"Of {access}: distance between two iterations of the {order} loop.",
                AUTOTVM,
            )
            for place, order in enumerate(_ORDER)
        ),
    )


ACCESS_WIDTH = len(_access_columns("", ""))

STATEMENT_FEATURES: tuple[Feature, ...] = (
    Feature("executions", "executions", "loops", "How often it runs.", ANSOR),
    Feature(FLOPS, "flops", "work", "Floating-point operations of one execution.", ANSOR),
    Feature(
        "transcendental_flops",
        "flops",
        "work",
        "Those of them that are exp, sqrt, tanh, log and other functions.",
        ANSOR,
    ),
    Feature("depth_loops", "loops", "structure", "Loops around it.", OWN),
    Feature("lanes", "lanes", "work", "Lanes that it runs in, 1 where it is not vectorised.", ANSOR),
    Feature(
        "lane_parts",
        "parts",
        "work",
        "Powers of two that its lanes add up to: machine vectors have such lengths, 1 where it is not vectorised.",
        OWN,
    ),
    Feature("straight_steps", "steps", "loops", "Copies of it in straight code.", ANSOR),
    Feature("unroll_limit_steps", "steps", "loops", "`pragma_auto_unroll_max_step` in force.", ANSOR),
    Feature(
        PARALLEL_EXTENT, "iterations", "loops", "Iterations of the outermost parallel loop around; 1 without.", ANSOR
    ),
    Feature("reduction_extent", "iterations", "loops", "Product of the loops that drive a reduced axis.", ANSOR),
    Feature(
        "inner_reduction_extent",
        "iterations",
        "loops",
        "The same of the innermost loops up to the first that drives none.",
        OWN,
    ),
    Feature(
        "repeated_iterations",
        "iterations",
        "reuse",
        "Product of the loops around it that move nothing and reduce nothing: it makes the same values again.",
        OWN,
    ),
    Feature(
        "removable_iterations",
        "iterations",
        "reuse",
        "The part of them around straight code, which LLVM does once.",
        OWN,
    ),
    Feature("is_init", "flag", "structure", "It sets the start of a reduction.", OWN),
    Feature("is_guarded", "flag", "structure", "It stands under a condition.", OWN),
    Feature("accesses", "accesses", "memory", "Loads and stores of one execution.", ANSOR),
    Feature(
        "intensity", "flops per byte", "work", "All its operations over the distinct bytes that it touches.", ANSOR
    ),
    *(column for place in range(INNER_LOOPS) for column in _loop_columns(place)),
    *_access_columns("target", "the store"),
    *(
        column
        for place in range(RANKED_LOADS)
        for column in _access_columns(
            f"load{place + 1}", f"the load of the {('', 'second ', 'third ')[place]}largest buffer"
        )
    ),
)
"""Columns of a statement: a store, an intrinsic call or the condition of a branch. Bytes are in cache lines of 64."""

STATEMENT_INDEX: dict[str, int] = {feature.name: place for place, feature in enumerate(STATEMENT_FEATURES)}

QUANTITIES: dict[str, tuple[str, str, str]] = {
    "executions": ("executions", "loops", "executions"),
    "inner_extent": ("iterations", "loops", "extent of the innermost loop, 1 without"),
    "straight_steps": ("steps", "loops", "copies in straight code"),
    "lanes": ("lanes", "work", "lanes"),
    "inner_bytes": (
        "bytes",
        "memory",
        "bytes touched by one execution of the innermost loop, summed over the accesses",
    ),
    "touched_bytes": ("bytes", "memory", "distinct bytes touched in all, summed over the accesses"),
}
"""Of which a program has the sum, the largest and the mean over its statements: unit, group and meaning."""

LOOP_COUNTS: tuple[str, ...] = ("serial", "parallel", "vectorized", "unrolled", "thread_binding")

PROGRAM_FEATURES: tuple[Feature, ...] = (
    Feature(FLOPS, "flops", "work", "Floating-point operations of one run.", OWN),
    Feature("transcendental_flops", "flops", "work", "Those of them that are exp, sqrt, tanh, log and others.", OWN),
    Feature(
        VECTOR_SHARE,
        "share",
        "work",
        "Share of the operations (without any: of the executions) in vectorised loops.",
        OWN,
    ),
    Feature(PARALLEL_SHARE, "share", "work", "The same in parallel loops.", OWN),
    Feature(
        PARALLEL_EXTENT,
        "iterations",
        "loops",
        "Iterations of the outermost parallel loop, the smallest one of several weighty ones; 1 without.",
        OWN,
    ),
    Feature(PARALLEL_STARTS, "executions", "loops", "How often a parallel loop is started.", OWN),
    Feature(
        UNIQUE_BYTES,
        "bytes",
        "memory",
        "Distinct bytes of all buffers that are touched: the least that must be moved once.",
        OWN,
    ),
    Feature("temporary_bytes", "bytes", "memory", "The part of it in buffers that are not parameters.", OWN),
    Feature(
        MOVED_BYTES,
        "bytes",
        "memory",
        "Traffic between main memory and the cache that one core has for itself (`Machine.cache_bytes`).",
        OWN,
    ),
    *(
        Feature(f"moved_past_{size}kib_bytes", "bytes", "memory", f"The same for a cache of {size} KiB.", OWN)
        for size in CACHE_KIB
    ),
    Feature("load_count", "accesses", "memory", "Loads made in one run.", OWN),
    Feature("store_count", "accesses", "memory", "Stores made in one run.", OWN),
    Feature("contiguous_count", "accesses", "memory", "Those of both with a stride of one element.", OWN),
    Feature("invariant_count", "accesses", "memory", "Those with a stride of zero.", OWN),
    Feature("strided_count", "accesses", "memory", "Those with a larger stride.", OWN),
    Feature(LOOP_STARTS, "executions", "loops", "Starts of loops that stay loops.", OWN),
    Feature(LOOP_ITERATIONS, "iterations", "loops", "Iterations of loops that stay loops.", OWN),
    Feature("guarded_count", "executions", "loops", "Executions of blocks and branches under a condition.", OWN),
    *(Feature(f"{kind}_loops", "loops", "structure", f"Loops of the kind {kind}.", OWN) for kind in LOOP_COUNTS),
    Feature("straight_loops", "loops", "loops", "Loops that become straight code.", OWN),
    Feature("statements", "statements", "structure", "Stores, intrinsic calls and branches.", OWN),
    Feature("buffers", "buffers", "structure", "Buffers that are touched.", OWN),
    Feature("depth_loops", "loops", "structure", "Loops of the deepest nest.", OWN),
    *(
        Feature(f"{how}_{name}", unit, group, f"{how.capitalize()} over all statements: {meaning}.", OWN)
        for name, (unit, group, meaning) in QUANTITIES.items()
        for how in ("sum", "max", "mean")
    ),
    *(
        Feature(
            f"{rank}_{feature.name}",
            feature.unit,
            feature.group,
            f"Of the statement with the {rank} most operations: {feature.meaning}",
            feature.source,
        )
        for rank in RANKED_STATEMENTS
        for feature in STATEMENT_FEATURES
    ),
)
"""Columns of a program; all are stored as `log1p`, flags and shares too, so that `features.natural` reads each
alike."""

PROGRAM_INDEX: dict[str, int] = {feature.name: place for place, feature in enumerate(PROGRAM_FEATURES)}
