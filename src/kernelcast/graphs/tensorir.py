"""A scheduled TensorIR program as small Python objects: what `reader` makes and the analysis walks over."""

from __future__ import annotations

import re
from dataclasses import dataclass

LOOP_KINDS = ("loop_serial", "loop_parallel", "loop_vectorized", "loop_unrolled", "loop_thread_binding")
"""Node kinds by TVM's `ForKind`."""

_BITS = re.compile(r"^(bool|float|bfloat|int|uint)(\d*)")


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A tensor in memory.

    Attributes:
        number: order of first use in the program, from 0.
        name: for messages.
        shape: extents, outermost first.
        dtype: type of one element.
        itemsize: bytes of one element.
        temporary: not a parameter of the function.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    temporary: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A value: an operation with its operands, or a leaf.

    Attributes:
        kind: one of `vocabulary.NODE_KINDS`.
        dtype: type of the value.
        operands: the operands; the indices of a load.
        value: a constant's value; the number of a variable; 1 for a choice that must not evaluate the other side.
        buffer: what a load reads.
    """

    kind: str
    dtype: str
    operands: tuple[Expression, ...] = ()
    value: float = 0
    buffer: Buffer | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop with a constant extent.

    Attributes:
        variable: number of the loop variable.
        extent: iterations.
        kind: one of `LOOP_KINDS`.
        unroll_limit: `pragma_auto_unroll_max_step` set here, None where it is not.
        body: what it repeats.
    """

    variable: int
    extent: int
    kind: str
    unroll_limit: int | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A block's own iteration variable and the expression over loop variables that it is bound to."""

    variable: int
    kind: str
    extent: int
    binding: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A unit of computation: axes of extent 1 are bound but not listed in `axes`."""

    name: str
    axes: tuple[Axis, ...]
    unit_axes: tuple[Axis, ...]
    predicate: Expression | None
    init: tuple[Statement, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Statements under a condition."""

    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """`buffer[indices] = value`."""

    buffer: Buffer
    indices: tuple[Expression, ...]
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate:
    """An expression for its side effect: an intrinsic call."""

    value: Expression


Statement = Loop | Block | Branch | Store | Evaluate


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One scheduled function.

    Attributes:
        body: its statements.
        buffers: all buffers that it touches, in order of first use.
    """

    body: tuple[Statement, ...]
    buffers: tuple[Buffer, ...]


def itemsize(dtype: str) -> int:
    """Bytes of one value of `dtype` (`float32`, `int8x4`, `bool`, ...), at least 1; a pointer counts as 8."""
    match = _BITS.match(dtype)
    if match is None:
        return 8
    lanes = int(dtype.rsplit("x", 1)[1]) if re.search(r"\dx\d+$", dtype) else 1
    bits = int(match.group(2) or 8) if match.group(1) != "bool" else 8
    return max(1, bits // 8) * lanes


def is_float(dtype: str) -> bool:
    """Whether values of `dtype` are floating-point numbers."""
    return dtype.startswith(("float", "bfloat"))
