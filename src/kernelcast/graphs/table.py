"""A scheduled program as a table of its syntax tree: what `walker` reads and everything else computes with.

Rows stand in depth-first order, so the rows below a node are the ones up to its `end`, a pass forwards goes from the
outermost loop inwards and a pass backwards from the innermost outwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int16, Int32, Int64

ROLES = ("statement", "value", "index", "condition", "binding", "axis")
"""What a node is to its parent: a statement in its body, a value, an index of an access, a condition, the expression
that a block axis is bound to, a block axis."""


ROLE_SHIFT, DTYPE_SHIFT, BYTES_SHIFT = 8, 16, 24
"""While a table is read, a row is one number: its kind, and from these bits on its role, its type and the bytes of a
value."""


@dataclass(frozen=True)
class Buffers:
    """The tensors that a program touches, in order of first use.

    Attributes:
        names: for messages and pictures.
        shape: extents of all buffers one after the other, outermost first.
        shape_offset: dimensions of buffer b are `shape_offset[b]:shape_offset[b + 1]`.
        dtype: type of one element, an index into `vocabulary.DTYPES`.
        dtype_bytes: bytes of one element.
        temporary: not a parameter of the function.
    """

    names: tuple[str, ...]
    shape: Int64[np.ndarray, " dimensions"]
    shape_offset: Int32[np.ndarray, " buffers_plus_1"]
    dtype: Int8[np.ndarray, " buffers"]
    dtype_bytes: Int32[np.ndarray, " buffers"]
    temporary: Bool[np.ndarray, " buffers"]


@dataclass(frozen=True)
class ProgramTable:
    """One scheduled function.

    Serial loops that run once, block axes of length one and statements without effect are no nodes: no machine code
    comes of them. The root block, which only holds allocations, is none either.

    Attributes:
        kind: an index into `vocabulary.NODE_KINDS`; row 0 is the function.
        parent: the parent's row, -1 at the function.
        depth: edges from the function.
        end: one past the last row below.
        role: what it is to its parent, an index into `ROLES`.
        extent: iterations of a loop, length of a block axis, else 0.
        variable: the variable that a loop or an axis defines, or that a use names; else -1. Numbered from 0.
        unroll_limit: `pragma_auto_unroll_max_step` set at a loop, else -1.
        buffer: what a load or a store accesses, else -1.
        dtype: type of a value, an index into `vocabulary.DTYPES`; else 0.
        dtype_bytes: its bytes, else 0.
        value: of a constant; 1 at a choice that does not evaluate the other side; else 0.
        buffers: the tensors.
        block_names: name of each block by its row, for pictures.
    """

    kind: Int16[np.ndarray, " nodes"]
    parent: Int32[np.ndarray, " nodes"]
    depth: Int16[np.ndarray, " nodes"]
    end: Int32[np.ndarray, " nodes"]
    role: Int8[np.ndarray, " nodes"]
    extent: Int64[np.ndarray, " nodes"]
    variable: Int32[np.ndarray, " nodes"]
    unroll_limit: Int64[np.ndarray, " nodes"]
    buffer: Int32[np.ndarray, " nodes"]
    dtype: Int8[np.ndarray, " nodes"]
    dtype_bytes: Int32[np.ndarray, " nodes"]
    value: Float64[np.ndarray, " nodes"]
    buffers: Buffers
    block_names: dict[int, str]
