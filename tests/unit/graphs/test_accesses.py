from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kernelcast.graphs.accesses import Access, Index, index_of
from kernelcast.graphs.tensorir import Buffer, Expression


def constant(value: int) -> Expression:
    return Expression("constant", "int32", value=value)


def variable(number: int) -> Expression:
    return Expression("variable", "int32", value=number)


def operation(kind: str, *operands: Expression) -> Expression:
    return Expression(kind, "int32", operands)


def evaluate(expression: Expression, at: dict[int, int]) -> int:
    if expression.kind == "constant":
        return int(expression.value)
    if expression.kind == "variable":
        return at[int(expression.value)]
    a, b = (evaluate(operand, at) for operand in expression.operands)
    return {"add": a + b, "sub": a - b, "mul": a * b, "floordiv": a // b if b else 0, "floormod": a % b if b else 0}[
        expression.kind
    ]


def value_of(index: Index, at: dict[int, int]) -> int:
    return index.constant + sum(
        term * at[number] if isinstance(term, int) else term[at[number]] for number, term in index.terms.items()
    )


def points(extents: dict[int, int]) -> list[dict[int, int]]:
    return [dict(zip(extents, point, strict=True)) for point in product(*map(range, extents.values()))]


def sums(extents: dict[int, int]) -> dict[int, Index]:
    return {number: Index(0, {number: 1}) for number in extents}


single = st.recursive(
    st.just(variable(0)),
    lambda inner: st.builds(
        operation,
        st.sampled_from(["add", "mul", "floordiv", "floormod", "sub"]),
        inner,
        st.integers(1, 7).map(constant),
    ),
    max_leaves=6,
)


@given(single, single, st.integers(1, 12), st.integers(1, 5))
def test_sums_of_terms_in_one_variable_are_exact(a: Expression, b: Expression, n: int, m: int) -> None:
    moved = operation("add", a, operation("mul", variable(1), constant(3)))
    expression = operation("sub", moved, b)
    extents = {0: n, 1: m}
    index = index_of(expression, sums(extents), extents)
    assert [value_of(index, at) for at in points(extents)] == [evaluate(expression, at) for at in points(extents)]


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["floordiv", "floormod"]))
def test_division_of_a_tiled_index_is_exact(outer: int, middle: int, inner: int, kind: str) -> None:
    """`(i * middle * inner + j * inner + k) // (inner * middle)` and the like: what fused and split loops give."""
    extents = {0: outer, 1: middle, 2: inner}
    tiled = operation(
        "add",
        operation(
            "add",
            operation("mul", variable(0), constant(middle * inner)),
            operation("mul", variable(1), constant(inner)),
        ),
        variable(2),
    )
    for divisor in (inner, middle * inner):
        expression = operation(kind, tiled, constant(divisor))
        index = index_of(expression, sums(extents), extents)
        assert [value_of(index, at) for at in points(extents)] == [evaluate(expression, at) for at in points(extents)]


def access(dimensions: tuple[Index, ...], shape: tuple[int, ...]) -> Access:
    return Access(Buffer(0, "A", shape, "float32", 4, False), False, dimensions)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_elements_of_a_tiled_matrix_are_exact(rows: int, tile: int, columns: int) -> None:
    matrix = access((Index(0, {0: tile, 1: 1}), Index(0, {2: 1})), (rows * tile, columns))
    for number, extent in ((2, columns), (1, tile), (0, rows)):
        matrix.add_loop(number, extent, 0)
    touched = {(i * tile + j, k) for i in range(rows) for j in range(tile) for k in range(columns)}
    assert matrix.elements == len(touched)
    assert matrix.executions == rows * tile * columns
    assert matrix.touched_bytes == -(-len(touched) * 4 // 64) * 64


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 3))
def test_elements_of_a_sliding_window_are_exact(outputs: int, kernel: int, step: int) -> None:
    size = (outputs - 1) * step + kernel
    window = access((Index(0, {0: step, 1: 1}),), (size,))
    window.add_loop(1, kernel, 0)
    window.add_loop(0, outputs, 0)
    touched = {i * step + j for i in range(outputs) for j in range(kernel)}
    # a window that jumps leaves gaps
    assert window.elements == len(touched)


def test_strides_lines_and_reuse_by_hand() -> None:
    """Reads B[k, j] of a (32, 64) float32 matrix under loops i, j, k from outside: strided by a row, reused over i."""
    matrix = access((Index(0, {2: 1}), Index(0, {1: 1})), (32, 64))
    matrix.add_loop(2, 32, 100)
    assert (matrix.stride, matrix.inner_bytes) == (64, 32 * 64)
    matrix.add_loop(1, 64, 200)
    assert matrix.touched_bytes == 32 * 64 * 4
    assert matrix.reuse_trips == 1
    matrix.add_loop(0, 16, 300)
    assert (matrix.reuse_trips, matrix.reuse_bytes) == (16, 300)
    assert matrix.executions / matrix.elements == 16


def test_an_unmoved_access_is_one_line() -> None:
    scalar = access((Index(5, {}),), (10,))
    scalar.add_loop(0, 100, 64)
    assert (scalar.stride, scalar.touched_bytes, scalar.elements) == (0, 64, 1)
    assert (scalar.reuse_trips, scalar.reuse_bytes) == (100, 64)
