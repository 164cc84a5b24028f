"""Reads TVM's JSON of a scheduled module.

`tvm.ir.save_json` writes the whole typed node graph from C++; walking that text is several times faster than visiting
the module through the foreign function interface. In the JSON a node refers to others by number, and two references to
one object carry the same number: variables and buffers are told apart by it.

Serial loops that run once, block axes of length one and statements without effect are left out: no machine code comes
of them.
"""

from __future__ import annotations

import json
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.tensorir import (
    LOOP_KINDS,
    Axis,
    Block,
    Branch,
    Buffer,
    Evaluate,
    Expression,
    Loop,
    Program,
    Statement,
    Store,
    itemsize,
)

AXIS_KINDS = {0: "axis_spatial", 2: "axis_reduce"}
"""Node kinds by TVM's `IterVarType`; all others are `axis_other`."""

_BINARY_KINDS = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Mod": "mod",
    "FloorDiv": "floordiv",
    "FloorMod": "floormod",
    "Min": "min",
    "Max": "max",
    "EQ": "compare",
    "NE": "compare",
    "LT": "compare",
    "LE": "compare",
    "GT": "compare",
    "GE": "compare",
    "And": "logical",
    "Or": "logical",
}
_FUNCTION_KINDS = {
    "exp": "exp",
    "exp2": "exp",
    "exp10": "exp",
    "sqrt": "sqrt",
    "rsqrt": "sqrt",
    "tanh": "tanh",
    "sigmoid": "math",
    "erf": "math",
    "log": "math",
    "log2": "math",
    "log10": "math",
    "log1p": "math",
    "sin": "math",
    "cos": "math",
    "tan": "math",
    "pow": "math",
    "fabs": "math",
    "floor": "math",
    "ceil": "math",
    "round": "math",
    "trunc": "math",
    "if_then_else": "select",
}


def parse_program(module_json: str) -> Program:
    """Reads the function of a module that `tvm.ir.save_json` wrote.

    Raises:
        MalformedDataError: not such JSON, no TensorIR function in it, or a loop or buffer whose size is no constant.
    """
    try:
        document = json.loads(module_json)
        return _Reader(document["nodes"], document["root_index"]).program()
    except (json.JSONDecodeError, KeyError, IndexError, TypeError) as error:
        raise MalformedDataError(
            f"a scheduled module cannot be read as TVM's JSON ({type(error).__name__}: {error}); "
            "was it measured with another TVM? run `dvc repro measure` with this one"
        ) from error


class _Reader:
    """Walks the node table once."""

    def __init__(self, nodes: list[dict[str, Any]], root: int) -> None:
        self.nodes = nodes
        self.root = root
        self.expressions: dict[int, Expression] = {}
        self.buffers: dict[int, Buffer] = {}
        self.parameters: set[int] = set()

    def program(self) -> Program:
        functions = self.nodes[self.nodes[self.root]["data"]["functions"]]["data"]
        bodies = [self.nodes[number]["data"] for number in functions[1::2] if self._type(number) == "PrimFunc"]
        if not bodies:
            raise MalformedDataError(
                "a scheduled module holds no TensorIR function; make the workload of one and run `dvc repro measure`"
            )
        self.parameters = set(self._array(bodies[0]["params"]))
        return Program(self._statements(bodies[0]["body"]), tuple(self.buffers.values()))

    def _type(self, number: int) -> str:
        return str(self.nodes[number]["type"]).rsplit(".", 1)[-1]

    def _array(self, number: int) -> list[int]:
        return self.nodes[number].get("data") or []

    def _constant(self, number: int, what: str) -> int:
        node = self.nodes[number]
        if not node["type"].endswith("IntImm"):
            raise MalformedDataError(
                f"{what} is no constant; only workloads of fixed shape have graphs: give it a fixed shape"
            )
        return int(self.nodes[node["data"]["value"]]["data"])

    def _statements(self, number: int) -> tuple[Statement, ...]:
        node = self.nodes[number]
        kind = self._type(number)
        data: Any = node.get("data")
        if kind == "SeqStmt":
            return tuple(statement for part in self._array(data["seq"]) for statement in self._statements(part))
        if kind == "For":
            return self._loop(data)
        if kind == "SBlockRealize":
            return self._block(data)
        if kind == "BufferStore":
            indices = self._expressions(data["indices"])
            value = self.expression(data["value"])
            return (Store(self._buffer(data["buffer"]), indices, value),)
        if kind == "IfThenElse":
            otherwise = self._statements(data["else_case"]) if self._present(data["else_case"]) else ()
            return (Branch(self.expression(data["condition"]), self._statements(data["then_case"]), otherwise),)
        if kind == "Evaluate":
            value = self.expression(data["value"])
            return () if value.kind == "constant" else (Evaluate(value),)
        if isinstance(data, dict) and "body" in data:
            return self._statements(data["body"])
        return ()

    def _present(self, number: int) -> bool:
        return bool(self.nodes[number]["type"] != "None")

    def _loop(self, data: dict[str, Any]) -> tuple[Statement, ...]:
        extent = self._constant(data["extent"], "the extent of a loop")
        kind = LOOP_KINDS[data["kind"]]
        annotations = self._annotations(data["annotations"])
        limit = annotations.get("pragma_auto_unroll_max_step")
        if extent == 1 and kind == "loop_serial" and limit is None:
            self.expressions[data["loop_var"]] = Expression("constant", "int32", value=0)
            return self._statements(data["body"])
        body = self._statements(data["body"])
        return (Loop(data["loop_var"], extent, kind, limit, body),) if body else ()

    def _annotations(self, number: int) -> dict[str, int]:
        """The annotations with an integer value, by name."""
        flat = self._array(number)
        found: dict[str, int] = {}
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            name = self.nodes[key].get("data")
            node = self.nodes[value]
            if node["type"] in ("int", "bool"):
                found[str(name)] = int(node["data"])
            elif node["type"].endswith("IntImm"):
                found[str(name)] = self._constant(value, "an annotation")
        return found

    def _block(self, realize: dict[str, Any]) -> tuple[Statement, ...]:
        data = self.nodes[realize["block"]]["data"]
        variables = self._array(data["iter_vars"])
        bindings = self._array(realize["iter_values"])
        axes: list[Axis] = []
        unit_axes: list[Axis] = []
        for number, binding in zip(variables, bindings, strict=True):
            axis = self.nodes[number]["data"]
            extent = self._constant(self.nodes[axis["dom"]]["data"]["extent"], "the extent of a block axis")
            entry = Axis(axis["var"], AXIS_KINDS.get(axis["iter_type"], "axis_other"), extent, self.expression(binding))
            (axes if extent != 1 else unit_axes).append(entry)
        predicate = self.expression(realize["predicate"])
        init = self._statements(data["init"]) if self._present(data["init"]) else ()
        body = self._statements(data["body"])
        if not body:
            return ()
        if not variables and predicate.kind == "constant" and not init:
            # the root block only holds allocations
            return body
        name = str(self.nodes[data["name_hint"]].get("data", ""))
        shown = None if predicate.kind == "constant" else predicate
        return (Block(name, tuple(axes), tuple(unit_axes), shown, init, body),)

    def _expressions(self, number: int) -> tuple[Expression, ...]:
        return tuple(self.expression(part) for part in self._array(number))

    def expression(self, number: int) -> Expression:
        """The expression of one node, made once."""
        known = self.expressions.get(number)
        if known is None:
            known = self.expressions[number] = self._new_expression(number)
        return known

    def _new_expression(self, number: int) -> Expression:
        kind, data = self._type(number), self.nodes[number].get("data")
        if not isinstance(data, dict):
            return Expression("other", "handle")
        dtype = self._dtype(data.get("ty", 0))
        if kind == "Var":
            return Expression("variable", dtype, value=number)
        if kind == "IntImm":
            return Expression("constant", dtype, value=int(self.nodes[data["value"]]["data"]))
        if kind == "FloatImm":
            return Expression("constant", dtype, value=float(data["value"]))
        if kind in _BINARY_KINDS:
            operands = (self.expression(data["a"]), self.expression(data["b"]))
            return Expression(_BINARY_KINDS[kind], dtype, operands)
        if kind == "TensorLoad":
            return Expression("load", dtype, self._expressions(data["indices"]), buffer=self._buffer(data["source"]))
        if kind == "Call":
            name = str(self.nodes[data["op"]].get("data")).rsplit(".", 1)[-1]
            lazy = int(name == "if_then_else")
            return Expression(_FUNCTION_KINDS.get(name, "call"), dtype, self._expressions(data["args"]), value=lazy)
        if kind == "Cast":
            return Expression("cast", dtype, (self.expression(data["value"]),))
        if kind == "Not":
            return Expression("logical", dtype, (self.expression(data["a"]),))
        if kind == "Select":
            parts = (data["condition"], data["true_value"], data["false_value"])
            return Expression("select", dtype, tuple(self.expression(part) for part in parts))
        return Expression("other", dtype)

    def _dtype(self, number: int) -> str:
        node = self.nodes[number]
        return str(node["data"]["dtype"]) if node["type"].endswith("PrimType") else "handle"

    def _buffer(self, number: int) -> Buffer:
        known = self.buffers.get(number)
        if known is not None:
            return known
        data = self.nodes[number]["data"]
        layout = self.nodes[data["ty"]]["data"]
        name = str(self.nodes[data["name"]].get("data", ""))
        shape = tuple(self._constant(part, f"the shape of buffer {name}") for part in self._array(layout["shape"]))
        dtype = self._dtype(layout["dtype"])
        known = Buffer(len(self.buffers), name, shape, dtype, itemsize(dtype), number not in self.parameters)
        self.buffers[number] = known
        return known
