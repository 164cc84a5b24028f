"""Features of the nodes of a dataflow graph, see `dataflow.NODE_FEATURES`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int16, Int32, Int64

from kernelcast.graphs.dataflow import NODE_FEATURES
from kernelcast.graphs.facts import Facts
from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.computations import INDEX, LOOPS, Computations, Rows
from kernelcast.graphs.kernels.tiles import compact_shape
from kernelcast.graphs.slots import SLOTS
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.vocabulary import DTYPES, NODE_KIND_INDEX

_COLUMN = {feature.name: column for column, feature in enumerate(NODE_FEATURES)}
_WIDTH = len(NODE_FEATURES)
_SHAPE, _ORDER, _IS_FLOAT, _IS_INTEGER = (_COLUMN[name] for name in ("shape_1", "order_1", "is_float", "is_integer"))
_DTYPE_BYTES, _TENSOR_BYTES, _PRODUCT = (_COLUMN[name] for name in ("dtype_bytes", "tensor_bytes", "shape_product"))
_IS_OUTPUT, _IS_TEMPORARY = _COLUMN["is_output"], _COLUMN["is_temporary"]
_INPUTS, _READERS = _COLUMN["inputs"], _COLUMN["readers"]
_EXECUTIONS, _LOOPS, _INNER = _COLUMN["executions"], _COLUMN["loops"], _COLUMN["inner_extent"]
_PARALLEL_EXTENT, _REDUCED_EXTENT = _COLUMN["parallel_extent"], _COLUMN["reduced_extent"]
_UNROLL_LIMIT, _PIECES, _FLOPS = _COLUMN["unroll_limit"], _COLUMN["pieces"], _COLUMN["flops"]
_TRANSCENDENTAL, _LANES = _COLUMN["transcendental_flops"], _COLUMN["lanes"]
_READ_BYTES, _WRITTEN_BYTES, _INTEGER = (
    _COLUMN[name] for name in ("read_bytes", "written_bytes", "integer_operations")
)
_AXES = tuple(NODE_KIND_INDEX[kind] for kind in ("axis_spatial", "axis_reduce", "axis_other"))

_FLOAT_TYPES = np.array([name.startswith(("float", "bfloat")) for name in DTYPES])
_INTEGER_TYPES = np.array([name.startswith(("int", "uint")) for name in DTYPES])

_BLOCK, _STORE, _LOAD = (NODE_KIND_INDEX[kind] for kind in ("block", "store", "load"))
_PARALLEL, _BINDING, _REDUCED = (
    NODE_KIND_INDEX[kind] for kind in ("loop_parallel", "loop_thread_binding", "axis_reduce")
)


def node_values(
    table: ProgramTable, facts: Facts, rows: Rows, found: Computations
) -> Float64[np.ndarray, "nodes features"]:
    """The natural values of `NODE_FEATURES`: of all parameters, then of the computations."""
    buffers = table.buffers
    values = np.zeros((len(found.parameters) + len(found.main), _WIDTH), dtype=np.float64)
    _tensors(
        table.kind,
        rows.place,
        table.end,
        table.buffer,
        rows.levels,
        facts.executions,
        buffers.shape,
        buffers.shape_offset,
        buffers.dtype_bytes,
        buffers.temporary,
        _FLOAT_TYPES[buffers.dtype],
        _INTEGER_TYPES[buffers.dtype],
        found.parameters,
        found.main,
        values,
    )
    _runs(
        table.kind,
        table.parent,
        table.end,
        table.extent,
        facts.executions,
        rows.loops,
        facts.lanes,
        facts.unroll_limit,
        found.main,
        found.edges,
        values,
    )
    _work(
        table.end,
        table.kind,
        table.buffer,
        found.owner,
        facts.statement,
        facts.executions,
        facts.flops,
        facts.transcendental,
        rows.integer_operations,
        facts.access,
        facts.access_bytes,
        len(buffers.names),
        found.main,
        found.start_owner,
        values,
    )
    return values


@compiled
def _tensors(
    kind: Int16[np.ndarray, " nodes"],
    place: Int8[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    buffer: Int32[np.ndarray, " nodes"],
    levels: Int64[np.ndarray, " nodes"],
    executions: Int64[np.ndarray, " nodes"],
    shape: Int64[np.ndarray, " dimensions"],
    shape_offset: Int32[np.ndarray, " buffers_plus_1"],
    dtype_bytes: Int32[np.ndarray, " buffers"],
    temporary: Bool[np.ndarray, " buffers"],
    is_float: Bool[np.ndarray, " buffers"],
    is_integer: Bool[np.ndarray, " buffers"],
    parameters: Int32[np.ndarray, " parameters"],
    main: Int32[np.ndarray, " computations"],
    values: Float64[np.ndarray, "nodes features"],
) -> None:
    """Writes what describes the tensor of each node."""
    for node in range(len(values)):
        access = -1
        if node < len(parameters):
            # the read that happens most often
            for row in range(len(kind)):
                reads = kind[row] == _LOAD and buffer[row] == parameters[node]
                if reads and (access < 0 or executions[row] > executions[access]):
                    access = row
        elif kind[main[node - len(parameters)]] == _STORE:
            access = main[node - len(parameters)]
        if access < 0:
            continue
        into, tensor = values[node], buffer[access]
        start, stop = shape_offset[tensor], shape_offset[tensor + 1]
        compact_shape(shape, start, stop, into[_SHAPE : _PRODUCT + 1])
        into[_IS_FLOAT], into[_IS_INTEGER] = is_float[tensor], is_integer[tensor]
        into[_DTYPE_BYTES] = dtype_bytes[tensor]
        into[_TENSOR_BYTES] = dtype_bytes[tensor] * into[_PRODUCT]
        into[_IS_TEMPORARY] = temporary[tensor]
        into[_IS_OUTPUT] = node >= len(parameters) and not temporary[tensor]
        _order(access, place, end, levels, shape, start, stop, into)


@compiled
def _order(
    access: int,
    place: Int8[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    levels: Int64[np.ndarray, " nodes"],
    shape: Int64[np.ndarray, " dimensions"],
    start: int,
    stop: int,
    into: Float64[np.ndarray, " features"],
) -> None:
    """Writes the rank of each dimension by the innermost loop that moves it; of equals the inner dimension first."""
    moved_by = np.zeros(stop - start, dtype=np.int64)
    index = access + 1
    for dimension in range(stop - start):
        if index >= end[access] or place[index] != INDEX:
            return
        # as many bits as the highest one that is set
        moving = levels[index] if shape[start + dimension] > 1 else 0
        while moving > 0:
            moved_by[dimension] += 1
            moving >>= 1
        index = end[index]
    slot = 0
    for dimension in range(stop - start - 1, -1, -1):
        if shape[start + dimension] == 1 or slot == SLOTS:
            continue
        if moved_by[dimension] > 0:
            rank = 1
            for other in range(stop - start):
                more = moved_by[other] > moved_by[dimension]
                rank += more or (moved_by[other] == moved_by[dimension] and other > dimension)
            into[_ORDER + slot] = rank
        slot += 1


@compiled
def _runs(
    kind: Int16[np.ndarray, " nodes"],
    parent: Int32[np.ndarray, " nodes"],
    end: Int32[np.ndarray, " nodes"],
    extent: Int64[np.ndarray, " nodes"],
    executions: Int64[np.ndarray, " nodes"],
    loops: Int32[np.ndarray, " nodes"],
    lanes: Int64[np.ndarray, " nodes"],
    unroll_limit: Int64[np.ndarray, " nodes"],
    main: Int32[np.ndarray, " computations"],
    edges: Int32[np.ndarray, "edges 3"],
    values: Float64[np.ndarray, "nodes features"],
) -> None:
    """Writes how the schedule runs each computation, and its edges."""
    parameters = len(values) - len(main)
    for number in range(len(main)):
        statement, into = main[number], values[parameters + number]
        into[_EXECUTIONS], into[_LOOPS] = executions[statement], loops[statement]
        into[_LANES], into[_UNROLL_LIMIT] = lanes[statement], unroll_limit[statement]
        into[_INNER], into[_PARALLEL_EXTENT], into[_REDUCED_EXTENT], into[_PIECES] = 1, 1, 1, 1
        innermost = True
        row = parent[statement]
        while row > 0:
            if kind[row] in LOOPS:
                if innermost:
                    into[_INNER] = extent[row]
                innermost = False
                if kind[row] == _PARALLEL or kind[row] == _BINDING:
                    into[_PARALLEL_EXTENT] *= extent[row]
            elif kind[row] == _BLOCK:
                axis = row + 1
                while axis < end[row] and kind[axis] in _AXES:
                    if kind[axis] == _REDUCED:
                        into[_REDUCED_EXTENT] *= extent[axis]
                    axis = end[axis]
            row = parent[row]
    for edge in range(len(edges)):
        source, target = edges[edge, 0], edges[edge, 1]
        values[source, _READERS] += 1
        values[target, _INPUTS] += 1
        if source >= parameters:
            producer, reader = main[source - parameters], main[target - parameters]
            shared = parent[producer]
            while shared > 0 and not shared < reader < end[shared]:
                shared = parent[shared]
            pieces = executions[shared]
            if kind[shared] in LOOPS:
                pieces *= extent[shared]
            values[source, _PIECES] = max(values[source, _PIECES], pieces)


@compiled
def _work(
    end: Int32[np.ndarray, " nodes"],
    kind: Int16[np.ndarray, " nodes"],
    buffer: Int32[np.ndarray, " nodes"],
    owner: Int32[np.ndarray, " nodes"],
    statement: Int32[np.ndarray, " nodes"],
    executions: Int64[np.ndarray, " nodes"],
    flops: Int64[np.ndarray, " nodes"],
    transcendental: Int64[np.ndarray, " nodes"],
    integer_operations: Int64[np.ndarray, " nodes"],
    access: Int32[np.ndarray, " nodes"],
    access_bytes: Int64[np.ndarray, "accesses 2"],
    buffers: int,
    main: Int32[np.ndarray, " computations"],
    start_owner: Int32[np.ndarray, " computations"],
    values: Float64[np.ndarray, "nodes features"],
) -> None:
    """Adds up operations and bytes over all statements of each computation."""
    for number in range(len(main)):
        into = values[len(values) - len(main) + number]
        read = np.zeros(buffers, dtype=np.int64)
        written = np.zeros(buffers, dtype=np.int64)
        for part in range(2):
            own = owner[main[number]] if part == 0 else start_owner[number]
            if own < 0:
                continue
            for row in range(own, end[own]):
                if owner[row] != own:
                    continue
                if statement[row] == row:
                    into[_FLOPS] += flops[row] * executions[row]
                    into[_TRANSCENDENTAL] += transcendental[row] * executions[row]
                    into[_INTEGER] += integer_operations[row] * executions[row]
                if access[row] >= 0:
                    touched = access_bytes[access[row], 1]
                    if kind[row] == _STORE:
                        written[buffer[row]] = max(written[buffer[row]], touched)
                    else:
                        read[buffer[row]] = max(read[buffer[row]], touched)
        for tensor in range(buffers):
            into[_WRITTEN_BYTES] += written[tensor]
            if written[tensor] == 0:
                into[_READ_BYTES] += read[tensor]
