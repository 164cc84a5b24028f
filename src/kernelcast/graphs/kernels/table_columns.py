"""The columns of a table from what the walker wrote down row by row."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.table import BYTES_SHIFT, DTYPE_SHIFT, ROLE_SHIFT


@compiled
def unpacked(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Kind, role, type and bytes of one value of each row."""
    count = len(codes)
    kind, role = np.empty(count, np.int16), np.empty(count, np.int8)
    dtype, dtype_bytes = np.empty(count, np.int8), np.empty(count, np.int32)
    for row in range(count):
        kind[row], role[row] = codes[row] & 0xFF, codes[row] >> ROLE_SHIFT & 0xFF
        dtype[row], dtype_bytes[row] = codes[row] >> DTYPE_SHIFT & 0xFF, codes[row] >> BYTES_SHIFT
    return kind, role, dtype, dtype_bytes


@compiled
def depths_and_ends(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parent of each row, the edges from it to the first row, and one past the last row below it."""
    count = len(parents)
    parent, depth, end = np.empty(count, np.int32), np.zeros(count, np.int16), np.empty(count, np.int32)
    for row in range(count):
        parent[row], end[row] = parents[row], row + 1
        if row > 0:
            depth[row] = depth[parents[row]] + 1
    for row in range(count - 1, 0, -1):
        end[parent[row]] = max(end[parent[row]], end[row])
    return parent, depth, end


@compiled
def scattered(
    count: int, definitions: np.ndarray, uses: np.ndarray, accesses: np.ndarray, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Extent, variable, buffer and unroll limit of all rows, from the few rows that have one.

    `definitions` holds rows, extents and variables by turns, the others rows and values.
    """
    extent, variable = np.zeros(count, np.int64), np.full(count, -1, np.int32)
    buffer, limit = np.full(count, -1, np.int32), np.full(count, -1, np.int64)
    for at in range(0, len(definitions), 3):
        extent[definitions[at]], variable[definitions[at]] = definitions[at + 1], definitions[at + 2]
    for at in range(0, len(uses), 2):
        variable[uses[at]] = uses[at + 1]
    for at in range(0, len(accesses), 2):
        buffer[accesses[at]] = accesses[at + 1]
    for at in range(0, len(limits), 2):
        limit[limits[at]] = limits[at + 1]
    return extent, variable, buffer, limit
