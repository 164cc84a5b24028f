"""One row of features a program, of the same width whatever the number of loops, statements and buffers.

Every column holds `log1p(value)` of the value described here, in natural logarithm; `natural` gives the value back.

| column | value |
|---|---|
| `flops` | floating-point operations of one run |
| `transcendental_flops` | those of them that are exp, sqrt, tanh, log, ... |
| `unique_bytes` | distinct bytes of all buffers that are touched: the least that must be moved once |
| `temporary_bytes` | the part of it in buffers that are not parameters |
| `moved_bytes` | traffic between main memory and the cache that one core has for itself (`Machine.cache_bytes`) |
| `moved_past_Nkib_bytes` | the same for a cache of N KiB |
| `vector_share` | share of the operations (without any: of the stores) under a loop that is vectorised, 0 to 1 |
| `parallel_share` | the same under a parallel loop |
| `parallel_extent` | iterations of the outermost parallel loop, the smallest one of several weighty ones; 1 without |
| `parallel_starts` | how often a parallel loop is started |
| `loop_starts`, `loop_iterations` | loop overhead: starts and iterations of loops that stay loops |
| `load_count`, `store_count` | accesses made in one run |
| `contiguous_count`, `invariant_count`, `strided_count` | those with a stride of one, zero, more elements |
| `guarded_count` | executions of blocks and branches under a condition |
| `KIND_loops`, `statements`, `buffers`, `depth_loops` | how many there are; the deepest nest |
| `sum_`, `max_`, `mean_` | of a quantity over all statements |
| `first_`, `second_`, `third_` | one statement, by the operations (then executions) that it makes in all |

Of one statement: loops counted from the innermost (`inner1`) outwards, the access that is stored (`target`), and the
loads of the largest buffers (`load1` ...). Columns of an access are explained in `vocabulary.NODE_FEATURES`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Float32, Float64

from kernelcast.graphs.accesses import Access
from kernelcast.graphs.analysis import LoopFacts, ProgramFacts, StatementFacts
from kernelcast.graphs.programs import FlatFeatures
from kernelcast.graphs.tensorir import LOOP_KINDS, Block, Branch, Loop, Statement

FLOPS = "flops"
UNIQUE_BYTES = "unique_bytes"
MOVED_BYTES = "moved_bytes"
VECTOR_SHARE = "vector_share"
PARALLEL_SHARE = "parallel_share"
PARALLEL_EXTENT = "parallel_extent"
PARALLEL_STARTS = "parallel_starts"
LOOP_STARTS = "loop_starts"
LOOP_ITERATIONS = "loop_iterations"

CACHE_KIB = (8, 32, 128, 512, 2048, 8192)
"""Cache sizes of the traffic columns: from less than a first-level cache to a share of a last-level one."""

RANKED_STATEMENTS = ("first", "second", "third")
INNER_LOOPS = 5
RANKED_LOADS = 3

WEIGHTY_SHARE = 0.1
"""A parallel region with a smaller share of the operations does not decide how many cores help."""


def natural(features: FlatFeatures, name: str) -> Float64[np.ndarray, " programs"]:
    """The values of column `name` before scaling."""
    values: Float64[np.ndarray, " programs"] = np.expm1(features.column(name).astype(np.float64))
    return values


def flat_features(facts: ProgramFacts, cache_bytes: int) -> tuple[Float32[np.ndarray, " features"], tuple[str, ...]]:
    """The row of one program and the names of its columns.

    Args:
        facts: the analysed program.
        cache_bytes: the cache of one core, for `moved_bytes`.
    """
    columns: dict[str, float] = {}
    columns.update(_work(facts))
    columns.update(_memory(facts, cache_bytes))
    columns.update(_loops(facts))
    columns.update(_over_statements(facts))
    ranked = sorted(facts.statements.values(), key=lambda entry: (-_work_of(entry), -entry.executions))
    for position, prefix in enumerate(RANKED_STATEMENTS):
        statement = ranked[position] if position < len(ranked) else None
        columns.update((f"{prefix}_{name}", value) for name, value in _one_statement(statement))
    values = np.log1p(np.array(list(columns.values()), dtype=np.float64))
    return values.astype(np.float32), tuple(columns)


def _work_of(entry: StatementFacts) -> int:
    return entry.flops * entry.executions


def _share(part: Iterable[StatementFacts], whole: Iterable[StatementFacts]) -> float:
    """Share of the operations in `part`; of the executions where there are none."""
    some, everything = list(part), list(whole)
    for weigh in (_work_of, lambda entry: entry.executions):
        total = sum(map(weigh, everything))
        if total:
            return sum(map(weigh, some)) / total
    return 0.0


def _parallel_loop(entry: StatementFacts) -> LoopFacts | None:
    return next((loop for loop in entry.loops if loop.loop.kind == "loop_parallel"), None)


def _work(facts: ProgramFacts) -> dict[str, float]:
    entries = list(facts.statements.values())
    regions: dict[int, list[StatementFacts]] = {}
    for entry in entries:
        loop = _parallel_loop(entry)
        if loop is not None:
            regions.setdefault(id(loop.loop), []).append(entry)
    weighty = [facts.loops[key] for key, members in regions.items() if _share(members, entries) >= WEIGHTY_SHARE]
    parallel = [entry for members in regions.values() for entry in members]
    return {
        FLOPS: facts.flops,
        "transcendental_flops": sum(entry.transcendental * entry.executions for entry in entries),
        VECTOR_SHARE: _share((entry for entry in entries if entry.lanes > 1), entries),
        PARALLEL_SHARE: _share(parallel, entries),
        PARALLEL_EXTENT: min((loop.loop.extent for loop in weighty), default=1),
        PARALLEL_STARTS: sum(facts.loops[key].executions for key in regions),
    }


def _memory(facts: ProgramFacts, cache_bytes: int) -> dict[str, float]:
    unique: dict[int, int] = {}
    counts = {"load_count": 0, "store_count": 0, "contiguous_count": 0, "invariant_count": 0, "strided_count": 0}
    for entry in facts.statements.values():
        for access in entry.all_accesses():
            buffer = access.buffer
            unique[buffer.number] = max(unique.get(buffer.number, 0), access.elements * buffer.itemsize)
            counts["store_count" if access.is_store else "load_count"] += entry.executions
            counts[("invariant_count", "contiguous_count", "strided_count")[min(access.stride, 2)]] += entry.executions
    temporary = {buffer.number for buffer in facts.program.buffers if buffer.temporary}
    return {
        UNIQUE_BYTES: sum(unique.values()),
        "temporary_bytes": sum(size for number, size in unique.items() if number in temporary),
        MOVED_BYTES: facts.moved_bytes(cache_bytes),
        **{f"moved_past_{size}kib_bytes": facts.moved_bytes(size * 1024) for size in CACHE_KIB},
        **counts,
    }


def _loops(facts: ProgramFacts) -> dict[str, float]:
    loops = list(facts.loops.values())
    kept = [loop for loop in loops if not loop.unrolled and (loop.scalar or loop.loop.kind != "loop_vectorized")]
    return {
        LOOP_STARTS: sum(loop.executions for loop in kept),
        LOOP_ITERATIONS: sum(loop.executions * loop.loop.extent for loop in kept),
        "guarded_count": _guarded(facts.program.body, 1),
        **{f"{kind.removeprefix('loop_')}_loops": sum(loop.loop.kind == kind for loop in loops) for kind in LOOP_KINDS},
        "straight_loops": sum(loop.unrolled for loop in loops),
        "statements": len(facts.statements),
        "buffers": len(facts.program.buffers),
        "depth_loops": max((len(entry.loops) for entry in facts.statements.values()), default=0),
    }


def _guarded(body: tuple[Statement, ...], executions: int) -> int:
    count = 0
    for statement in body:
        if isinstance(statement, Loop):
            count += _guarded(statement.body, executions * statement.extent)
        elif isinstance(statement, Block):
            count += executions if statement.predicate is not None else 0
            count += _guarded(statement.body, executions)
        elif isinstance(statement, Branch):
            count += executions + _guarded(statement.then + statement.otherwise, executions)
    return count


def _over_statements(facts: ProgramFacts) -> Iterator[tuple[str, float]]:
    entries = list(facts.statements.values())
    quantities = {
        "executions": [entry.executions for entry in entries],
        "inner_extent": [entry.loops[-1].loop.extent if entry.loops else 1 for entry in entries],
        "straight_steps": [entry.unrolled_steps for entry in entries],
        "lanes": [entry.lanes for entry in entries],
        "inner_bytes": [sum(access.inner_bytes for access in entry.all_accesses()) for entry in entries],
        "touched_bytes": [sum(access.touched_bytes for access in entry.all_accesses()) for entry in entries],
    }
    for name, values in quantities.items():
        yield f"sum_{name}", sum(values)
        yield f"max_{name}", max(values, default=0)
        yield f"mean_{name}", sum(values) / max(len(values), 1)


def _one_statement(entry: StatementFacts | None) -> Iterator[tuple[str, float]]:
    loops = entry.loops[::-1] if entry is not None else ()
    yield "executions", entry.executions if entry is not None else 0
    yield "flops", entry.flops if entry is not None else 0
    yield "depth_loops", len(loops)
    yield "lanes", entry.lanes if entry is not None else 0
    yield "straight_steps", entry.unrolled_steps if entry is not None else 0
    yield "unroll_limit_steps", loops[0].unroll_limit if loops else 0
    parallel = _parallel_loop(entry) if entry is not None else None
    yield "parallel_extent", parallel.loop.extent if parallel is not None else 1
    yield "reduction_extent", math.prod(loop.loop.extent for loop in loops if loop.reduction)
    inner_reduction = 1
    for loop in loops:
        if not loop.reduction:
            break
        inner_reduction *= loop.loop.extent
    yield "inner_reduction_extent", inner_reduction
    for position in range(INNER_LOOPS):
        inner = loops[position] if position < len(loops) else None
        yield f"inner{position + 1}_extent", inner.loop.extent if inner is not None else 0
        yield f"inner{position + 1}_touched_bytes", inner.touched_bytes if inner is not None else 0
        yield f"inner{position + 1}_is_reduction", inner.reduction if inner is not None else 0
        yield f"inner{position + 1}_is_straight", inner.unrolled if inner is not None else 0
    yield from _one_access("target", entry.target if entry is not None else None)
    ranked = sorted(entry.accesses.values(), key=lambda access: -access.buffer.size_bytes) if entry is not None else []
    for position in range(RANKED_LOADS):
        yield from _one_access(f"load{position + 1}", ranked[position] if position < len(ranked) else None)


def _one_access(prefix: str, access: Access | None) -> Iterator[tuple[str, float]]:
    yield f"{prefix}_stride_elements", access.stride if access is not None else 0
    yield f"{prefix}_inner_bytes", access.inner_bytes if access is not None else 0
    yield f"{prefix}_touched_bytes", access.touched_bytes if access is not None else 0
    yield f"{prefix}_reuse", access.executions / access.elements if access is not None else 0
    yield f"{prefix}_reuse_trips", access.reuse_trips if access is not None else 0
    yield f"{prefix}_reuse_bytes", access.reuse_bytes if access is not None else 0
