from typing import Any

import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.kernels.expression_kinds import dtype_entry
from kernelcast.graphs.kernels.work import FLOAT_TYPES
from kernelcast.graphs.table import ROLES
from kernelcast.graphs.vocabulary import DTYPES, NODE_KINDS
from kernelcast.graphs.walker import walk
from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, parse_module, runnable_module, scheduled_module


def test_buffers_have_their_sizes(suite: dict[str, Workload]) -> None:
    buffers = walk(parse_module(suite["softmax"].module)).buffers
    shapes = [
        tuple(buffers.shape[start:stop].tolist())
        for start, stop in zip(buffers.shape_offset, buffers.shape_offset[1:], strict=False)
    ]
    assert {shape for shape, temporary in zip(shapes, buffers.temporary, strict=True) if not temporary} == {(32, 64)}
    assert {shape for shape, temporary in zip(shapes, buffers.temporary, strict=True) if temporary} == {(32,), (32, 64)}
    assert set(buffers.dtype_bytes.tolist()) == {4}
    assert len(buffers.names) == len(shapes)


def test_loops_nest_as_in_the_program(suite: dict[str, Workload]) -> None:
    table = walk(parse_module(suite["matmul"].module))
    kinds = [NODE_KINDS[kind] for kind in table.kind]
    assert kinds[:5] == ["function", "loop_serial", "loop_serial", "loop_serial", "block"]
    assert table.extent[1:4].tolist() == [64, 32, 48]
    assert [kind for kind in kinds if kind.startswith("axis")] == ["axis_spatial", "axis_spatial", "axis_reduce"]
    axes = [row for row, kind in enumerate(kinds) if kind.startswith("axis")]
    # each axis is bound to the variable of its loop
    assert [table.variable[axis + 1] for axis in axes] == table.variable[1:4].tolist()
    assert {ROLES[table.role[axis + 1]] for axis in axes} == {"binding"}
    init = kinds.index("init")
    below_block = [kinds[row] for row in range(5, len(kinds)) if table.parent[row] == 4]
    assert below_block == ["axis_spatial", "axis_spatial", "axis_reduce", "init", "store"]
    assert [kinds[row] for row in range(len(kinds)) if table.parent[row] == init] == ["store"]
    assert list(table.block_names) == [4]


def test_depths_and_ends_follow_the_parents(modules: dict[str, list[Any]]) -> None:
    for module in (module for drawn in modules.values() for module in drawn):
        table = walk(module)
        rows = np.arange(1, len(table.kind))
        assert (table.depth[1:] == table.depth[table.parent[1:]] + 1).all()
        assert (table.parent[1:] < rows).all()
        for row in range(len(table.kind)):
            below = {row}
            for other in range(row + 1, len(table.kind)):
                if int(table.parent[other]) in below:
                    below.add(other)
            assert sorted(below) == list(range(row, table.end[row]))


def test_a_program_is_read_alike_twice(modules: dict[str, list[Any]]) -> None:
    for module in modules["conv"]:
        first, second = walk(module), walk(parse_module(load_tvm().ir.save_json(module)))
        for name, value in vars(first).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)


def test_a_layout_rewrite_that_the_build_takes_out_leaves_nothing(
    suite: dict[str, Workload], candidates: dict[str, list[Candidate]]
) -> None:
    rewritten = 0
    for candidate in candidates["matmul"]:
        module = scheduled_module(suite["matmul"], candidate.trace)
        before, after = walk(module), walk(runnable_module(module))
        if "layout_rewrite_preproc" in module.script():
            rewritten += 1
            assert (after.parent == 0).sum() == (before.parent == 0).sum() - 1
            assert len(after.buffers.names) == len(before.buffers.names) - 1
    assert rewritten, "no schedule rewrites a layout; draw more"


@pytest.mark.parametrize(
    ("dtype", "name", "size"),
    [
        ("float32", "float32", 4),
        ("float16", "float16", 2),
        ("bfloat16", "bfloat16", 2),
        ("int8", "int8", 1),
        ("uint64", "uint64", 8),
        ("bool", "bool", 1),
        ("int8x16", "int8", 16),
        ("float32x4", "float32", 16),
        ("float8_e4m3fn", "float8", 1),
        ("handle", "handle", 8),
        ("int4", "other", 1),
        ("void", "other", 8),
    ],
)
def test_types(dtype: str, name: str, size: int) -> None:
    assert dtype_entry(dtype) == (DTYPES.index(name), size)
    assert (name in FLOAT_TYPES) is ("float" in dtype)


def build(body: str) -> Any:
    """A module of one function `main` over a vector A of n elements and one B of 8."""
    load_tvm()
    from tvm.script import from_source, ir, tirx

    lines = [
        "@I.ir_module",
        "class Module:",
        "    @T.prim_func(s_tir=True)",
        '    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int32):',
        *(f"        {line}" for line in body.splitlines()),
    ]
    return from_source("\n".join(lines), {"I": ir, "T": tirx})


def test_a_loop_of_unknown_length_is_refused() -> None:
    module = build("for i in range(n):\n    B[i] = A[i]")
    with pytest.raises(MalformedDataError, match="extent of a loop is no constant"):
        walk(module)


def test_a_module_without_a_function_is_refused() -> None:
    tvm = load_tvm()
    with pytest.raises(MalformedDataError, match="dvc repro measure"):
        walk(tvm.IRModule({}))


def test_what_makes_no_machine_code_is_no_node() -> None:
    """A serial loop that runs once, a statement without effect, and the loops and blocks around it."""
    table = walk(build("for i, j in T.grid(1, 8):\n    B[j] = A[i]\nfor k in range(4):\n    T.evaluate(0)"))
    assert [NODE_KINDS[kind] for kind in table.kind] == [
        "function",
        "loop_serial",
        "store",
        "variable",
        "load",
        "constant",
    ]
    assert table.extent[1] == 8


def test_branches_and_choices_say_what_is_their_condition() -> None:
    table = walk(
        build(
            "for i in T.unroll(8):\n"
            "    if i < 4:\n"
            "        B[i] = T.if_then_else(i < 2, T.exp(A[i]), T.tanh(A[i]))\n"
            "    else:\n"
            "        B[i] = T.Select(i < 6, T.log(A[i]), T.float32(3))"
        )
    )
    kinds = [NODE_KINDS[kind] for kind in table.kind]
    assert kinds[1] == "loop_unrolled"
    conditions = [kinds[row] for row in range(len(kinds)) if ROLES[table.role[row]] == "condition"]
    assert conditions == ["compare"] * 3
    # only the first choice leaves the other side alone
    assert [table.value[row] for row, kind in enumerate(kinds) if kind == "select"] == [1, 0]
    assert {"exp", "tanh", "math"} <= set(kinds)
    branch = kinds.index("branch")
    below = [kinds[row] for row in range(len(kinds)) if table.parent[row] == branch]
    assert below == ["compare", "store", "store"]
