"""What the blocks of a program compute and who reads whom: the ground of the dataflow graph and of the tile sizes.

A *computation* is a block that stores something itself, or a store outside of any block. Where a schedule split a
reduction into a block that only sets the start value and one that adds up (`decompose_reduction`), the two are one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int8, Int16, Int32, Int64

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.table import ROLES, ProgramTable
from kernelcast.graphs.vocabulary import DTYPES, NODE_KIND_INDEX, NODE_KINDS

LOOPS = tuple(NODE_KIND_INDEX[kind] for kind in NODE_KINDS if kind.startswith("loop_"))
_BLOCK, _INIT, _STORE, _LOAD, _EVALUATE, _VARIABLE = (
    NODE_KIND_INDEX[kind] for kind in ("block", "init", "store", "load", "evaluate", "variable")
)
_SPATIAL, _REDUCED, _OTHER_AXIS = (NODE_KIND_INDEX[kind] for kind in ("axis_spatial", "axis_reduce", "axis_other"))

_ARITHMETIC = np.array(
    [kind in ("add", "sub", "mul", "div", "floordiv", "floormod", "mod", "min", "max") for kind in NODE_KINDS]
)
_INTEGER_TYPES = np.array([name.startswith(("int", "uint")) for name in DTYPES])

VALUE, INDEX, CONDITION, INHERITED = range(4)
_PLACES = np.array(
    [{"index": INDEX, "binding": INDEX, "condition": CONDITION, "value": INHERITED}.get(role, VALUE) for role in ROLES],
    dtype=np.int8,
)

MOST_BITS = 62
"""Loops of one nest and axes of one block that a mask holds; deeper ones share the last bit."""

_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Rows:
    """What every row of a table is for, found in one pass.

    Attributes:
        place: whether it is part of a `VALUE`, an `INDEX` or a `CONDITION`.
        loops: loops around the row.
        levels: the loops that an expression moves with, as bits, the outermost loop of the nest lowest.
        spatial: the spatial axes of the block that it moves with, as bits.
        reduced: the reduced axes of the block that it moves with.
        integer_operations: arithmetic with integers in one execution of a statement, not in indices and conditions.
    """

    place: Int8[np.ndarray, " nodes"]
    loops: Int32[np.ndarray, " nodes"]
    levels: Int64[np.ndarray, " nodes"]
    spatial: Int64[np.ndarray, " nodes"]
    reduced: Int64[np.ndarray, " nodes"]
    integer_operations: Int64[np.ndarray, " nodes"]


@dataclass(frozen=True)
class Computations:
    """The computations of a program in topological order, and the tensors between them.

    Attributes:
        main: the store of each that is executed most, what stands for it; an `evaluate` where it stores nothing.
        start: the store that sets the start value in another block, -1 without.
        owner: the block of every row by the row of the block, the store itself outside of blocks, -1 outside of both.
        start_owner: the block with the start value, -1 without.
        accumulates: a reduction: adds to what it wrote before, from a start value or along a reduced axis.
        parameters: tensors that are read before anything wrote them and are no temporaries, in order of first use.
        edges: producer, consumer and tensor, a row an edge. Producers are numbered with the parameters first, then the
            computations, and so are the consumers.
    """

    main: Int32[np.ndarray, " computations"]
    start: Int32[np.ndarray, " computations"]
    owner: Int32[np.ndarray, " nodes"]
    start_owner: Int32[np.ndarray, " computations"]
    accumulates: Bool[np.ndarray, " computations"]
    parameters: Int32[np.ndarray, " parameters"]
    edges: Int32[np.ndarray, "edges 3"]


def read_rows(table: ProgramTable) -> Rows:
    """Finds what each row is for."""
    variables = int(table.variable.max(initial=-1)) + 1
    return Rows(
        *_read_rows(
            table.kind,
            _PLACES[table.role],
            table.parent,
            table.end,
            table.variable,
            _ARITHMETIC[table.kind] & _INTEGER_TYPES[table.dtype],
            variables,
        )
    )


def find_computations(table: ProgramTable, rows: Rows, executions: Int64[np.ndarray, " nodes"]) -> Computations:
    """Finds the computations of a program and the tensors between them.

    Args:
        table: the program.
        rows: of `read_rows`.
        executions: how often each row is reached.
    """
    found = _find_computations(
        table.kind, rows.place, table.parent, table.end, table.buffer, table.buffers.temporary, executions, rows.reduced
    )
    return Computations(*found)


@compiled
def _read_rows(
    kind: Int16[np.ndarray, " nodes"],
    own_place: Int8[np.ndarray, " nodes"],
    parent: Int32[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    variable: Int32[np.ndarray, " nodes"],
    calculates: Bool[np.ndarray, " nodes"],
    variables: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    count = len(kind)
    place = np.zeros(count, dtype=np.int8)
    loops = np.zeros(count, dtype=np.int32)
    axes = np.zeros(count, dtype=np.int32)
    levels = np.zeros(count, dtype=np.int64)
    spatial = np.zeros(count, dtype=np.int64)
    reduced = np.zeros(count, dtype=np.int64)
    integer_operations = np.zeros(count, dtype=np.int64)
    variable_levels = np.zeros(variables, dtype=np.int64)
    variable_spatial = np.zeros(variables, dtype=np.int64)
    variable_reduced = np.zeros(variables, dtype=np.int64)
    for row in range(1, count):
        above = parent[row]
        what = kind[row]
        place[row] = place[above] if own_place[row] == INHERITED or place[above] == INDEX else own_place[row]
        inside = kind[above] in LOOPS
        loops[row] = loops[above] + (1 if inside else 0)
        axes[row] = axes[above]
        if what in LOOPS:
            variable_levels[variable[row]] = np.int64(1) << min(loops[row], MOST_BITS)
        elif what in (_SPATIAL, _REDUCED, _OTHER_AXIS):
            bit = np.int64(1) << min(axes[above], MOST_BITS)
            axes[above] += 1
            moves = np.int64(0)
            for below in range(row + 1, end[row]):
                if kind[below] == _VARIABLE:
                    moves |= variable_levels[variable[below]]
            defined = variable[row]
            variable_levels[defined] = moves
            if what == _REDUCED:
                variable_reduced[defined] = bit
            else:
                variable_spatial[defined] = bit
        elif what == _VARIABLE:
            used = variable[row]
            levels[row], spatial[row], reduced[row] = (
                variable_levels[used],
                variable_spatial[used],
                variable_reduced[used],
            )
    for row in range(count - 1, 0, -1):
        # statements and axes are no part of an expression
        if own_place[row] != VALUE:
            above = parent[row]
            if place[row] == VALUE:
                integer_operations[row] += calculates[row]
                integer_operations[above] += integer_operations[row]
            levels[above] |= levels[row]
            spatial[above] |= spatial[row]
            reduced[above] |= reduced[row]
    return place, loops, levels, spatial, reduced, integer_operations


@compiled
def _find_computations(
    kind: Int16[np.ndarray, " nodes"],
    place: Int8[np.ndarray, " nodes"],
    parent: Int32[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    buffer: Int32[np.ndarray, " nodes"],
    temporary: Bool[np.ndarray, " buffers"],
    executions: Int64[np.ndarray, " nodes"],
    reduced: Int64[np.ndarray, " nodes"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    count, buffers = len(kind), len(temporary)
    owner = np.full(count, -1, dtype=np.int32)
    starting = np.zeros(count, dtype=np.bool_)
    number = np.full(count, -1, dtype=np.int32)
    found = 0
    for row in range(1, count):
        above = parent[row]
        owner[row] = owner[above]
        starting[row] = starting[above] or kind[row] == _INIT
        if kind[row] == _BLOCK:
            owner[row] = row
            starting[row] = False
        elif kind[row] == _STORE or kind[row] == _EVALUATE:
            if owner[row] < 0:
                owner[row] = row
            if number[owner[row]] < 0:
                number[owner[row]] = found
                found += 1

    main = np.full(found, -1, dtype=np.int32)
    last = np.full(found, -1, dtype=np.int32)
    owner_row = np.full(found, -1, dtype=np.int32)
    loads = np.zeros(found, dtype=np.int32)
    # the store that adds to what is there already, and the buffer it does so in
    adding = np.full(found, -1, dtype=np.int32)
    written = np.full((found, buffers), _NEVER, dtype=np.int32)
    last_read = np.full((found, buffers), -1, dtype=np.int32)
    outside = np.zeros((found, buffers), dtype=np.bool_)
    first_written = np.full(buffers, _NEVER, dtype=np.int32)
    first_use = np.full(buffers, -1, dtype=np.int32)
    uses = 0
    statement = -1
    for row in range(1, count):
        own = number[owner[row]] if owner[row] >= 0 else -1
        if own < 0:
            continue
        if kind[row] == _STORE or kind[row] == _EVALUATE:
            statement = row
            owner_row[own] = owner[row]
            last[own] = row
            best = main[own]
            better = best < 0 or (kind[row] == _STORE and kind[best] == _EVALUATE)
            if not better and kind[row] == _STORE:
                better = starting[best] and not starting[row]
                if starting[best] == starting[row]:
                    better = executions[row] > executions[best]
            if better:
                main[own] = row
            if kind[row] == _STORE:
                tensor = buffer[row]
                written[own, tensor] = min(written[own, tensor], end[row])
                first_written[tensor] = min(first_written[tensor], end[row])
        elif kind[row] == _LOAD:
            tensor = buffer[row]
            loads[own] += 1
            last_read[own, tensor] = row
            if first_written[tensor] > row and not temporary[tensor]:
                outside[own, tensor] = True
                if first_use[tensor] < 0:
                    first_use[tensor] = uses
                    uses += 1
            inside = statement >= 0 and row < end[statement] and kind[statement] == _STORE
            if inside and buffer[statement] == tensor and place[row] == VALUE and adding[own] < 0:
                adding[own] = statement

    # a block that reads nothing and writes what the next one adds to is the start of that one
    start = np.full(found, -1, dtype=np.int32)
    merged = np.zeros(found, dtype=np.bool_)
    for own in range(found):
        row = adding[own]
        if row < 0 or written[own, buffer[row]] <= row:
            continue
        for other in range(found - 1, -1, -1):
            if other != own and not merged[other] and written[other, buffer[row]] <= row:
                if loads[other] == 0:
                    start[own] = other
                    merged[other] = True
                break

    order = np.empty(found, dtype=np.int32)
    nodes = 0
    for own in range(found):
        if merged[own]:
            continue
        position = nodes
        while position > 0 and last[order[position - 1]] > last[own]:
            order[position] = order[position - 1]
            position -= 1
        order[position] = own
        nodes += 1

    parameters = np.empty(uses, dtype=np.int32)
    for tensor in range(buffers):
        if first_use[tensor] >= 0:
            parameters[first_use[tensor]] = tensor
    total = 0
    edges = np.empty((nodes * (nodes + 1) // 2 * max(buffers, 1) + nodes * uses, 3), dtype=np.int32)
    for position in range(nodes):
        own = order[position]
        for tensor in range(buffers):
            if last_read[own, tensor] < 0:
                continue
            if outside[own, tensor]:
                edges[total, 0], edges[total, 1], edges[total, 2] = first_use[tensor], uses + position, tensor
                total += 1
            for before in range(position):
                if written[order[before], tensor] <= last_read[own, tensor]:
                    edges[total, 0], edges[total, 1], edges[total, 2] = uses + before, uses + position, tensor
                    total += 1

    main_rows = np.empty(nodes, dtype=np.int32)
    start_rows = np.full(nodes, -1, dtype=np.int32)
    start_owner = np.full(nodes, -1, dtype=np.int32)
    accumulates = np.zeros(nodes, dtype=np.bool_)
    for position in range(nodes):
        own = order[position]
        main_rows[position] = main[own]
        if adding[own] >= 0:
            begun = written[own, buffer[adding[own]]] <= adding[own]
            accumulates[position] = begun or start[own] >= 0 or reduced[adding[own]] != 0
        if start[own] >= 0:
            start_rows[position] = main[start[own]]
            start_owner[position] = owner_row[start[own]]
    return main_rows, start_rows, owner, start_owner, accumulates, parameters, edges[:total].copy()
