"""Work that a schedule has done again and again, and what of it a compiler does once."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX

MARKED_LOOPS = 62
"""Loops around an access, innermost first, that a mark says of whether it moves in them: bits of a number."""

_STORE, _PARALLEL = NODE_KIND_INDEX["store"], NODE_KIND_INDEX["loop_parallel"]
_THREAD_BINDING = NODE_KIND_INDEX["loop_thread_binding"]


@compiled
def repeats(
    kind: np.ndarray,
    extent: np.ndarray,
    loop: np.ndarray,
    statement: np.ndarray,
    reduction: np.ndarray,
    unrolled: np.ndarray,
    access_row: np.ndarray,
    moving: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """How often each store makes the same values again.

    A schedule that computes a block at a loop that the block does not depend on makes all of it again in every
    iteration. Where what is in that loop is straight code, LLVM keeps the values in registers and computes them once.

    `moving` marks by access the loops around it in which its address moves, the innermost in the lowest bit; the other
    arguments are columns of the table and facts.

    Returns:
        By row, 1 where it is no store: `repeated`, the product of the loops around that move nothing and reduce
        nothing; `removable`, the part of it around nothing but straight code.
    """
    repeated, removable = np.ones(len(kind), np.int64), np.ones(len(kind), np.int64)
    moves = np.zeros(len(kind), np.int64)
    for access in range(len(access_row)):
        row = statement[access_row[access]]
        if row >= 0:
            moves[row] |= moving[access]
    for row in range(len(kind)):
        if kind[row] != _STORE:
            continue
        straight, marks, around = True, moves[row], loop[row]
        for _ in range(MARKED_LOOPS):
            if around < 0 or kind[around] == _PARALLEL or kind[around] == _THREAD_BINDING:
                break
            again = extent[around] > 1 and marks & 1 == 0 and not reduction[around]
            if again:
                repeated[row] *= extent[around]
                if straight:
                    removable[row] *= extent[around]
            straight = straight and (again or unrolled[around] or extent[around] == 1)
            marks >>= 1
            around = loop[around]
    return repeated, removable
