"""Where every access goes as the loops around it run: strides, distinct elements, cache lines, reuse.

An access touches a box of elements, which grows as loops are added from the innermost one outwards.
"""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.index_terms import LOOP, MODULUS, TABLE, WIDTH, bounds, distinct_values, value_at
from kernelcast.graphs.kernels.loop_facts import BINDINGS, is_loop
from kernelcast.graphs.kernels.repeats import MARKED_LOOPS
from kernelcast.graphs.table import ROLES
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX

CACHE_LINE_BYTES = 64

STRIDE_LOOPS = 8
"""Loops around an access, innermost first, for which its stride is kept."""

LARGEST_BUFFERS = 3
"""Buffers of which a loop keeps the bytes that it touches."""

RUN_ITERATIONS = 64
"""Iterations of the innermost loop over which runs are counted: no schedule vectorises more."""

_INDEX = ROLES.index("index")
_STORE, _LOAD = NODE_KIND_INDEX["store"], NODE_KIND_INDEX["load"]


@compiled
def find_accesses(kind: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the stores and loads, in order, and the number of the access by row, -1 where there is none.

    A load in the binding of an axis is none: the binding says how loops drive the axis.
    """
    number = np.full(len(kind), -1, np.int32)
    rows = np.empty(len(kind), np.int32)
    count = 0
    for row in range(len(kind)):
        if (kind[row] == _STORE or kind[row] == _LOAD) and place[row] != BINDINGS:
            number[row] = count
            rows[count] = row
            count += 1
    return rows[:count], number


@compiled
def lines_of_box(
    distinct: np.ndarray, widest: np.ndarray, shape: np.ndarray, first: int, last: int, element_bytes: int
) -> int:
    """Cache lines of a box: the innermost dimensions are one run as long as they are covered whole."""
    lines, run, run_span, joined = 1, 1, 1, True
    for dimension in range(last - 1, first - 1, -1):
        extent = shape[dimension]
        count = min(distinct[dimension - first], widest[dimension - first] + 1, extent)
        if joined:
            run_span *= min(widest[dimension - first] + 1, extent)
            run *= count
            joined = count == extent
        else:
            lines *= count
    return lines * min(run, -(-run_span * element_bytes // CACHE_LINE_BYTES))


@compiled
def footprint(
    first: int, last: int, touched: np.ndarray, buffer: np.ndarray, of_buffer: np.ndarray, largest: np.ndarray
) -> int:
    """Distinct bytes of the accesses `first:last`; those to one buffer are taken to overlap.

    `touched` and `buffer` are by access, `of_buffer` is room for one number a buffer, and `largest` gets the bytes of
    the buffers with the most of them, falling.
    """
    total = 0
    for place in range(len(largest)):
        largest[place] = 0
    for access in range(first, last):
        of_buffer[buffer[access]] = 0
    for access in range(first, last):
        of_buffer[buffer[access]] = max(of_buffer[buffer[access]], touched[access])
    for access in range(first, last):
        size = of_buffer[buffer[access]]
        of_buffer[buffer[access]] = 0
        total += size
        for place in range(len(largest)):
            if size > largest[place]:
                size, largest[place] = largest[place], size
    return total


@compiled
def runs_of(
    index: np.ndarray,
    span: np.ndarray,
    terms: np.ndarray,
    tables: np.ndarray,
    shape: np.ndarray,
    loop: int,
    extent: int,
) -> int:
    """Pieces of one stride that an access falls into along a loop, of which the first `RUN_ITERATIONS` count.

    Lanes of one piece are one load, of several one load a lane: `x // 8 * 8` has two in 16 lanes, though it hardly
    moves. `index` are the rows of the indices by dimension, `shape` the buffer's.
    """
    even = True
    for dimension in range(len(shape)):
        at = index[dimension]
        begin, stop = (span[at, 0], span[at, 1]) if at >= 0 else (0, 0)
        for place in range(begin, stop):
            if terms[place, LOOP] == loop:
                even = even and terms[place, TABLE] < 0 and terms[place, WIDTH] == 1 and terms[place, MODULUS] == 0
    if even:
        return 1
    runs, last, stride = 1, 0, 0
    for iteration in range(1, min(extent, RUN_ITERATIONS)):
        address, step = 0, 1
        for dimension in range(len(shape) - 1, -1, -1):
            at = index[dimension]
            begin, stop = (span[at, 0], span[at, 1]) if at >= 0 else (0, 0)
            for place in range(begin, stop):
                if terms[place, LOOP] == loop:
                    address += value_at(terms[place], tables, iteration) * step
            step *= shape[dimension]
        if iteration == 1:
            stride = address
        elif address - last != stride:
            runs += 1
        last = address
    return runs


@compiled
def access_facts(
    kind: np.ndarray,
    role: np.ndarray,
    end: np.ndarray,
    extent: np.ndarray,
    buffer_of_row: np.ndarray,
    loop: np.ndarray,
    rows: np.ndarray,
    span: np.ndarray,
    terms: np.ndarray,
    tables: np.ndarray,
    shape: np.ndarray,
    shape_offset: np.ndarray,
    element_bytes: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What each access and each loop touches.

    `loop` is the row of the innermost loop around each row, `rows` are those of the accesses, `span`, `terms` and
    `tables` are what `index_values` gave; the other arguments are columns of the table and of the buffers.

    Returns:
        By access: its buffer; `elements` distinct; `bytes` [accesses, 2] touched by one execution of the innermost loop
        and by the whole program; `strides` [accesses, loops] in elements, innermost loop first, 0 where nothing moves;
        `reuse` [accesses, 3]: iterations of the innermost loop that leaves the address unchanged (1 without), bytes
        that all accesses touch in one iteration of it, executions of the access in one iteration of it; `runs`: see
        `runs_of`; `moving`: a bit for each loop around, the innermost lowest, set where the address moves in it.
        By row: `touched` [rows, 2]: distinct bytes in one execution of a loop (row 0: of the program), and in one of
        its iterations; `largest` [rows, buffers]: the first of these for the buffers with the most bytes.
    """
    count, accesses = len(kind), len(rows)
    buffer = np.empty(accesses, np.int32)
    dimensions = 1
    for access in range(accesses):
        buffer[access] = buffer_of_row[rows[access]]
        dimensions = max(dimensions, shape_offset[buffer[access] + 1] - shape_offset[buffer[access]])
    index = np.full((accesses, dimensions), -1, np.int32)
    for access in range(accesses):
        at, dimension = rows[access] + 1, 0
        while at < end[rows[access]] and role[at] == _INDEX and dimension < dimensions:
            index[access, dimension] = at
            dimension += 1
            at = end[at]
    distinct, widest = np.ones((accesses, dimensions), np.int64), np.zeros((accesses, dimensions), np.int64)
    now = np.full(accesses, CACHE_LINE_BYTES, np.int64)
    inner = np.full(accesses, CACHE_LINE_BYTES, np.int64)
    strides, loops_added = np.zeros((accesses, STRIDE_LOOPS), np.int64), np.zeros(accesses, np.int32)
    reuse, executions = np.zeros((accesses, 3), np.int64), np.ones(accesses, np.int64)
    runs, moving = np.ones(accesses, np.int64), np.zeros(accesses, np.int64)
    for access in range(accesses):
        reuse[access, 0] = 1
    touched, largest = np.zeros((count, 2), np.int64), np.zeros((count, LARGEST_BUFFERS), np.int64)
    of_buffer, scratch = np.zeros(len(element_bytes), np.int64), np.zeros(LARGEST_BUFFERS, np.int64)
    first = accesses
    for row in range(count - 1, -1, -1):
        while first > 0 and rows[first - 1] >= row:
            first -= 1
        if not is_loop(kind[row]):
            continue
        last = first
        while last < accesses and rows[last] < end[row]:
            last += 1
        touched[row, 1] = footprint(first, last, now, buffer, of_buffer, scratch)
        for access in range(first, last):
            offset = shape_offset[buffer[access]]
            rank = shape_offset[buffer[access] + 1] - offset
            moves, stride, step = False, 0, 1
            for dimension in range(rank - 1, -1, -1):
                at = index[access, dimension]
                begin, stop = (span[at, 0], span[at, 1]) if at >= 0 else (0, 0)
                for place in range(begin, stop):
                    if terms[place, LOOP] == row and extent[row] > 1:
                        moves = True
                        stride += value_at(terms[place], tables, 1) * step
                        low, high = bounds(terms[place], tables, extent[row])
                        distinct[access, dimension] *= distinct_values(terms[place], tables, extent[row])
                        widest[access, dimension] += high - low
                step *= shape[offset + dimension]
            if moves:
                size = element_bytes[buffer[access]]
                lines = lines_of_box(distinct[access], widest[access], shape, offset, offset + rank, size)
                now[access] = lines * CACHE_LINE_BYTES
            elif reuse[access, 0] == 1:
                reuse[access, 0], reuse[access, 1], reuse[access, 2] = extent[row], touched[row, 1], executions[access]
            if moves and loops_added[access] < MARKED_LOOPS:
                moving[access] |= 1 << loops_added[access]
            if loops_added[access] < STRIDE_LOOPS:
                strides[access, loops_added[access]] = abs(stride)
            if loops_added[access] == 0:
                inner[access] = now[access]
                runs[access] = runs_of(
                    index[access], span, terms, tables, shape[offset : offset + rank], row, extent[row]
                )
            loops_added[access] += 1
            executions[access] *= extent[row]
        touched[row, 0] = footprint(first, last, now, buffer, of_buffer, largest[row])
    touched[0, 0] = touched[0, 1] = footprint(0, accesses, now, buffer, of_buffer, largest[0])
    elements = np.ones(accesses, np.int64)
    for access in range(accesses):
        offset = shape_offset[buffer[access]]
        for dimension in range(shape_offset[buffer[access] + 1] - offset):
            elements[access] *= min(
                distinct[access, dimension], widest[access, dimension] + 1, shape[offset + dimension]
            )
    bytes_touched = np.empty((accesses, 2), np.int64)
    for access in range(accesses):
        bytes_touched[access, 0], bytes_touched[access, 1] = inner[access], now[access]
    return buffer, elements, bytes_touched, strides, reuse, runs, moving, touched, largest
