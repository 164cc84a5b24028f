"""Work of statements and loops, and the traffic past a cache."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.loop_facts import VALUES, is_loop
from kernelcast.graphs.table import ROLES
from kernelcast.graphs.vocabulary import DTYPES, NODE_KIND_INDEX

FLOAT_OPERATIONS = ("add", "sub", "mul", "div", "min", "max", "exp", "sqrt", "tanh", "math")
"""Kinds that are one floating-point operation each when their value is of floating-point type."""

TRANSCENDENTAL = ("exp", "sqrt", "tanh", "math")
"""Those of them that cost many cycles."""

FLOAT_TYPES = tuple(name for name in DTYPES if name.startswith(("float", "bfloat")))

_CONDITION = ROLES.index("condition")
_IS_OPERATION = np.array([name in FLOAT_OPERATIONS for name in NODE_KIND_INDEX])
_IS_TRANSCENDENTAL = np.array([name in TRANSCENDENTAL for name in NODE_KIND_INDEX])
_IS_FLOAT = np.array([name in FLOAT_TYPES for name in DTYPES])
_BLOCK = NODE_KIND_INDEX["block"]


@compiled
def is_float(dtype: int) -> bool:
    """Whether values of a type are floating-point numbers."""
    return _IS_FLOAT[dtype]


@compiled
def work(
    kind: np.ndarray,
    parent: np.ndarray,
    extent: np.ndarray,
    dtype: np.ndarray,
    statement: np.ndarray,
    place: np.ndarray,
    executions: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Floating-point operations and iterations.

    Returns:
        `flops`: of one execution, of a statement without those in it, of a loop or block with all in it;
        `transcendental`: the part of a statement's that are exp, sqrt, tanh, ...;
        `iterations`: innermost iterations in one execution of a loop.
    """
    count = len(kind)
    flops, transcendental = np.zeros(count, np.int64), np.zeros(count, np.int64)
    iterations = np.zeros(count, np.int64)
    for row in range(1, count):
        # an index is no floating-point work
        if statement[row] >= 0 and place[row] == VALUES and is_float(dtype[row]):
            flops[statement[row]] += _IS_OPERATION[kind[row]]
            transcendental[statement[row]] += _IS_TRANSCENDENTAL[kind[row]]
    for row in range(1, count):
        if statement[row] == row and flops[row] > 0:
            above = parent[row]
            while above > 0:
                if is_loop(kind[above]) or kind[above] == _BLOCK:
                    flops[above] += flops[row] * (executions[row] // executions[above])
                above = parent[above]
    for row in range(count - 1, 0, -1):
        if is_loop(kind[row]):
            iterations[row] = extent[row] * max(iterations[row], 1)
        iterations[parent[row]] += iterations[row]
    return flops, transcendental, iterations


@compiled
def moved_bytes(
    kind: np.ndarray, loop: np.ndarray, extent: np.ndarray, touched: np.ndarray, cache_bytes: np.ndarray
) -> np.ndarray:
    """Bytes between memory and caches of several sizes that drop what was not used for longest.

    A loop brings in what it touches once if one iteration fits: what the next iteration uses again is still there.
        Otherwise
    each iteration brings in all that its own inner loops bring in. Below the innermost loops all fits.

    `loop` is the row of the innermost loop around each row, `touched` the bytes by loop, see `access_facts`.
    """
    count, caches = len(kind), len(cache_bytes)
    below, inner_loops = np.zeros((count, caches), np.int64), np.zeros(count, np.int64)
    moved = np.zeros(caches, np.int64)
    outermost = 0
    for row in range(count - 1, 0, -1):
        if not is_loop(kind[row]):
            continue
        for cache in range(caches):
            brought = touched[row, 0]
            if touched[row, 1] > cache_bytes[cache] and inner_loops[row] > 0:
                brought = max(brought, extent[row] * below[row, cache])
            if loop[row] >= 0:
                below[loop[row], cache] += brought
            else:
                moved[cache] += brought
        if loop[row] >= 0:
            inner_loops[loop[row]] += 1
        else:
            outermost += 1
    for cache in range(caches):
        if touched[0, 0] <= cache_bytes[cache] or outermost == 0:
            moved[cache] = touched[0, 0]
    return moved
