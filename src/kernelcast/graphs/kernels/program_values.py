"""One row of numbers a program, of the same width whatever the program."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.flat_columns import (
    CACHE_KIB,
    PROGRAM_FEATURES,
    PROGRAM_INDEX,
    RANKED_STATEMENTS,
    STATEMENT_FEATURES,
    STATEMENT_INDEX,
)
from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.loop_facts import is_loop
from kernelcast.graphs.kernels.statement_values import guarded, nothing
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX

WEIGHTY_SHARE = 0.1
"""A parallel region with a smaller share of the operations does not decide how many cores help."""

WIDTH = len(PROGRAM_FEATURES)

_STATEMENT_WIDTH, _RANKED = len(STATEMENT_FEATURES), len(RANKED_STATEMENTS)
_EXECUTIONS, _OPERATIONS = STATEMENT_INDEX["executions"], STATEMENT_INDEX["flops"]
_FUNCTIONS, _LANES = STATEMENT_INDEX["transcendental_flops"], STATEMENT_INDEX["lanes"]
_DEPTH, _STEPS, _INNER = (STATEMENT_INDEX[name] for name in ("depth_loops", "straight_steps", "inner1_extent"))
_FLOPS, _TRANSCENDENTAL = PROGRAM_INDEX["flops"], PROGRAM_INDEX["transcendental_flops"]
_VECTOR_SHARE, _PARALLEL_SHARE = PROGRAM_INDEX["vector_share"], PROGRAM_INDEX["parallel_share"]
_PARALLEL_EXTENT, _PARALLEL_STARTS = PROGRAM_INDEX["parallel_extent"], PROGRAM_INDEX["parallel_starts"]
_UNIQUE, _TEMPORARY = PROGRAM_INDEX["unique_bytes"], PROGRAM_INDEX["temporary_bytes"]
_MOVED, _CACHES = PROGRAM_INDEX["moved_bytes"], 1 + len(CACHE_KIB)
_LOADS, _STORES = PROGRAM_INDEX["load_count"], PROGRAM_INDEX["store_count"]
_CONTIGUOUS, _INVARIANT = PROGRAM_INDEX["contiguous_count"], PROGRAM_INDEX["invariant_count"]
_STRIDED, _GUARDED = PROGRAM_INDEX["strided_count"], PROGRAM_INDEX["guarded_count"]
_LOOP_STARTS, _LOOP_ITERATIONS = PROGRAM_INDEX["loop_starts"], PROGRAM_INDEX["loop_iterations"]
_KINDS, _STRAIGHT = PROGRAM_INDEX["serial_loops"], PROGRAM_INDEX["straight_loops"]
_STATEMENTS, _BUFFERS = PROGRAM_INDEX["statements"], PROGRAM_INDEX["buffers"]
_DEPTH_LOOPS, _STATISTICS = PROGRAM_INDEX["depth_loops"], PROGRAM_INDEX["sum_executions"]
_FIRST_STATEMENT = PROGRAM_INDEX["first_executions"]
_FIRST_LOOP, _VECTORIZED = NODE_KIND_INDEX["loop_serial"], NODE_KIND_INDEX["loop_vectorized"]
_PARALLEL, _STORE = NODE_KIND_INDEX["loop_parallel"], NODE_KIND_INDEX["store"]
_BLOCK, _BRANCH = NODE_KIND_INDEX["block"], NODE_KIND_INDEX["branch"]


@compiled
def put_work(
    values: np.ndarray,
    statements: np.ndarray,
    rows: np.ndarray,
    kind: np.ndarray,
    extent: np.ndarray,
    loop: np.ndarray,
    executions: np.ndarray,
) -> None:
    """Writes what is computed, and the shares of it in vectorised and in parallel loops."""
    weights = np.zeros(len(rows), np.float64)
    for place in range(len(rows)):
        here = statements[place]
        weights[place] = here[_OPERATIONS] * here[_EXECUTIONS]
        values[_FLOPS] += weights[place]
        values[_TRANSCENDENTAL] += here[_FUNCTIONS] * here[_EXECUTIONS]
    total = values[_FLOPS]
    if total == 0:
        for place in range(len(rows)):
            weights[place] = statements[place, _EXECUTIONS]
            total += weights[place]
    in_region = np.full(len(kind), -1.0, np.float64)
    for place in range(len(rows)):
        if statements[place, _LANES] > 1:
            values[_VECTOR_SHARE] += weights[place] / total
        around, outermost = loop[rows[place]], -1
        while around >= 0:
            if kind[around] == _PARALLEL:
                outermost = around
            around = loop[around]
        if outermost >= 0:
            values[_PARALLEL_SHARE] += weights[place] / total
            in_region[outermost] = max(in_region[outermost], 0.0) + weights[place] / total
    smallest = 0
    for row in range(len(kind)):
        if in_region[row] >= 0:
            values[_PARALLEL_STARTS] += executions[row]
            if in_region[row] >= WEIGHTY_SHARE and (smallest == 0 or extent[row] < smallest):
                smallest = extent[row]
    values[_PARALLEL_EXTENT] = max(smallest, 1)


@compiled
def put_memory(
    values: np.ndarray,
    kind: np.ndarray,
    statement: np.ndarray,
    executions: np.ndarray,
    access_row: np.ndarray,
    access_buffer: np.ndarray,
    elements: np.ndarray,
    strides: np.ndarray,
    element_bytes: np.ndarray,
    temporary: np.ndarray,
) -> None:
    """Writes what is accessed and how."""
    unique = np.zeros(len(element_bytes), np.int64)
    for access in range(len(access_row)):
        row, buffer = access_row[access], access_buffer[access]
        if statement[row] < 0:
            continue
        unique[buffer] = max(unique[buffer], elements[access] * element_bytes[buffer])
        values[_STORES if kind[row] == _STORE else _LOADS] += executions[row]
        stride = strides[access, 0]
        values[_INVARIANT if stride == 0 else _CONTIGUOUS if stride == 1 else _STRIDED] += executions[row]
    for buffer in range(len(unique)):
        values[_UNIQUE] += unique[buffer]
        if temporary[buffer]:
            values[_TEMPORARY] += unique[buffer]
    values[_BUFFERS] = len(unique)


@compiled
def put_loops(
    values: np.ndarray,
    kind: np.ndarray,
    role: np.ndarray,
    end: np.ndarray,
    extent: np.ndarray,
    executions: np.ndarray,
    scalar: np.ndarray,
    unrolled: np.ndarray,
) -> None:
    """Writes how many loops of which kind there are and how often they start; how often conditions are met."""
    for row in range(len(kind)):
        if is_loop(kind[row]):
            values[_KINDS + kind[row] - _FIRST_LOOP] += 1
            values[_STRAIGHT] += unrolled[row]
            if not unrolled[row] and (scalar[row] or kind[row] != _VECTORIZED):
                values[_LOOP_STARTS] += executions[row]
                values[_LOOP_ITERATIONS] += executions[row] * extent[row]
        elif (kind[row] == _BLOCK or kind[row] == _BRANCH) and guarded(row, kind, role, end):
            values[_GUARDED] += executions[row]


@compiled
def put_statistics(values: np.ndarray, statements: np.ndarray, summed_bytes: np.ndarray) -> None:
    """Writes the sum, the largest and the mean of some quantities over all statements, in the order of `QUANTITIES`."""
    count = len(statements)
    values[_STATEMENTS] = count
    for place in range(count):
        here = statements[place]
        values[_DEPTH_LOOPS] = max(values[_DEPTH_LOOPS], here[_DEPTH])
        quantities = (
            here[_EXECUTIONS],
            max(here[_INNER], 1.0),
            here[_STEPS],
            here[_LANES],
            summed_bytes[place, 0],
            summed_bytes[place, 1],
        )
        for number in range(len(quantities)):
            at = _STATISTICS + 3 * number
            values[at] += quantities[number]
            values[at + 1] = max(values[at + 1], quantities[number])
            values[at + 2] = values[at] / count


@compiled
def put_ranked(values: np.ndarray, statements: np.ndarray) -> None:
    """Writes the rows of the statements with the most operations, then executions."""
    taken = np.zeros(len(statements), np.bool_)
    for rank in range(_RANKED):
        best = -1
        for place in range(len(statements)):
            if taken[place]:
                continue
            if best < 0:
                best = place
                continue
            here, there = statements[place], statements[best]
            work, most = here[_OPERATIONS] * here[_EXECUTIONS], there[_OPERATIONS] * there[_EXECUTIONS]
            if work > most or (work == most and here[_EXECUTIONS] > there[_EXECUTIONS]):
                best = place
        first = _FIRST_STATEMENT + rank * _STATEMENT_WIDTH
        if best >= 0:
            taken[best] = True
        row = statements[best] if best >= 0 else nothing()
        for column in range(_STATEMENT_WIDTH):
            values[first + column] = row[column]


@compiled
def program_values(
    statements: np.ndarray,
    rows: np.ndarray,
    moved: np.ndarray,
    kind: np.ndarray,
    role: np.ndarray,
    end: np.ndarray,
    extent: np.ndarray,
    loop: np.ndarray,
    statement: np.ndarray,
    executions: np.ndarray,
    scalar: np.ndarray,
    unrolled: np.ndarray,
    access_row: np.ndarray,
    access_buffer: np.ndarray,
    elements: np.ndarray,
    access_bytes: np.ndarray,
    strides: np.ndarray,
    element_bytes: np.ndarray,
    temporary: np.ndarray,
) -> np.ndarray:
    """The natural values of a program's row.

    `statements` and `rows` are what `statement_values` gave, `moved` is the traffic past the caches in the order of the
    columns; the other arguments are columns of the table, facts and buffers.
    """
    values = np.zeros(WIDTH, np.float64)
    put_work(values, statements, rows, kind, extent, loop, executions)
    put_memory(
        values, kind, statement, executions, access_row, access_buffer, elements, strides, element_bytes, temporary
    )
    for cache in range(_CACHES):
        values[_MOVED + cache] = moved[cache]
    put_loops(values, kind, role, end, extent, executions, scalar, unrolled)
    number = np.full(len(kind), -1, np.int32)
    for place in range(len(rows)):
        number[rows[place]] = place
    summed_bytes = np.zeros((len(rows), 2), np.float64)
    for access in range(len(access_row)):
        of_statement = statement[access_row[access]]
        if of_statement >= 0:
            summed_bytes[number[of_statement], 0] += access_bytes[access, 0]
            summed_bytes[number[of_statement], 1] += access_bytes[access, 1]
    put_statistics(values, statements, summed_bytes)
    put_ranked(values, statements)
    return values
