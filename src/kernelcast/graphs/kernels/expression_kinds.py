"""What TVM's expressions and types are in the terms of `vocabulary`."""

from __future__ import annotations

import re
from functools import cache

from kernelcast.graphs.vocabulary import DTYPES, NODE_KIND_INDEX

BINARY_KINDS = {
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
"""Kinds of operations on two values by the name of their class."""

FUNCTION_KINDS = {
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
"""Kinds of calls by the name of the function; all others are `call`."""

_BITS = re.compile(r"^(bool|float|bfloat|int|uint)(\d*)")


@cache
def dtype_entry(dtype: str) -> tuple[int, int]:
    """The index into `DTYPES` and the bytes of a value of `dtype`, as `float32` or `int8x4`; a pointer counts as 8."""
    match = _BITS.match(dtype)
    if match is None:
        return DTYPES.index("handle" if dtype == "handle" else "other"), 8
    lanes = int(dtype.rsplit("x", 1)[1]) if re.search(r"\dx\d+$", dtype) else 1
    name = "bool" if match.group(1) == "bool" else match.group()
    bits = 8 if name == "bool" else int(match.group(2) or 8)
    return DTYPES.index(name if name in DTYPES else "other"), max(1, bits // 8) * lanes


class ExpressionForms(dict[type, tuple[str, int]]):
    """How an expression of a class is read and the kind of its node, found by the name of the class once."""

    def __missing__(self, cls: type) -> tuple[str, int]:
        name = cls.__name__
        if name in BINARY_KINDS:
            form = ("binary", NODE_KIND_INDEX[BINARY_KINDS[name]])
        else:
            form = {
                "Var": ("variable", NODE_KIND_INDEX["variable"]),
                "IntImm": ("constant", NODE_KIND_INDEX["constant"]),
                "FloatImm": ("constant", NODE_KIND_INDEX["constant"]),
                "TensorLoad": ("load", NODE_KIND_INDEX["load"]),
                "Call": ("call", NODE_KIND_INDEX["call"]),
                "Cast": ("cast", NODE_KIND_INDEX["cast"]),
                "Not": ("not", NODE_KIND_INDEX["logical"]),
                "Select": ("select", NODE_KIND_INDEX["select"]),
            }.get(name, ("other", NODE_KIND_INDEX["other"]))
        self[cls] = form
        return form


FORMS = ExpressionForms()
"""Of the classes seen so far; it grows by itself."""
