"""What a computation does, in one word: the opcode of a node of the dataflow graph.

After the opcodes of XLA's operations (Kaufman et al. 2021, arXiv 2008.01040, section 3.1); TensorIR has none, so they
are read off the statement.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int8, Int16, Int32, Int64

from kernelcast.graphs.dataflow import OPCODES
from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.computations import INDEX, VALUE, Computations, Rows
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX, NODE_KINDS

_CODE = {name: code for code, name in enumerate(OPCODES)}
_PARAMETER, _FILL, _IOTA, _COPY = _CODE["parameter"], _CODE["fill"], _CODE["iota"], _CODE["copy"]
_TRANSPOSE, _BROADCAST, _CAST, _PAD = _CODE["transpose"], _CODE["broadcast"], _CODE["cast"], _CODE["pad"]
_CHOOSE, _GATHER, _INTRINSIC, _OTHER = _CODE["choose"], _CODE["gather"], _CODE["intrinsic"], _CODE["other"]
_SUM, _PRODUCT, _MAXIMUM = _CODE["reduce_sum"], _CODE["reduce_product"], _CODE["reduce_maximum"]
_MINIMUM, _REDUCTION, _CONTRACTION = _CODE["reduce_minimum"], _CODE["reduce_other"], _CODE["contraction"]
_CONVOLUTION, _DEPTHWISE = _CODE["convolution"], _CODE["depthwise_convolution"]

_ELEMENTWISE_KINDS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "min": "minimum",
    "max": "maximum",
    "compare": "compare",
    "logical": "compare",
    "floordiv": "integer",
    "floormod": "integer",
    "mod": "integer",
    "exp": "exp",
    "sqrt": "sqrt",
    "tanh": "tanh",
    "math": "function",
}
_ELEMENTWISE = np.array([_CODE.get(_ELEMENTWISE_KINDS.get(kind, ""), -1) for kind in NODE_KINDS], dtype=np.int16)

_STORE, _LOAD, _VARIABLE, _EVALUATE = (NODE_KIND_INDEX[kind] for kind in ("store", "load", "variable", "evaluate"))
_SELECT, _CASTING, _ADD, _MUL = (NODE_KIND_INDEX[kind] for kind in ("select", "cast", "add", "mul"))
_MIN, _MAX = NODE_KIND_INDEX["min"], NODE_KIND_INDEX["max"]
_FUNCTIONS = tuple(NODE_KIND_INDEX[kind] for kind in ("exp", "sqrt", "tanh", "math"))


def opcodes(table: ProgramTable, rows: Rows, found: Computations) -> Int16[np.ndarray, " nodes"]:
    """The opcode of each node: of all parameters, then of the computations."""
    codes = np.empty(len(found.parameters) + len(found.main), dtype=np.int16)
    codes[: len(found.parameters)] = _PARAMETER
    codes[len(found.parameters) :] = _opcodes(
        table.kind,
        rows.place,
        table.end,
        table.buffer,
        rows.spatial,
        rows.reduced,
        found.main,
        found.accumulates,
        _ELEMENTWISE,
    )
    return codes


@compiled
def _opcodes(
    kind: Int16[np.ndarray, " nodes"],
    place: Int8[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    buffer: Int32[np.ndarray, " nodes"],
    spatial: Int64[np.ndarray, " nodes"],
    reduced: Int64[np.ndarray, " nodes"],
    main: Int32[np.ndarray, " computations"],
    accumulates: Bool[np.ndarray, " computations"],
    elementwise: Int16[np.ndarray, " kinds"],
) -> Int16[np.ndarray, " computations"]:
    codes = np.empty(len(main), dtype=np.int16)
    for number in range(len(main)):
        store = main[number]
        root = store + 1
        while root < end[store] and place[root] == INDEX:
            root = end[root]
        if kind[store] == _EVALUATE or root >= end[store]:
            codes[number] = _INTRINSIC
            continue
        while kind[root] == _CASTING and kind[root + 1] != _LOAD:
            root += 1
        if accumulates[number]:
            codes[number] = _reduction(root, store, kind, place, end, buffer, spatial, reduced)
            continue

        # what stands in the value, outermost first
        loads, moves = 0, False
        function, operation, choice, load = -1, -1, -1, -1
        for row in range(root, end[store]):
            if place[row] != VALUE:
                continue
            what = kind[row]
            if what == _LOAD:
                loads += 1
                load = row if load < 0 else load
            elif what == _VARIABLE:
                moves = True
            elif what == _SELECT:
                choice = row if choice < 0 else choice
            elif what in _FUNCTIONS:
                function = what if function < 0 else function
            elif elementwise[what] >= 0:
                operation = what if operation < 0 else operation
        if loads == 0:
            codes[number] = _IOTA if moves else _FILL
        elif function >= 0:
            codes[number] = elementwise[function]
        elif operation >= 0:
            codes[number] = elementwise[operation]
        elif choice >= 0:
            codes[number] = _CHOOSE if _sides_that_load(choice, kind, place, end) > 1 else _PAD
        elif kind[root] == _CASTING:
            codes[number] = _CAST
        elif kind[root] == _LOAD:
            codes[number] = _move(load, store, kind, end, spatial, reduced)
        else:
            codes[number] = _OTHER
    return codes


@compiled
def _reduction(
    root: int,
    store: int,
    kind: Int16[np.ndarray, " nodes"],
    place: Int8[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    buffer: Int32[np.ndarray, " nodes"],
    spatial: Int64[np.ndarray, " nodes"],
    reduced: Int64[np.ndarray, " nodes"],
) -> int:
    if kind[root] == _MAX:
        return _MAXIMUM
    if kind[root] == _MIN:
        return _MINIMUM
    if kind[root] == _MUL:
        return _PRODUCT
    if kind[root] != _ADD:
        return _REDUCTION
    for row in range(root + 1, end[root]):
        if kind[row] != _MUL or place[row] != VALUE:
            continue
        # the first tensor on either side
        left, right = -1, -1
        for below in range(row + 1, end[row]):
            if kind[below] == _LOAD and place[below] == VALUE and buffer[below] != buffer[store]:
                if below < end[row + 1]:
                    left = below if left < 0 else left
                else:
                    right = below if right < 0 else right
        if left < 0 or right < 0:
            continue
        if buffer[left] == buffer[right] and spatial[left] == spatial[right] and reduced[left] == reduced[right]:
            # a square: the sum is over one tensor
            continue
        window = _window_axes(left, right, end, spatial, reduced) | _window_axes(right, left, end, spatial, reduced)
        if window == 0:
            return _CONTRACTION
        others = (reduced[left] | reduced[right]) & ~window
        return _DEPTHWISE if others == 0 and spatial[left] & spatial[right] != 0 else _CONVOLUTION
    return _SUM


@compiled
def _window_axes(
    moving: int,
    still: int,
    end: Int32[np.ndarray, " nodes"],
    spatial: Int64[np.ndarray, " nodes"],
    reduced: Int64[np.ndarray, " nodes"],
) -> np.int64:
    """Reduced axes of two loads that stand in one index of the first with an axis that the second has not."""
    axes = np.int64(0)
    index = moving + 1
    while index < end[moving]:
        if spatial[index] & ~spatial[still] != 0:
            axes |= reduced[index] & reduced[still]
        index = end[index]
    return axes


@compiled
def _sides_that_load(
    choice: int,
    kind: Int16[np.ndarray, " nodes"],
    place: Int8[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
) -> int:
    """Sides of a choice with a tensor in them; its condition comes first."""
    sides, side = 0, end[choice + 1]
    while side < end[choice]:
        for row in range(side, end[side]):
            if kind[row] == _LOAD and place[row] == VALUE:
                sides += 1
                break
        side = end[side]
    return sides


@compiled
def _move(
    load: int,
    store: int,
    kind: Int16[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    spatial: Int64[np.ndarray, " nodes"],
    reduced: Int64[np.ndarray, " nodes"],
) -> int:
    """How values that are not changed move."""
    for row in range(load + 1, end[load]):
        if kind[row] == _LOAD:
            return _GATHER
    axes = np.zeros((2, end[store] - store), dtype=np.int64)
    counts = np.zeros(2, dtype=np.int64)
    for side in range(2):
        # axes by dimension; one that is split over dimensions counts once
        index, stop = (store + 1, load) if side == 0 else (load + 1, end[load])
        while index < stop:
            moves = spatial[index] | reduced[index]
            if moves != 0 and (counts[side] == 0 or moves != axes[side, counts[side] - 1]):
                axes[side, counts[side]] = moves
                counts[side] += 1
            index = end[index]
    read, written = np.int64(0), np.int64(0)
    for position in range(counts[0]):
        written |= axes[0, position]
    for position in range(counts[1]):
        read |= axes[1, position]
    if written & ~read != 0:
        return _BROADCAST
    if counts[0] != counts[1]:
        return _TRANSPOSE
    for position in range(counts[0]):
        if axes[0, position] != axes[1, position]:
            return _TRANSPOSE
    return _COPY
