"""The index of every access, the binding of every axis and every condition as a sum of one term a loop around it."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.index_terms import (
    LOOP,
    SCALE,
    TABLE,
    TERM_COLUMNS,
    bounds,
    copy_term,
    grown_tables,
    grown_terms,
    put_divided,
    put_scaled,
    put_staircase,
    put_sum,
)
from kernelcast.graphs.table import ROLES
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX

_INDEX, _CONDITION, _BINDING = (ROLES.index(role) for role in ("index", "condition", "binding"))
_FIRST_LOOP, _LAST_LOOP = NODE_KIND_INDEX["loop_serial"], NODE_KIND_INDEX["loop_thread_binding"]
_VARIABLE, _CONSTANT, _CAST = (NODE_KIND_INDEX[kind] for kind in ("variable", "constant", "cast"))
_ADD, _SUB, _MUL = (NODE_KIND_INDEX[kind] for kind in ("add", "sub", "mul"))
_DIV, _FLOORDIV = NODE_KIND_INDEX["div"], NODE_KIND_INDEX["floordiv"]
_MOD, _FLOORMOD = NODE_KIND_INDEX["mod"], NODE_KIND_INDEX["floormod"]

LARGEST_CONSTANT = 2**40
"""A constant outside is no index; it is cut off there, so that sums stay in 64 bits."""


@compiled
def merge(
    terms: np.ndarray,
    tables: np.ndarray,
    used: int,
    tables_used: int,
    a: tuple[int, int],
    b: tuple[int, int],
    sign: int,
    extent: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Appends the terms of `a + sign * b`, both by their start and end; gives the arrays and what of them is used."""
    terms = grown_terms(terms, used + (a[1] - a[0]) + (b[1] - b[0]))
    i, j = a[0], b[0]
    negative = np.empty(TERM_COLUMNS, np.int64)
    while i < a[1] or j < b[1]:
        if j >= b[1] or (i < a[1] and terms[i, LOOP] < terms[j, LOOP]):
            copy_term(terms[used], terms[i])
            used += 1
            i += 1
            continue
        trips = extent[terms[j, LOOP]]
        if terms[j, TABLE] >= 0 or (i < a[1] and terms[i, LOOP] == terms[j, LOOP]):
            tables = grown_tables(tables, tables_used + 2 * trips)
        tables_used += put_scaled(negative, terms[j], sign, tables, tables_used, trips)
        if i < a[1] and terms[i, LOOP] == terms[j, LOOP]:
            written, taken = put_sum(terms[used], terms[i], negative, trips, tables, tables_used)
            used += written
            tables_used += taken
            i += 1
        else:
            copy_term(terms[used], negative)
            used += 1
        j += 1
    return terms, tables, used, tables_used


@compiled
def divide(
    terms: np.ndarray,
    tables: np.ndarray,
    used: int,
    tables_used: int,
    source: tuple[int, int],
    constant: int,
    divisor: int,
    remainder: bool,
    extent: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    """Appends the terms of `index // divisor` or `index % divisor`, rounding down; gives also the new constant."""
    terms = grown_terms(terms, used + source[1] - source[0])
    carried, rest = constant // divisor, constant % divisor
    low = high = rest
    for place in range(source[0], source[1]):
        trips = extent[terms[place, LOOP]]
        if not divisible(terms[place], tables, trips, divisor):
            least, most = bounds(terms[place], tables, trips)
            low, high = low + least, high + most
    fits = low >= 0 and high < divisor
    for place in range(source[0], source[1]):
        trips = extent[terms[place, LOOP]]
        if divisible(terms[place], tables, trips, divisor) or not fits:
            # exact for a single term; for several, carries between them are left out
            tables = grown_tables(tables, tables_used + trips)
            written, taken = put_divided(
                terms[used], terms[place], rest, divisor, remainder, trips, tables, tables_used
            )
            used += written
            tables_used += taken
        elif remainder:
            copy_term(terms[used], terms[place])
            used += 1
    return terms, tables, used, tables_used, rest if remainder else carried


@compiled
def divisible(term: np.ndarray, tables: np.ndarray, extent: int, divisor: int) -> bool:
    """Whether a term only takes multiples of `divisor`."""
    if term[TABLE] < 0:
        return term[SCALE] % divisor == 0
    whole = True
    for place in range(term[TABLE], term[TABLE] + extent):
        whole = whole and tables[place] % divisor == 0
    return whole


@compiled
def index_values(
    kind: np.ndarray,
    role: np.ndarray,
    parent: np.ndarray,
    end: np.ndarray,
    extent: np.ndarray,
    variable: np.ndarray,
    value: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sum that each index, binding and condition is.

    The arguments are columns of the table.

    Returns:
        `span` [rows, 2]: the terms of row r are `terms[span[r, 0]:span[r, 1]]`, by the row of their loop, outermost
        first; `terms`; `tables`.
    """
    count = len(kind)
    span, constants = np.zeros((count, 2), np.int64), np.zeros(count, np.int64)
    terms, tables = np.empty((4 * count, TERM_COLUMNS), np.int64), np.empty(256, np.int64)
    used = tables_used = 0
    source = np.full(variable.max() + 1, -1, np.int64)
    row = 0
    while row < count:
        if _FIRST_LOOP <= kind[row] <= _LAST_LOOP:
            terms = grown_terms(terms, used + 1)
            span[row, 0] = used
            used += put_staircase(terms[used], row, extent[row], 1, 1, 0, 0)
            span[row, 1] = used
            source[variable[row]] = row
        if role[row] != _INDEX and role[row] != _CONDITION and role[row] != _BINDING:
            row += 1
            continue
        for at in range(end[row] - 1, row - 1, -1):
            a = at + 1
            b = end[a] if end[at] > a else a
            operands = int(end[at] > a) + int(end[at] > b > a)
            if kind[at] == _CONSTANT:
                constants[at] = int(min(max(value[at], -LARGEST_CONSTANT), LARGEST_CONSTANT))
            elif kind[at] == _VARIABLE:
                if source[variable[at]] >= 0:
                    defined = source[variable[at]]
                    span[at, 0], span[at, 1] = span[defined, 0], span[defined, 1]
                    constants[at] = constants[source[variable[at]]]
            elif operands == 1 and kind[at] == _CAST:
                span[at, 0], span[at, 1], constants[at] = span[a, 0], span[a, 1], constants[a]
            elif operands == 2 and kind[at] == _MUL and (span[b, 0] == span[b, 1] or span[a, 0] == span[a, 1]):
                moving, factor = (a, constants[b]) if span[b, 0] == span[b, 1] else (b, constants[a])
                start = used
                if factor != 0:
                    constants[at] = constants[moving] * factor
                    terms, tables, used, tables_used = merge(
                        terms, tables, used, tables_used, (0, 0), (span[moving, 0], span[moving, 1]), factor, extent
                    )
                span[at, 0], span[at, 1] = start, used
            elif (
                operands == 2
                and (kind[at] == _DIV or kind[at] == _FLOORDIV or kind[at] == _MOD or kind[at] == _FLOORMOD)
                and span[b, 0] == span[b, 1]
                and constants[b] > 0
            ):
                remainder = kind[at] == _MOD or kind[at] == _FLOORMOD
                start = used
                terms, tables, used, tables_used, constants[at] = divide(
                    terms,
                    tables,
                    used,
                    tables_used,
                    (span[a, 0], span[a, 1]),
                    constants[a],
                    constants[b],
                    remainder,
                    extent,
                )
                span[at, 0], span[at, 1] = start, used
            else:
                # a sum; min, max, a choice or a gathered index moves with everything in it
                part = at + 1
                while part < end[at]:
                    sign = -1 if kind[at] == _SUB and part > at + 1 else 1
                    constants[at] += sign * constants[part]
                    if span[at, 0] == span[at, 1] and sign == 1:
                        span[at, 0], span[at, 1] = span[part, 0], span[part, 1]
                    elif span[part, 0] < span[part, 1]:
                        start = used
                        terms, tables, used, tables_used = merge(
                            terms,
                            tables,
                            used,
                            tables_used,
                            (span[at, 0], span[at, 1]),
                            (span[part, 0], span[part, 1]),
                            sign,
                            extent,
                        )
                        span[at, 0], span[at, 1] = start, used
                    part = end[part]
        if role[row] == _BINDING:
            axis = variable[parent[row]]
            source[axis] = row
        row = end[row]
    return span, terms, tables
