"""The tiles of a statement: how its loops are cut into levels, and the box of each tensor that a level touches.

A schedule by the rule of multi-level tiling puts the loops in the order SSRSRS: spatial, spatial, reduced, spatial,
reduced, spatial, outermost first. Loops that run once are left out and outer ones fused, so the levels are read off the
nest as it is: by where spatial loops give way to reduced ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int16, Int32, Int64

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.computations import INDEX, LOOPS, VALUE, Rows
from kernelcast.graphs.slots import SLOTS
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX

TENSORS = 3
"""The tensor that is written and the two largest that are read."""

_FAR = 1 << 30
"""Bound of what is known of no index; the product of two is still a number of 64 bits."""

_PARALLEL, _BINDING = NODE_KIND_INDEX["loop_parallel"], NODE_KIND_INDEX["loop_thread_binding"]
_BLOCK, _LOAD, _VARIABLE, _CONSTANT = (NODE_KIND_INDEX[kind] for kind in ("block", "load", "variable", "constant"))
_AXES = tuple(NODE_KIND_INDEX[kind] for kind in ("axis_spatial", "axis_reduce", "axis_other"))
_REDUCED, _SELECT, _CAST = (NODE_KIND_INDEX[kind] for kind in ("axis_reduce", "select", "cast"))
_ADD, _SUB, _MUL, _DIV, _FLOORDIV, _FLOORMOD, _MOD, _MIN, _MAX = (
    NODE_KIND_INDEX[kind] for kind in ("add", "sub", "mul", "div", "floordiv", "floormod", "mod", "min", "max")
)
_TRUTHS = tuple(NODE_KIND_INDEX[kind] for kind in ("compare", "logical"))


@dataclass(frozen=True)
class Tiles:
    """The levels around one statement.

    Attributes:
        runs: iterations of the loops of each level, see `kernel_features.RUNS`.
        parallel: iterations of the parallel loops around it.
        innermost: extent of the innermost loop, 1 without.
        innermost_reduced: the innermost loop moves a reduced axis.
        tile: the dimensions that one iteration of the outer loops touches, of the tensor written and of the two
            largest read; a row a tensor, `SLOTS` dimensions from the innermost, then the sum, then the product. Outer
            are the outermost reduced loops and those around them; without reduced loops the parallel loops; without
            those all but the innermost.
        inner_tile: the same of the tensor written, for the loops inside all reduced ones; without reduced loops for
            the innermost loop.
    """

    runs: Float64[np.ndarray, " runs"]
    parallel: float
    innermost: float
    innermost_reduced: bool
    tile: Float64[np.ndarray, "tensors places"]
    inner_tile: Float64[np.ndarray, " places"]


def tiles(table: ProgramTable, rows: Rows, statement: int) -> Tiles:
    """The tiles around the store in row `statement`."""
    buffers = table.buffers
    variables = int(table.variable.max(initial=-1)) + 1
    runs, parallel, innermost, innermost_reduced, boxes = _tiles(
        statement,
        table.kind,
        rows.place,
        table.parent,
        table.end,
        table.extent,
        table.variable,
        table.buffer,
        table.value,
        rows.levels,
        buffers.shape,
        buffers.shape_offset,
        buffers.dtype_bytes,
        variables,
    )
    return Tiles(runs, parallel, innermost, innermost_reduced, boxes[:TENSORS], boxes[TENSORS])


def no_tiles() -> Tiles:
    """Those of a program that stores nothing."""
    empty = np.zeros((TENSORS + 1, SLOTS + 2), dtype=np.float64)
    return Tiles(np.ones(5, dtype=np.float64), 1.0, 1.0, False, empty[:TENSORS], empty[TENSORS])


@compiled
def compact_shape(
    extents: Int64[np.ndarray, " dimensions"], start: int, stop: int, into: Float64[np.ndarray, " places"]
) -> None:
    """Writes dimensions longer than 1 from the innermost outwards, then their sum and product.

    Dimensions beyond the last slot are multiplied into it.
    """
    slot, total, product = 0, 0, 1.0
    for dimension in range(stop - 1, start - 1, -1):
        extent = extents[dimension]
        product *= extent
        if extent > 1:
            total += extent
            if slot < SLOTS:
                into[slot] = extent
            else:
                into[SLOTS - 1] *= extent
            slot += 1
    into[SLOTS] = total
    into[SLOTS + 1] = product


@compiled
def _tiles(
    statement: int,
    kind: Int16[np.ndarray, " nodes"],
    place: Int8[np.ndarray, " nodes"],
    parent: Int32[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    extent: Int64[np.ndarray, " nodes"],
    variable: Int32[np.ndarray, " nodes"],
    buffer: Int32[np.ndarray, " nodes"],
    value: Float64[np.ndarray, " nodes"],
    levels: Int64[np.ndarray, " nodes"],
    shape: Int64[np.ndarray, " dimensions"],
    shape_offset: Int32[np.ndarray, " buffers_plus_1"],
    dtype_bytes: Int32[np.ndarray, " buffers"],
    variables: int,
) -> tuple[np.ndarray, float, float, bool, np.ndarray]:
    # what is around the statement, outermost first
    around = np.empty(len(kind), dtype=np.int32)
    count = 0
    row = parent[statement]
    while row > 0:
        around[count] = row
        count += 1
        row = parent[row]
    around = around[:count][::-1].copy()

    loops = np.empty(count, dtype=np.int32)
    depth = 0
    reduced_levels = np.int64(0)
    for level in range(count):
        row = around[level]
        if kind[row] in LOOPS:
            loops[depth] = row
            depth += 1
        elif kind[row] == _BLOCK:
            axis = row + 1
            while axis < end[row] and kind[axis] in _AXES:
                if kind[axis] == _REDUCED:
                    reduced_levels |= levels[axis + 1]
                axis = end[axis]
    reduces = np.zeros(depth, dtype=np.bool_)
    for level in range(depth):
        reduces[level] = reduced_levels >> min(level, 62) & 1 == 1

    runs, outer, inner = _levels(depth, reduces, loops, kind, extent)
    parallel = 1.0
    for level in range(depth):
        if kind[loops[level]] == _PARALLEL or kind[loops[level]] == _BINDING:
            parallel *= extent[loops[level]]
    innermost = 1.0 * extent[loops[depth - 1]] if depth > 0 else 1.0
    innermost_reduced = depth > 0 and reduces[depth - 1]

    # the largest tensors that are read, each once
    reads = np.full(2, -1, dtype=np.int32)
    for row in range(statement + 1, end[statement]):
        if kind[row] != _LOAD or place[row] != VALUE or buffer[row] == buffer[statement]:
            continue
        read = row
        for rank in range(2):
            if reads[rank] >= 0 and buffer[reads[rank]] == buffer[read]:
                break
            if reads[rank] < 0:
                reads[rank] = read
                break
            if _bytes(buffer[read], shape, shape_offset, dtype_bytes) > _bytes(
                buffer[reads[rank]], shape, shape_offset, dtype_bytes
            ):
                reads[rank], read = read, reads[rank]

    boxes = np.zeros((TENSORS + 1, SLOTS + 2), dtype=np.float64)
    low = np.zeros(len(kind), dtype=np.int64)
    high = np.zeros(len(kind), dtype=np.int64)
    first = np.zeros(variables, dtype=np.int64)
    last = np.zeros(variables, dtype=np.int64)
    for turn in range(2):
        cut = outer if turn == 0 else inner
        first[:] = 0
        last[:] = 0
        for level in range(cut, depth):
            last[variable[loops[level]]] = extent[loops[level]] - 1
        for level in range(count):
            row = around[level]
            axis = row + 1
            while kind[row] == _BLOCK and axis < end[row] and kind[axis] in _AXES:
                _ranges(axis + 1, end[axis], kind, end, variable, value, first, last, low, high)
                first[variable[axis]], last[variable[axis]] = low[axis + 1], high[axis + 1]
                axis = end[axis]
        _ranges(statement + 1, end[statement], kind, end, variable, value, first, last, low, high)
        for tensor in range(TENSORS if turn == 0 else 1):
            access = statement if tensor == 0 else reads[tensor - 1]
            if access >= 0:
                into = boxes[tensor if turn == 0 else TENSORS]
                _box(access, place, end, low, high, shape, shape_offset[buffer[access]], into)
    return runs, parallel, innermost, innermost_reduced, boxes


@compiled
def _levels(
    depth: int,
    reduces: Bool[np.ndarray, " loops"],
    loops: Int32[np.ndarray, " loops"],
    kind: Int16[np.ndarray, " nodes"],
    extent: Int64[np.ndarray, " nodes"],
) -> tuple[np.ndarray, int, int]:
    """Iterations by level, and where the loops inside the outer levels and inside all reduced ones begin."""
    runs = np.ones(5, dtype=np.float64)
    if not reduces.any():
        outer = max(depth - 1, 0)
        for level in range(depth):
            if kind[loops[level]] == _PARALLEL or kind[loops[level]] == _BINDING:
                outer = level + 1
        for level in range(depth):
            runs[4 if level < outer else 0] *= extent[loops[level]]
        return runs, outer, max(depth - 1, 0)
    inner = depth
    while not reduces[inner - 1]:
        inner -= 1
    innermost_run = inner - 1
    while innermost_run > 0 and reduces[innermost_run - 1]:
        innermost_run -= 1
    next_run = innermost_run
    while next_run > 0 and not reduces[next_run - 1]:
        next_run -= 1
    for level in range(depth):
        if level >= inner:
            run = 0
        elif level >= innermost_run:
            run = 1
        elif level >= next_run and next_run > 0:
            run = 2
        else:
            run = 3 if reduces[level] else 4
        runs[run] *= extent[loops[level]]
    outer = 0
    while not reduces[outer]:
        outer += 1
    while outer < depth and reduces[outer]:
        outer += 1
    return runs, outer, inner


@compiled
def _bytes(
    tensor: int,
    shape: Int64[np.ndarray, " dimensions"],
    shape_offset: Int32[np.ndarray, " buffers_plus_1"],
    dtype_bytes: Int32[np.ndarray, " buffers"],
) -> float:
    size = float(dtype_bytes[tensor])
    for dimension in range(shape_offset[tensor], shape_offset[tensor + 1]):
        size *= shape[dimension]
    return size


@compiled
def _box(
    access: int,
    place: Int8[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    low: Int64[np.ndarray, " nodes"],
    high: Int64[np.ndarray, " nodes"],
    shape: Int64[np.ndarray, " dimensions"],
    start: int,
    into: Float64[np.ndarray, " places"],
) -> None:
    """Extents of the box between the lowest and the highest place that an access reaches."""
    extents = np.ones(end[access] - access, dtype=np.int64)
    index, dimension = access + 1, 0
    while index < end[access] and place[index] == INDEX:
        extents[dimension] = min(high[index] - low[index] + 1, shape[start + dimension])
        dimension += 1
        index = end[index]
    compact_shape(extents, 0, dimension, into)


@compiled
def _ranges(
    start: int,
    stop: int,
    kind: Int16[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    variable: Int32[np.ndarray, " nodes"],
    value: Float64[np.ndarray, " nodes"],
    first: Int64[np.ndarray, " variables"],
    last: Int64[np.ndarray, " variables"],
    low: Int64[np.ndarray, " nodes"],
    high: Int64[np.ndarray, " nodes"],
) -> None:
    """Lowest and highest value of every expression in the rows, by interval arithmetic; operands stand below."""
    for row in range(stop - 1, start - 1, -1):
        what = kind[row]
        a = row + 1
        b = end[a] if a < end[row] else a
        if what == _CONSTANT:
            constant = min(max(value[row], -1.0 * _FAR), 1.0 * _FAR)
            low[row] = high[row] = np.int64(constant) if constant == constant else np.int64(0)
        elif what == _VARIABLE:
            low[row], high[row] = first[variable[row]], last[variable[row]]
        elif what == _LOAD or a >= end[row]:
            # a place that data decide
            low[row], high[row] = 0, _FAR
        elif what == _ADD:
            low[row], high[row] = low[a] + low[b], high[a] + high[b]
        elif what == _SUB:
            low[row], high[row] = low[a] - high[b], high[a] - low[b]
        elif what == _MUL:
            p, q, r, s = low[a] * low[b], low[a] * high[b], high[a] * low[b], high[a] * high[b]
            low[row], high[row] = min(min(p, q), min(r, s)), max(max(p, q), max(r, s))
        elif what in (_DIV, _FLOORDIV) and low[b] == high[b] and low[b] > 0:
            low[row], high[row] = low[a] // low[b], high[a] // low[b]
        elif what in (_MOD, _FLOORMOD) and low[b] == high[b] and low[b] > 0:
            if low[a] // low[b] == high[a] // low[b]:
                low[row], high[row] = low[a] % low[b], high[a] % low[b]
            else:
                low[row], high[row] = 0, low[b] - 1
        elif what == _MIN:
            low[row], high[row] = min(low[a], low[b]), min(high[a], high[b])
        elif what == _MAX:
            low[row], high[row] = max(low[a], low[b]), max(high[a], high[b])
        elif what == _CAST:
            low[row], high[row] = low[a], high[a]
        elif what in _TRUTHS:
            low[row], high[row] = 0, 1
        elif what == _SELECT:
            c = end[b]
            low[row], high[row] = min(low[b], low[c]), max(high[b], high[c])
        else:
            low[row], high[row] = 0, _FAR
        low[row], high[row] = max(low[row], -_FAR), min(high[row], _FAR)
