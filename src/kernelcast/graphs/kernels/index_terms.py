"""How an index moves along one loop: the terms whose sum an index is.

A schedule makes indices such as `i // 4 * 8 + i % 4 + j * 2`. What moves along one loop is kept as a *staircase*::

    term(t) = scale * (s(t) - s(0)),   s(t) = ((t + shift) // width) % modulus      (modulus 0: no remainder is taken)

which is closed under the divisions that splitting and fusing loops make, whatever the loop's length. What is no
staircase becomes a table of its values over the iterations. Terms stand in the rows of one array, tables in another.

A division of a sum is split exactly where the parts allow it, and term by term (leaving out carries) where they do
not. So counts of elements are exact for affine indices and close estimates otherwise.
"""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled

LOOP, SCALE, WIDTH, MODULUS, SHIFT, TABLE = range(6)
"""Columns of a term: the row of its loop, the staircase, where its table starts, -1 without."""

TERM_COLUMNS = 6

HASH_FACTOR = 40503
"""Odd and large, so that values in a row are spread."""

# Loops over elements below, not assignments of whole rows: those take seconds to compile.


@compiled
def grown_terms(terms: np.ndarray, needed: int) -> np.ndarray:
    """`terms` itself, or a copy with room for `needed` rows."""
    if needed <= len(terms):
        return terms
    larger = np.empty((max(needed, 2 * len(terms)), TERM_COLUMNS), np.int64)
    for row in range(len(terms)):
        copy_term(larger[row], terms[row])
    return larger


@compiled
def grown_tables(tables: np.ndarray, needed: int) -> np.ndarray:
    """`tables` itself, or a copy with room for `needed` values."""
    if needed <= len(tables):
        return tables
    larger = np.empty(max(needed, 2 * len(tables)), np.int64)
    for place in range(len(tables)):
        larger[place] = tables[place]
    return larger


@compiled
def copy_term(term: np.ndarray, source: np.ndarray) -> None:
    """Writes a term as it is."""
    for column in range(TERM_COLUMNS):
        term[column] = source[column]


@compiled
def put_staircase(term: np.ndarray, loop: int, extent: int, scale: int, width: int, modulus: int, shift: int) -> int:
    """Writes a staircase in its one simplest form; gives the number of terms written, 0 where nothing moves."""
    term[LOOP], term[TABLE] = loop, -1
    first, last = shift // width, (shift + extent - 1) // width
    if modulus != 0 and first // modulus == last // modulus:
        modulus = 0
    if scale == 0 or modulus == 1 or (first == last and width > 1):
        return 0
    period = width * modulus if modulus != 0 else width
    term[SCALE], term[WIDTH], term[MODULUS], term[SHIFT] = scale, width, modulus, shift % period
    return 1


@compiled
def stair(term: np.ndarray, iteration: int) -> int:
    """`s(iteration)` of a staircase."""
    height = (iteration + term[SHIFT]) // term[WIDTH]
    return height % term[MODULUS] if term[MODULUS] != 0 else height


@compiled
def value_at(term: np.ndarray, tables: np.ndarray, iteration: int) -> int:
    """How far the index is from where it is at iteration 0."""
    if term[TABLE] >= 0:
        return tables[term[TABLE] + iteration]
    return term[SCALE] * (stair(term, iteration) - stair(term, 0))


@compiled
def bounds(term: np.ndarray, tables: np.ndarray, extent: int) -> tuple[int, int]:
    """Smallest and largest value over the loop."""
    if term[TABLE] >= 0:
        low = high = tables[term[TABLE]]
        for iteration in range(1, extent):
            value = tables[term[TABLE] + iteration]
            low, high = min(low, value), max(high, value)
        return low, high
    start = stair(term, 0)
    if term[MODULUS] != 0:
        # it wraps, or it would have no modulus
        low, high = -start, term[MODULUS] - 1 - start
    else:
        low, high = 0, stair(term, extent - 1) - start
    low, high = low * term[SCALE], high * term[SCALE]
    return min(low, high), max(low, high)


@compiled
def distinct_values(term: np.ndarray, tables: np.ndarray, extent: int) -> int:
    """How many values it takes over the loop."""
    if term[TABLE] < 0:
        steps = (term[SHIFT] + extent - 1) // term[WIDTH] - term[SHIFT] // term[WIDTH] + 1
        return min(steps, term[MODULUS]) if term[MODULUS] != 0 else steps
    # a table of hashes at most half full
    size = 2
    while size < 2 * extent:
        size *= 2
    filled, seen, count = np.zeros(size, np.bool_), np.empty(size, np.int64), 0
    for iteration in range(extent):
        value = tables[term[TABLE] + iteration]
        place = (value * HASH_FACTOR) & (size - 1)
        while filled[place] and seen[place] != value:
            place = (place + 1) & (size - 1)
        if not filled[place]:
            filled[place], seen[place] = True, value
            count += 1
    return count


@compiled
def put_table(term: np.ndarray, loop: int, extent: int, tables: np.ndarray, tables_used: int) -> int:
    """Makes a term of the table written at `tables_used`; gives the number of terms written, 0 where nothing moves."""
    moves = False
    for place in range(tables_used, tables_used + extent):
        moves = moves or tables[place] != 0
    if not moves:
        return 0
    term[LOOP], term[TABLE] = loop, tables_used
    term[SCALE], term[WIDTH], term[MODULUS], term[SHIFT] = 0, 1, 0, 0
    return 1


@compiled
def put_scaled(term: np.ndarray, source: np.ndarray, factor: int, tables: np.ndarray, used: int, extent: int) -> int:
    """Writes `factor * source`, its table (room is there) at `used`; gives the number of values the table took."""
    copy_term(term, source)
    if source[TABLE] < 0:
        term[SCALE] *= factor
        return 0
    if factor == 1:
        return 0
    term[TABLE] = used
    for iteration in range(extent):
        tables[used + iteration] = factor * tables[source[TABLE] + iteration]
    return extent


@compiled
def joins(upper: np.ndarray, lower: np.ndarray) -> bool:
    """Whether two staircases are one: `x // 8 * 8 + x % 8`."""
    return (
        lower[MODULUS] != 0
        and upper[WIDTH] == lower[WIDTH] * lower[MODULUS]
        and upper[SCALE] == lower[SCALE] * lower[MODULUS]
        and (upper[SHIFT] - lower[SHIFT]) % (lower[WIDTH] * lower[MODULUS]) == 0
    )


@compiled
def put_sum(
    term: np.ndarray, a: np.ndarray, b: np.ndarray, extent: int, tables: np.ndarray, used: int
) -> tuple[int, int]:
    """Writes the sum of two terms of one loop; gives the terms written and the values that its table took."""
    if a[TABLE] < 0 and b[TABLE] < 0:
        if a[WIDTH] == b[WIDTH] and a[MODULUS] == b[MODULUS] and a[SHIFT] == b[SHIFT]:
            return put_staircase(term, a[LOOP], extent, a[SCALE] + b[SCALE], a[WIDTH], a[MODULUS], a[SHIFT]), 0
        if joins(a, b) or joins(b, a):
            upper, lower = (a, b) if joins(a, b) else (b, a)
            modulus = lower[MODULUS] * upper[MODULUS]
            return put_staircase(term, a[LOOP], extent, lower[SCALE], lower[WIDTH], modulus, upper[SHIFT]), 0
    for iteration in range(extent):
        tables[used + iteration] = value_at(a, tables, iteration) + value_at(b, tables, iteration)
    written = put_table(term, a[LOOP], extent, tables, used)
    return written, extent * written


@compiled
def put_divided(
    term: np.ndarray,
    source: np.ndarray,
    constant: int,
    divisor: int,
    remainder: bool,
    extent: int,
    tables: np.ndarray,
    used: int,
) -> tuple[int, int]:
    """Writes how `(constant + source) // divisor`, or the remainder, moves; gives what `put_sum` gives."""
    scale, width, modulus, shift = source[SCALE], source[WIDTH], source[MODULUS], source[SHIFT]
    if source[TABLE] < 0 and scale % divisor == 0:
        factor = 0 if remainder else scale // divisor
        return put_staircase(term, source[LOOP], extent, factor, width, modulus, shift), 0
    if source[TABLE] < 0 and scale > 0 and divisor % scale == 0:
        # constant + source = scale * (s(t) + base) + something below scale
        base = (constant - scale * stair(source, 0)) // scale
        steps = divisor // scale
        if not remainder and (modulus == 0 or (base % steps == 0 and modulus % steps == 0)):
            shifted = shift + base * width if modulus == 0 else shift
            return put_staircase(term, source[LOOP], extent, 1, width * steps, modulus // steps, shifted), 0
        if remainder and (modulus == 0 or modulus % steps == 0):
            return put_staircase(term, source[LOOP], extent, scale, width, steps, shift + base * width), 0
        if remainder and base % steps + modulus <= steps:
            copy_term(term, source)
            return 1, 0
    start = constant % divisor if remainder else constant // divisor
    for iteration in range(extent):
        value = constant + value_at(source, tables, iteration)
        tables[used + iteration] = (value % divisor if remainder else value // divisor) - start
    written = put_table(term, source[LOOP], extent, tables, used)
    return written, extent * written
