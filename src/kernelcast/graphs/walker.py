"""Reads a scheduled module into a `ProgramTable` by walking over TVM's objects.

A field of a TVM object costs 0.1 us through the foreign function interface, so every field is read once. Two references
to one variable, buffer or type are wrappers of their own around one address: they are told apart by it.

Serial loops that run once, block axes of length one and statements without effect are left out: no machine code comes
of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.kernels.expression_kinds import FORMS, FUNCTION_KINDS, dtype_entry
from kernelcast.graphs.table import BYTES_SHIFT, DTYPE_SHIFT, ROLE_SHIFT, ROLES, Buffers, ProgramTable
from kernelcast.graphs.vocabulary import DTYPES, NODE_KIND_INDEX

LOOP_KINDS = ("loop_serial", "loop_parallel", "loop_vectorized", "loop_unrolled", "loop_thread_binding")
"""Node kinds by TVM's `ForKind`."""

AXIS_KINDS = {0: "axis_spatial", 2: "axis_reduce"}
"""Node kinds by TVM's `IterVarType`; all others are `axis_other`."""

UNROLL_ANNOTATION = "pragma_auto_unroll_max_step"

_STATEMENT, _VALUE, _INDEX, _CONDITION, _BINDING, _AXIS = (place << ROLE_SHIFT for place in range(len(ROLES)))
_CONSTANT, _STORE, _SELECT = (NODE_KIND_INDEX[kind] for kind in ("constant", "store", "select"))
_HANDLE = (DTYPES.index("handle") << DTYPE_SHIFT) + (8 << BYTES_SHIFT)


def walk(module: Any) -> ProgramTable:
    """The table of the function of a scheduled module.

    Args:
        module: what is built and timed, see `tvm_compat.runnable_module`.

    Raises:
        MalformedDataError: no TensorIR function in it, or a loop or buffer whose size is no constant.
    """
    for function in dict(module.functions).values():
        if type(function).__name__ == "PrimFunc":
            return _Walker(function).table()
    raise MalformedDataError(
        "a scheduled module holds no TensorIR function; make the workload of one and run `dvc repro measure`"
    )


def _integers(values: list[int]) -> Int64[np.ndarray, " values"]:
    return np.array(values, dtype=np.int64)


class _Walker:
    """Goes through one function once and appends what it sees to lists, which become arrays at the end."""

    def __init__(self, function: Any) -> None:
        from tvm_ffi import get_global_func

        self.function = function
        # as `len(array)` and `array[place]` do, without what these check
        self.item, self.length = get_global_func("ffi.ArrayGetItem"), get_global_func("ffi.ArraySize")
        self.entries = get_global_func("ffi.MapSize")
        self.codes: list[int] = []
        self.parents: list[int] = []
        # what only some rows have, by turns with the row; a definition has an extent and a variable
        self.definitions: list[int] = []
        self.uses: list[int] = []
        self.accesses: list[int] = []
        self.limits: list[int] = []
        self.values: list[Any] = []
        self.block_names: dict[int, str] = {}
        self.variables: dict[int, int] = {}
        self.variable_codes: dict[int, int] = {}
        self.units: set[int] = set()
        # a name for a value: stands for it wherever it is used
        self.bound: dict[int, Any] = {}
        self.types: dict[int, int] = {}
        self.operators: dict[int, tuple[int, bool]] = {}
        self.buffer_numbers: dict[int, int] = {}
        self.buffer_codes: list[int] = []
        self.buffer_names: list[str] = []
        self.shapes: list[list[int]] = []

    def table(self) -> ProgramTable:
        from kernelcast.graphs.kernels.table_columns import depths_and_ends, scattered, unpacked

        self._row(NODE_KIND_INDEX["function"], -1)
        self._statements(self.function.body, 0)
        kind, role, dtype, dtype_bytes = unpacked(_integers(self.codes))
        parent, depth, end = depths_and_ends(_integers(self.parents))
        extent, variable, buffer, limit = scattered(
            len(kind),
            _integers(self.definitions),
            _integers(self.uses),
            _integers(self.accesses),
            _integers(self.limits),
        )
        value = np.zeros(len(kind), dtype=np.float64)
        value[self.values[::2]] = self.values[1::2]
        return ProgramTable(
            kind=kind,
            parent=parent,
            depth=depth,
            end=end,
            role=role,
            extent=extent,
            variable=variable,
            unroll_limit=limit,
            buffer=buffer,
            dtype=dtype,
            dtype_bytes=dtype_bytes,
            value=value,
            buffers=self._buffers(),
            block_names=self.block_names,
        )

    def _buffers(self) -> Buffers:
        from kernelcast.graphs.kernels.table_columns import unpacked

        _, _, dtype, dtype_bytes = unpacked(_integers(self.buffer_codes))
        parameters = {parameter.__chandle__() for parameter in self.function.params}
        return Buffers(
            names=tuple(self.buffer_names),
            shape=_integers([extent for shape in self.shapes for extent in shape]),
            shape_offset=np.cumsum([0, *map(len, self.shapes)], dtype=np.int32),
            dtype=dtype,
            dtype_bytes=dtype_bytes,
            temporary=np.array([address not in parameters for address in self.buffer_numbers], dtype=bool),
        )

    def _row(self, code: int, parent: int) -> int:
        self.codes.append(code)
        self.parents.append(parent)
        return len(self.codes) - 1

    def _array(self, array: Any) -> list[Any]:
        item = self.item
        return [item(array, place) for place in range(self.length(array))]

    def _forget(self, row: int) -> None:
        """Takes back all rows from `row` on."""
        del self.codes[row:], self.parents[row:]
        for rows, width in (
            (self.definitions, 3),
            (self.uses, 2),
            (self.accesses, 2),
            (self.limits, 2),
            (self.values, 2),
        ):
            while rows and rows[-width] >= row:
                del rows[-width:]
        self.block_names = {at: name for at, name in self.block_names.items() if at < row}

    def _constant(self, node: Any, what: str) -> int:
        if type(node).__name__ != "IntImm":
            raise MalformedDataError(
                f"{what} is no constant; only workloads of fixed shape have graphs: give it a fixed shape"
            )
        return int(node.value)

    def _statements(self, node: Any, parent: int) -> None:
        name = type(node).__name__
        if name == "For":
            self._loop(node, parent)
        elif name == "SBlockRealize":
            self._block(node, parent)
        elif name == "BufferStore":
            buffer = self._buffer(node.buffer)
            row = self._row(_STORE + _STATEMENT + self.buffer_codes[buffer], parent)
            self.accesses += (row, buffer)
            for index in self._array(node.indices):
                self._expression(index, row, _INDEX)
            self._expression(node.value, row, _VALUE)
        elif name == "Bind":
            self.bound[self._variable(node.var)] = node.value
        elif name == "SeqStmt":
            for part in self._array(node.seq):
                self._statements(part, parent)
        elif name == "IfThenElse":
            row = self._row(NODE_KIND_INDEX["branch"] + _STATEMENT, parent)
            self._expression(node.condition, row, _CONDITION)
            self._statements(node.then_case, row)
            if node.else_case is not None:
                self._statements(node.else_case, row)
        elif name == "Evaluate":
            row = self._row(NODE_KIND_INDEX["evaluate"] + _STATEMENT, parent)
            self._expression(node.value, row, _VALUE)
            if self.codes[row + 1] & 0xFF == _CONSTANT:
                self._forget(row)
        else:
            body = getattr(node, "body", None)
            if body is not None:
                self._statements(body, parent)

    def _loop(self, node: Any, parent: int) -> None:
        extent = self._constant(node.extent, "the extent of a loop")
        kind, limit = node.kind, -1
        annotations = node.annotations
        if self.entries(annotations):
            limit = int(annotations.get(UNROLL_ANNOTATION, -1))
        variable = self._variable(node.loop_var)
        if extent == 1 and kind == 0 and limit < 0:
            self.units.add(variable)
            self._statements(node.body, parent)
            return
        row = self._row(NODE_KIND_INDEX[LOOP_KINDS[kind]] + _STATEMENT, parent)
        self.definitions += (row, extent, variable)
        if limit >= 0:
            self.limits += (row, limit)
        self._statements(node.body, row)
        if len(self.codes) == row + 1:
            self._forget(row)

    def _block(self, realize: Any, parent: int) -> None:
        node = realize.block
        axes = self._array(node.iter_vars)
        init = node.init
        predicate = realize.predicate
        always = type(predicate).__name__ == "IntImm"
        if not axes and always and init is None:
            # the root block only holds allocations
            self._statements(node.body, parent)
            return
        row = self._row(NODE_KIND_INDEX["block"] + _STATEMENT, parent)
        self.block_names[row] = str(node.name_hint)
        for axis, binding in zip(axes, self._array(realize.iter_values), strict=True):
            self._axis(axis, binding, row)
        if not always:
            self._expression(predicate, row, _CONDITION)
        if init is not None:
            self._statements(init, self._row(NODE_KIND_INDEX["init"] + _STATEMENT, row))
        before = len(self.codes)
        self._statements(node.body, row)
        if len(self.codes) == before:
            self._forget(row)

    def _axis(self, axis: Any, binding: Any, parent: int) -> None:
        extent = self._constant(axis.dom.extent, "the extent of a block axis")
        variable = self._variable(axis.var)
        if extent == 1:
            self.units.add(variable)
            return
        row = self._row(NODE_KIND_INDEX[AXIS_KINDS.get(axis.iter_type, "axis_other")] + _AXIS, parent)
        self.definitions += (row, extent, variable)
        self._expression(binding, row, _BINDING)

    def _variable(self, node: Any) -> int:
        return self.variables.setdefault(node.__chandle__(), len(self.variables))

    def _expression(self, node: Any, parent: int, role: int) -> None:
        form, kind = FORMS[type(node)]
        codes = self.codes
        row = len(codes)
        if form == "variable":
            variable = self._variable(node)
            if variable in self.bound:
                self._expression(self.bound[variable], parent, role)
                return
            code = self.variable_codes.get(variable)
            if code is None:
                # most uses are of few variables: their type is looked up once
                code = self.variable_codes[variable] = self._type_code(node.ty)
            if variable in self.units:
                kind = _CONSTANT
            else:
                self.uses += (row, variable)
            codes.append(code + role + kind)
            self.parents.append(parent)
            return
        ty = node.ty
        address = ty.__chandle__()
        code = self.types.get(address)
        if code is None:
            code = self.types[address] = self._type_code(ty)
        code += role
        if form == "binary":
            codes.append(code + kind)
            self.parents.append(parent)
            self._expression(node.a, row, _VALUE)
            self._expression(node.b, row, _VALUE)
            return
        if form == "constant":
            self.values += (row, node.value)
        elif form == "load":
            buffer = self._buffer(node.source)
            self.accesses += (row, buffer)
            code = self.buffer_codes[buffer] + role
        elif form == "call":
            kind, lazy = self._operator(node.op)
            if lazy:
                self.values += (row, 1)
        codes.append(code + kind)
        self.parents.append(parent)
        if form == "load":
            for index in self._array(node.indices):
                self._expression(index, row, _INDEX)
        elif form == "call":
            parts = self._array(node.args)
            self._operands(parts, row, kind == _SELECT)
        elif form == "select":
            self._operands([node.condition, node.true_value, node.false_value], row, True)
        elif form == "cast":
            self._expression(node.value, row, _VALUE)
        elif form == "not":
            self._expression(node.a, row, _VALUE)

    def _operands(self, parts: list[Any], row: int, chooses: bool) -> None:
        for place, part in enumerate(parts):
            self._expression(part, row, _CONDITION if chooses and place == 0 else _VALUE)

    def _operator(self, op: Any) -> tuple[int, bool]:
        """Kind of a call, and whether it is a choice that evaluates one side only."""
        address = op.__chandle__()
        known = self.operators.get(address)
        if known is None:
            name = str(getattr(op, "name", "")).rsplit(".", 1)[-1]
            known = NODE_KIND_INDEX[FUNCTION_KINDS.get(name, "call")], name == "if_then_else"
            self.operators[address] = known
        return known

    def _type_code(self, ty: Any) -> int:
        if type(ty).__name__ != "PrimType":
            return _HANDLE
        index, size = dtype_entry(str(ty.dtype))
        return (index << DTYPE_SHIFT) + (size << BYTES_SHIFT)

    def _buffer(self, node: Any) -> int:
        address = node.__chandle__()
        number = self.buffer_numbers.get(address)
        if number is None:
            number = self.buffer_numbers[address] = len(self.buffer_numbers)
            name, ty = str(node.name), node.ty
            self.buffer_names.append(name)
            self.shapes.append([self._constant(part, f"the shape of buffer {name}") for part in self._array(ty.shape)])
            self.buffer_codes.append(self._type_code(ty.dtype))
        return number
