"""Machine code of what networks do to the vectors of nodes on a processor, in one pass where torch needs many.

Arrays of both floating-point types; sums may be taken in any order, which is what makes them quick.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled

LEVELS = 2**32
"""Values of the random numbers that decide what is left out."""


@compiled
def rows_of_edges(row: np.ndarray, column: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The columns of each row in the order of the edges, those on the diagonal left out.

    Returns:
        `first`: where each row begins, and the end; `columns`: of all rows one after the other.
    """
    first = np.zeros(nodes + 1, np.int64)
    for edge in range(len(row)):
        if row[edge] != column[edge]:
            first[row[edge] + 1] += 1
    for node in range(nodes):
        first[node + 1] += first[node]
    following = first[:-1].copy()
    columns = np.empty(first[-1], np.int64)
    for edge in range(len(row)):
        if row[edge] != column[edge]:
            columns[following[row[edge]]] = column[edge]
            following[row[edge]] += 1
    return first, columns


@partial(compiled, any_order=True)
def scaled_product(
    first: np.ndarray, columns: np.ndarray, scale: np.ndarray, vectors: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """`S (A + I) S vectors + bias`, S being the diagonal matrix of `scale` and A having ones at the columns."""
    count, width = vectors.shape
    out = np.empty_like(vectors)
    for row in range(count):
        own = scale[row]
        for place in range(width):
            out[row, place] = own * vectors[row, place]
        for entry in range(first[row], first[row + 1]):
            column = columns[entry]
            other = scale[column]
            for place in range(width):
                out[row, place] += other * vectors[column, place]
        for place in range(width):
            out[row, place] = own * out[row, place] + bias[place]
    return out


@compiled
def is_kept(element: int, seed: int, last_kept: int) -> np.bool:
    """Whether dropout keeps an element: a hash of its number and the seed tells, so that no mask needs a place.

    The two rounds are those of the hash `lowbias32` of Chris Wellons (public domain).
    """
    mixed = np.uint32(np.uint32(element) ^ np.uint32(seed))
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x7FEB352D))
    mixed = np.uint32(mixed ^ np.uint32(seed >> 32))
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(mixed ^ (mixed >> np.uint32(16))) <= np.uint32(last_kept)


@partial(compiled, any_order=True)
def norm_relu_dropout(
    values: np.ndarray,
    residual: np.ndarray,
    gain: np.ndarray,
    shift: np.ndarray,
    epsilon: float,
    last_kept: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`residual + dropout(relu(norm(values)))`; no residual where it has no rows.

    Returns:
        The sum, and of each row its mean and what its deviations are multiplied by.
    """
    count, width = values.shape
    real = values.dtype.type
    share, enlarged = real(1.0 / width), real(LEVELS / (last_kept + 1))
    out = np.empty_like(values)
    mean, factor = np.empty(count, values.dtype), np.empty(count, values.dtype)
    for row in range(count):
        total = real(0)
        for place in range(width):
            total += values[row, place]
        centre = total * share
        squares = real(0)
        for place in range(width):
            squares += (values[row, place] - centre) ** 2
        spread = real(1) / np.sqrt(squares * share + real(epsilon))
        mean[row], factor[row] = centre, spread
        for place in range(width):
            value = (values[row, place] - centre) * spread * gain[place] + shift[place]
            # what is no number stays none
            out[row, place] = real(0) if value <= real(0) else value * enlarged
        if last_kept < LEVELS - 1:
            for place in range(width):
                out[row, place] = out[row, place] if is_kept(row * width + place, seed, last_kept) else real(0)
        if len(residual):
            for place in range(width):
                out[row, place] += residual[row, place]
    return out, mean, factor


@partial(compiled, any_order=True)
def norm_relu_dropout_gradient(
    gradient: np.ndarray,
    values: np.ndarray,
    mean: np.ndarray,
    factor: np.ndarray,
    gain: np.ndarray,
    shift: np.ndarray,
    last_kept: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of `values`, `gain` and `shift` from that of the output of `norm_relu_dropout`."""
    count, width = values.shape
    real = values.dtype.type
    share, enlarged = real(1.0 / width), real(LEVELS / (last_kept + 1))
    of_values = np.empty_like(values)
    of_gain, of_shift = np.zeros_like(gain), np.zeros_like(shift)
    normal, through = np.empty(width, values.dtype), np.empty(width, values.dtype)
    for row in range(count):
        centre, spread = mean[row], factor[row]
        for place in range(width):
            normal[place] = (values[row, place] - centre) * spread
            value = normal[place] * gain[place] + shift[place]
            through[place] = real(0) if value <= real(0) else gradient[row, place] * enlarged
        if last_kept < LEVELS - 1:
            for place in range(width):
                through[place] = through[place] if is_kept(row * width + place, seed, last_kept) else real(0)
        total, along = real(0), real(0)
        for place in range(width):
            of_gain[place] += through[place] * normal[place]
            of_shift[place] += through[place]
            through[place] *= gain[place]
            total += through[place]
            along += through[place] * normal[place]
        for place in range(width):
            of_values[row, place] = spread * (through[place] - share * (total + normal[place] * along))
    return of_values, of_gain, of_shift
