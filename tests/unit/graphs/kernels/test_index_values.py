from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.graphs.kernels.index_terms import LOOP, TABLE, bounds, distinct_values, value_at
from kernelcast.graphs.kernels.index_values import index_values
from kernelcast.graphs.table import ProgramTable

Expression = int | tuple[Any, ...]
OUTER, INNER = ("loop", 0), ("loop", 1)

COMPILES = settings(deadline=None)
"""The first call may take seconds."""


def evaluate(expression: Expression, at: tuple[int, ...]) -> int:
    if isinstance(expression, int):
        return expression
    if expression[0] == "loop":
        return at[expression[1]]
    a, b = (evaluate(operand, at) for operand in expression[1:])
    return {"add": a + b, "sub": a - b, "mul": a * b, "floordiv": a // b if b else 0, "floormod": a % b if b else 0}[
        expression[0]
    ]


def points(extents: list[int]) -> list[tuple[int, ...]]:
    return list(product(*map(range, extents)))


def terms_of(table: ProgramTable) -> tuple[np.ndarray, np.ndarray]:
    """The terms of the first index of the store, and the tables."""
    span, terms, tables = index_values(
        table.kind, table.role, table.parent, table.end, table.extent, table.variable, table.value
    )
    index = int(np.flatnonzero(table.buffer == 0)[0]) + 1
    return terms[span[index, 0] : span[index, 1]], tables


def moves(table: ProgramTable, extents: list[int]) -> list[int]:
    """How far the index is from where it is when all loops are at their start, by point."""
    terms, tables = terms_of(table)
    # loop n stands in row n + 1
    return [sum(int(value_at(term, tables, at[term[LOOP] - 1])) for term in terms) for at in points(extents)]


def expected(expression: Expression, extents: list[int]) -> list[int]:
    start = evaluate(expression, (0,) * len(extents))
    return [evaluate(expression, at) - start for at in points(extents)]


single = st.recursive(
    st.just(OUTER),
    lambda inner: st.builds(
        lambda kind, operand, number: (kind, operand, number),
        st.sampled_from(["add", "mul", "floordiv", "floormod", "sub"]),
        inner,
        st.integers(1, 7),
    ),
    max_leaves=6,
)


@COMPILES
@given(single, single, st.integers(1, 12), st.integers(1, 5))
def test_sums_of_terms_in_one_variable_are_exact(
    nest: Callable[..., ProgramTable], a: Expression, b: Expression, n: int, m: int
) -> None:
    expression = ("sub", ("add", a, ("mul", INNER, 3)), b)
    assert moves(nest([n, m], [expression]), [n, m]) == expected(expression, [n, m])


@COMPILES
@given(single, st.integers(1, 40))
def test_bounds_and_distinct_values_of_a_term_are_exact(
    nest: Callable[..., ProgramTable], expression: Expression, n: int
) -> None:
    terms, tables = terms_of(nest([n], [expression]))
    found = expected(expression, [n])
    assert len(terms) <= 1
    for term in terms:
        assert bounds(term, tables, n) == (min(found), max(found))
        assert distinct_values(term, tables, n) == len(set(found))
    if not len(terms):
        assert set(found) == {0}


@COMPILES
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["floordiv", "floormod"]))
def test_division_of_a_tiled_index_is_exact(
    nest: Callable[..., ProgramTable], outer: int, middle: int, inner: int, kind: str
) -> None:
    """`(i * middle * inner + j * inner + k) // (inner * middle)` and the like: what fused and split loops give."""
    extents = [outer, middle, inner]
    tiled = ("add", ("add", ("mul", ("loop", 0), middle * inner), ("mul", ("loop", 1), inner)), ("loop", 2))
    for divisor in (inner, middle * inner):
        expression = (kind, tiled, divisor)
        assert moves(nest(extents, [expression]), extents) == expected(expression, extents)


@COMPILES
@given(st.lists(st.integers(2, 9), min_size=2, max_size=4))
def test_what_a_fused_loop_is_split_into_needs_no_table(nest: Callable[..., ProgramTable], extents: list[int]) -> None:
    """However long the loop is: `i // 20 * 20 + i // 4 % 5 * 4 + i % 4` is `i` again."""
    total = int(np.prod(extents)) * 1000
    parts: Expression = 0
    step = 1
    for extent in extents:
        part = ("mul", ("floormod", ("floordiv", OUTER, step), extent), step)
        terms, _ = terms_of(nest([total], [part]))
        assert (terms[:, TABLE] < 0).all()
        parts = ("add", parts, part)
        step *= extent
    parts = ("add", parts, ("mul", ("floordiv", OUTER, step), step))
    terms, tables = terms_of(nest([total], [parts]))
    assert (terms[:, TABLE] < 0).all()
    assert distinct_values(terms[0], tables, total) == total
    assert bounds(terms[0], tables, total) == (0, total - 1)


def test_a_minimum_moves_with_everything_in_it(nest: Callable[..., ProgramTable]) -> None:
    terms, tables = terms_of(nest([4, 6], [("min", ("mul", OUTER, 3), ("add", INNER, 2))]))
    assert [int(value_at(term, tables, 1)) for term in terms] == [3, 1]
