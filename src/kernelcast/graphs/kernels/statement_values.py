"""One row of numbers a statement: what it computes, the loops around it, what it accesses."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.flat_columns import ACCESS_WIDTH, INNER_LOOPS, RANKED_LOADS, STATEMENT_FEATURES, STATEMENT_INDEX
from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.loop_facts import lane_parts
from kernelcast.graphs.table import ROLES
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX

WIDTH = len(STATEMENT_FEATURES)

_EXECUTIONS, _FLOPS = STATEMENT_INDEX["executions"], STATEMENT_INDEX["flops"]
_TRANSCENDENTAL, _DEPTH = STATEMENT_INDEX["transcendental_flops"], STATEMENT_INDEX["depth_loops"]
_LANES, _STEPS = STATEMENT_INDEX["lanes"], STATEMENT_INDEX["straight_steps"]
_LIMIT, _PARALLEL_EXTENT = STATEMENT_INDEX["unroll_limit_steps"], STATEMENT_INDEX["parallel_extent"]
_REDUCTION, _INNER_REDUCTION = STATEMENT_INDEX["reduction_extent"], STATEMENT_INDEX["inner_reduction_extent"]
_LANE_PARTS = STATEMENT_INDEX["lane_parts"]
_REPEATED, _REMOVABLE = STATEMENT_INDEX["repeated_iterations"], STATEMENT_INDEX["removable_iterations"]
_IS_INIT, _IS_GUARDED = STATEMENT_INDEX["is_init"], STATEMENT_INDEX["is_guarded"]
_ACCESSES, _INTENSITY = STATEMENT_INDEX["accesses"], STATEMENT_INDEX["intensity"]
_LOOP_EXTENT, _LOOP_BYTES = STATEMENT_INDEX["inner1_extent"], STATEMENT_INDEX["inner1_touched_bytes"]
_LOOP_REDUCTION, _LOOP_STRAIGHT = STATEMENT_INDEX["inner1_is_reduction"], STATEMENT_INDEX["inner1_is_straight"]
_LOOP_INTENSITY, _LOOP_STEP = STATEMENT_INDEX["inner1_intensity"], STATEMENT_INDEX["inner2_extent"] - _LOOP_EXTENT
_TARGET, _LOADS = STATEMENT_INDEX["target_inner_bytes"], STATEMENT_INDEX["load1_inner_bytes"]
_CONDITION = ROLES.index("condition")
_PARALLEL, _STORE = NODE_KIND_INDEX["loop_parallel"], NODE_KIND_INDEX["store"]
_BLOCK, _INIT, _BRANCH = (NODE_KIND_INDEX[kind] for kind in ("block", "init", "branch"))


@compiled
def nothing() -> np.ndarray:
    """The row of a statement that is not there."""
    row = np.zeros(WIDTH, np.float64)
    row[_PARALLEL_EXTENT] = row[_REDUCTION] = row[_INNER_REDUCTION] = row[_REPEATED] = row[_REMOVABLE] = 1
    return row


@compiled
def buffer_sizes(shape: np.ndarray, shape_offset: np.ndarray, element_bytes: np.ndarray) -> np.ndarray:
    """Bytes of each buffer."""
    sizes = np.empty(len(element_bytes), np.int64)
    for buffer in range(len(sizes)):
        sizes[buffer] = element_bytes[buffer]
        for place in range(shape_offset[buffer], shape_offset[buffer + 1]):
            sizes[buffer] *= shape[place]
    return sizes


@compiled
def put_access(
    values: np.ndarray,
    access: int,
    executions: int,
    size: int,
    elements: np.ndarray,
    access_bytes: np.ndarray,
    strides: np.ndarray,
    reuse: np.ndarray,
    runs: np.ndarray,
) -> None:
    """Writes the columns of one access, in the order of the table."""
    values[0], values[1] = access_bytes[access, 0], access_bytes[access, 1]
    values[2] = executions / elements[access]
    values[3], values[4], values[5] = reuse[access, 0], reuse[access, 1], reuse[access, 2]
    values[6], values[7] = size, runs[access]
    for place in range(INNER_LOOPS):
        values[8 + place] = strides[access, place]


@compiled
def guarded(row: int, kind: np.ndarray, role: np.ndarray, end: np.ndarray) -> bool:
    """Whether a block or branch has a condition."""
    at = row + 1
    while at < end[row]:
        if role[at] == _CONDITION:
            return True
        at = end[at]
    return kind[row] == _BRANCH


@compiled
def put_surroundings(
    values: np.ndarray,
    row: int,
    kind: np.ndarray,
    role: np.ndarray,
    parent: np.ndarray,
    end: np.ndarray,
    extent: np.ndarray,
    loop: np.ndarray,
    reduction: np.ndarray,
    unrolled: np.ndarray,
    flops: np.ndarray,
    touched: np.ndarray,
) -> None:
    """Writes what stands around a statement, from inside outwards."""
    values[_STEPS] = values[_PARALLEL_EXTENT] = values[_REDUCTION] = values[_INNER_REDUCTION] = 1
    depth, reducing = 0, True
    around = loop[row]
    while around >= 0:
        if depth < INNER_LOOPS:
            at = depth * _LOOP_STEP
            values[_LOOP_EXTENT + at], values[_LOOP_BYTES + at] = extent[around], touched[around, 0]
            values[_LOOP_REDUCTION + at], values[_LOOP_STRAIGHT + at] = reduction[around], unrolled[around]
            values[_LOOP_INTENSITY + at] = flops[around] / max(touched[around, 0], 1)
        if unrolled[around]:
            values[_STEPS] *= extent[around]
        if kind[around] == _PARALLEL:
            values[_PARALLEL_EXTENT] = extent[around]
        reducing = reducing and reduction[around]
        if reduction[around]:
            values[_REDUCTION] *= extent[around]
        if reducing:
            values[_INNER_REDUCTION] *= extent[around]
        depth += 1
        around = loop[around]
    values[_DEPTH] = depth
    above = parent[row]
    while above >= 0:
        if kind[above] == _INIT:
            values[_IS_INIT] = 1
        elif (kind[above] == _BLOCK or kind[above] == _BRANCH) and guarded(above, kind, role, end):
            values[_IS_GUARDED] = 1
        above = parent[above]


@compiled
def statement_values(
    kind: np.ndarray,
    role: np.ndarray,
    parent: np.ndarray,
    end: np.ndarray,
    extent: np.ndarray,
    loop: np.ndarray,
    statement: np.ndarray,
    executions: np.ndarray,
    reduction: np.ndarray,
    lanes: np.ndarray,
    unroll_limit: np.ndarray,
    unrolled: np.ndarray,
    flops: np.ndarray,
    transcendental: np.ndarray,
    touched: np.ndarray,
    access_row: np.ndarray,
    access_buffer: np.ndarray,
    elements: np.ndarray,
    access_bytes: np.ndarray,
    strides: np.ndarray,
    reuse: np.ndarray,
    runs: np.ndarray,
    repeated: np.ndarray,
    removable: np.ndarray,
    sizes: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all statements in program order, and the row of the table of each.

    `sizes` are bytes by buffer; the other arguments are columns of the table and facts.
    """
    number, rows = np.full(len(kind), -1, np.int32), np.empty(len(kind), np.int32)
    count = 0
    for row in range(len(kind)):
        if statement[row] == row:
            number[row], rows[count] = count, row
            count += 1
    values = np.zeros((count, WIDTH), np.float64)
    for place in range(count):
        row = rows[place]
        here = values[place]
        here[_EXECUTIONS], here[_FLOPS], here[_TRANSCENDENTAL] = executions[row], flops[row], transcendental[row]
        here[_LANES], here[_LANE_PARTS], here[_LIMIT] = lanes[row], lane_parts(lanes[row]), unroll_limit[row]
        here[_REPEATED], here[_REMOVABLE] = repeated[row], removable[row]
        put_surroundings(here, row, kind, role, parent, end, extent, loop, reduction, unrolled, flops, touched)
    largest = np.full((count, RANKED_LOADS), -1, np.int32)
    distinct_bytes = np.zeros(count, np.int64)
    for access in range(len(access_row)):
        row = access_row[access]
        place = number[statement[row]] if statement[row] >= 0 else -1
        if place < 0:
            continue
        values[place, _ACCESSES] += 1
        distinct_bytes[place] += access_bytes[access, 1]
        if kind[row] == _STORE:
            size = sizes[access_buffer[access]]
            target = values[place, _TARGET : _TARGET + ACCESS_WIDTH]
            put_access(target, access, executions[row], size, elements, access_bytes, strides, reuse, runs)
            continue
        moved = access
        for rank in range(RANKED_LOADS):
            other = largest[place, rank]
            if other < 0 or sizes[access_buffer[moved]] > sizes[access_buffer[other]]:
                largest[place, rank] = moved
                moved = other
            if moved < 0:
                break
    for place in range(count):
        here = values[place]
        here[_INTENSITY] = here[_FLOPS] * here[_EXECUTIONS] / max(distinct_bytes[place], 1)
        for rank in range(RANKED_LOADS):
            access = largest[place, rank]
            if access >= 0:
                first = _LOADS + rank * ACCESS_WIDTH
                size = sizes[access_buffer[access]]
                load = here[first : first + ACCESS_WIDTH]
                put_access(load, access, executions[rows[place]], size, elements, access_bytes, strides, reuse, runs)
    return values, rows[:count]
