"""What the loops of a program do with work and memory, computed once for all views."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int8, Int32, Int64

from kernelcast.graphs.table import ProgramTable


@dataclass(frozen=True)
class Facts:
    """What is known of the rows of a `ProgramTable`, of the loops and accesses in it.

    Conditions are taken as always true, so a guarded statement counts in full.

    Attributes:
        loop: row of the innermost loop around, -1 without.
        statement: row of the store, intrinsic call or branch that the row is an expression of (itself, at one), -1
            outside.
        place: one of `loop_facts.VALUES`, `INDICES` (below an index of an access) and `BINDINGS` (of an axis).
        executions: how often the row is reached.
        reduction: loops that drive a reduced axis.
        lanes: extent of the vectorised loops here and around, 1 without or where lanes cannot run together.
        scalar: loops that are marked vectorised and run one by one: a condition in them differs between lanes.
        unroll_limit: steps that unrolling may make here.
        unrolled: loops that become straight code.
        flops: floating-point operations of one execution: of a statement its own, of a loop or block all in it.
        transcendental: the part of a statement's that are exp, sqrt, tanh, ...
        iterations: innermost iterations in one execution of a loop.
        touched: distinct bytes in one execution of a loop and in one of its iterations, in cache lines; row 0: of the
            program.
        largest: the first of these for the buffers with the most bytes, falling.
        access: number of the access that the row is, -1 where it is none.
        access_row: row of each access, in order.
        access_buffer: the buffer.
        elements: distinct elements that an access touches.
        access_bytes: bytes that an access touches in one execution of its innermost loop, and in all.
        strides: elements between two iterations of the loops around an access, the innermost first; 0 where it stays.
        reuse: extent of the innermost loop that leaves the address unchanged (1 without); in one iteration of this
            loop, the bytes that all accesses touch and the executions of this one.
        runs: pieces of one stride into which an access falls along the innermost loop around it; 1 where its stride
            is always the same.
        repeated: of a store, the product of the loops around it that move nothing and reduce nothing.
        removable: the part of it around straight code, see `repeats.repeats`.
        index_span: terms of the index, binding or condition that the row is, a start and an end in `index_terms`.
        index_terms: see `index_terms`.
    """

    loop: Int32[np.ndarray, " nodes"]
    statement: Int32[np.ndarray, " nodes"]
    place: Int8[np.ndarray, " nodes"]
    executions: Int64[np.ndarray, " nodes"]
    reduction: Bool[np.ndarray, " nodes"]
    lanes: Int64[np.ndarray, " nodes"]
    scalar: Bool[np.ndarray, " nodes"]
    unroll_limit: Int64[np.ndarray, " nodes"]
    unrolled: Bool[np.ndarray, " nodes"]
    flops: Int64[np.ndarray, " nodes"]
    transcendental: Int64[np.ndarray, " nodes"]
    iterations: Int64[np.ndarray, " nodes"]
    touched: Int64[np.ndarray, "nodes 2"]
    largest: Int64[np.ndarray, "nodes buffers"]
    access: Int32[np.ndarray, " nodes"]
    access_row: Int32[np.ndarray, " accesses"]
    access_buffer: Int32[np.ndarray, " accesses"]
    elements: Int64[np.ndarray, " accesses"]
    access_bytes: Int64[np.ndarray, "accesses 2"]
    strides: Int64[np.ndarray, "accesses loops"]
    reuse: Int64[np.ndarray, "accesses 3"]
    runs: Int64[np.ndarray, " accesses"]
    repeated: Int64[np.ndarray, " nodes"]
    removable: Int64[np.ndarray, " nodes"]
    index_span: Int64[np.ndarray, "nodes 2"]
    index_terms: Int64[np.ndarray, "terms columns"]


def analyse(table: ProgramTable) -> Facts:
    """Computes the facts of a program."""
    from kernelcast.graphs.kernels.access_facts import access_facts, find_accesses
    from kernelcast.graphs.kernels.index_values import index_values
    from kernelcast.graphs.kernels.loop_facts import lanes, surroundings, unrolling
    from kernelcast.graphs.kernels.repeats import repeats
    from kernelcast.graphs.kernels.work import work

    kind, role, parent, end = table.kind, table.role, table.parent, table.end
    extent, buffers = table.extent, table.buffers
    span, terms, tables = index_values(kind, role, parent, end, extent, table.variable, table.value)
    loop, statement, place, executions, reduction = surroundings(kind, role, parent, extent, span, terms)
    width, scalar = lanes(kind, role, parent, end, extent, table.value, loop, span, terms)
    limit, unrolled = unrolling(kind, parent, extent, table.unroll_limit, scalar)
    flops, transcendental, iterations = work(kind, parent, extent, table.dtype, statement, place, executions)
    rows, access = find_accesses(kind, place)
    buffer, elements, access_bytes, strides, reuse, runs, moving, touched, largest = access_facts(
        kind,
        role,
        end,
        extent,
        table.buffer,
        loop,
        rows,
        span,
        terms,
        tables,
        buffers.shape,
        buffers.shape_offset,
        buffers.dtype_bytes,
    )
    repeated, removable = repeats(kind, extent, loop, statement, reduction, unrolled, rows, moving)
    return Facts(
        loop=loop,
        statement=statement,
        place=place,
        executions=executions,
        reduction=reduction,
        lanes=width,
        scalar=scalar,
        unroll_limit=limit,
        unrolled=unrolled,
        flops=flops,
        transcendental=transcendental,
        iterations=iterations,
        touched=touched,
        largest=largest,
        access=access,
        access_row=rows,
        access_buffer=buffer,
        elements=elements,
        access_bytes=access_bytes,
        strides=strides,
        reuse=reuse,
        runs=runs,
        repeated=repeated,
        removable=removable,
        index_span=span,
        index_terms=terms,
    )


def moved_bytes(table: ProgramTable, facts: Facts, cache_bytes: Int64[np.ndarray, " caches"]) -> np.ndarray:
    """Bytes between memory and caches of the sizes `cache_bytes`, see `work.moved_bytes`."""
    from kernelcast.graphs.kernels import work

    return work.moved_bytes(table.kind, facts.loop, table.extent, facts.touched, cache_bytes)
