import dataclasses
import importlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.graphs.facts import Facts, analyse, moved_bytes
from kernelcast.graphs.kernels.access_facts import RUN_ITERATIONS
from kernelcast.graphs.kernels.loop_facts import lane_parts
from kernelcast.graphs.kernels.work import moved_bytes as traffic
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.vocabulary import NODE_KINDS
from kernelcast.graphs.walker import walk
from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, module_json, parse_module, runnable_module, scheduled_module

VECTORIZED, PARALLEL = NODE_KINDS.index("loop_vectorized"), NODE_KINDS.index("loop_parallel")
UNROLLED = NODE_KINDS.index("loop_unrolled")

COMPILES = settings(deadline=None)
"""The first call may take seconds."""


def facts_of(module: Any) -> tuple[ProgramTable, Facts]:
    table = walk(module)
    return table, analyse(table)


def loops_of(table: ProgramTable) -> np.ndarray:
    return np.flatnonzero([NODE_KINDS[kind].startswith("loop_") for kind in table.kind])


def flops_of(facts: Facts) -> int:
    own = facts.statement == np.arange(len(facts.statement))
    return int((facts.flops * facts.executions)[own].sum())


def lowered_loop_extents(module: object, target: dict) -> list[int]:
    """Extents of the loops that TVM's own lowering leaves after vectorising and unrolling."""
    tvm = load_tvm()
    instrument = importlib.import_module("tvm.ir.instrument")
    after: list[object] = []

    @instrument.pass_instrument
    class Watch:
        def run_after_pass(self, changed: object, info: object) -> None:
            if str(info.name).endswith("UnrollLoop"):
                after.append(changed)

    with tvm.transform.PassContext(opt_level=3, instruments=[Watch()]):
        tvm.compile(module, target=make_target(target))
    nodes = json.loads(module_json(after[0]))["nodes"]
    loops = [node["data"] for node in nodes if node["type"].endswith(".For")]
    return sorted(nodes[nodes[loop["extent"]]["data"]["value"]]["data"] for loop in loops)


@pytest.mark.parametrize("name", ["matmul", "softmax", "conv", "transpose"])
def test_loops_that_stay_are_those_that_tvm_leaves(
    name: str, suite: dict[str, Workload], candidates: dict[str, list[Candidate]], target: dict
) -> None:
    for candidate in candidates[name][:4]:
        module = runnable_module(scheduled_module(suite[name], candidate.trace))
        table, facts = facts_of(module)
        kept = [
            int(table.extent[row])
            for row in loops_of(table)
            if not facts.unrolled[row]
            and table.extent[row] > 1
            and (facts.scalar[row] or table.kind[row] != VECTORIZED)
        ]
        assert sorted(kept) == lowered_loop_extents(module, target)


def test_work_of_schedules_is_that_of_the_workload(modules: dict[str, list[Any]]) -> None:
    assert {flops_of(facts_of(module)[1]) for module in modules["matmul"]} == {2 * 64 * 32 * 48}
    # 8 x 8 x 16 outputs of 3 x 3 x 8 multiply-adds, plus bias and max
    assert {flops_of(facts_of(module)[1]) for module in modules["conv"]} == {8 * 8 * 16 * (2 * 72 + 2)}


def test_a_node_runs_as_often_as_the_loops_above_it_say(modules: dict[str, list[Any]]) -> None:
    for module in (module for drawn in modules.values() for module in drawn):
        table, facts = facts_of(module)
        for row in range(len(table.kind)):
            product, above, init = 1, int(table.parent[row]), False
            while above >= 0:
                product *= int(table.extent[above]) if NODE_KINDS[table.kind[above]].startswith("loop_") else 1
                init = init or NODE_KINDS[table.kind[above]] == "init"
                above = int(table.parent[above])
            if not init and NODE_KINDS[table.kind[row]] != "init":
                assert facts.executions[row] == product


def test_an_init_runs_once_for_each_run_of_the_reduced_axes(suite: dict[str, Workload]) -> None:
    table, facts = facts_of(parse_module(suite["matmul"].module))
    stores = np.flatnonzero(table.kind == NODE_KINDS.index("store"))
    assert facts.executions[stores].tolist() == [64 * 32, 64 * 32 * 48]


def test_traffic_falls_as_the_cache_grows(modules: dict[str, list[Any]]) -> None:
    sizes = 2 ** np.arange(10, 26)
    for module in (module for drawn in modules.values() for module in drawn):
        table, facts = facts_of(module)
        moved = moved_bytes(table, facts, sizes).tolist()
        assert moved == sorted(moved, reverse=True)
        assert moved[-1] == facts.touched[0, 0]


@pytest.mark.parametrize(
    ("cache", "moved"),
    [
        (3_000, 3_000),  # everything fits
        (2_000, 3_000),  # one iteration of the outer loop fits, and finds what the one before it left
        (1_999, 4 * 2_000),  # it does not: each brings in all of its body
        (500, 4 * 2_000),
        (499, 4 * 8 * 500),  # nor does one iteration of the middle loop
    ],
)
def test_traffic_of_a_nest_by_hand(nest: Callable[..., ProgramTable], cache: int, moved: int) -> None:
    """Bytes touched by one execution of each loop of a nest, outermost first: 3000, 2000, 500; by one iteration: 64."""
    table = nest([4, 8, 16], [0])
    touched = np.zeros((len(table.kind), 2), dtype=np.int64)
    touched[:4] = [(3_000, 3_000), (3_000, 2_000), (2_000, 500), (500, 64)]
    found = traffic(table.kind, analyse(table).loop, table.extent, touched, np.array([cache]))
    assert found.tolist() == [moved]


def test_a_condition_that_differs_between_lanes_stops_vectorising(modules: dict[str, list[Any]]) -> None:
    def vectorised(name: str) -> list[bool]:
        found: list[bool] = []
        for module in modules[name]:
            table, facts = facts_of(module)
            found += facts.scalar[table.kind == VECTORIZED].tolist()
        return found

    # dilation asks of every element whether it is one of the input's
    assert any(vectorised("transpose"))
    assert vectorised("matmul")
    assert not any(vectorised("matmul"))


def test_a_buffer_that_is_read_and_written_is_touched_once(suite: dict[str, Workload]) -> None:
    _, facts = facts_of(parse_module(suite["matmul"].module))
    assert facts.touched[0, 0] == 4 * (64 * 48 + 48 * 32 + 64 * 32)
    # the three buffers by what one execution of the outermost loop touches
    assert facts.largest[1].tolist() == [4 * 64 * 48, 4 * 64 * 32, 4 * 48 * 32]


@COMPILES
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_elements_of_a_tiled_matrix_are_exact(
    nest: Callable[..., ProgramTable], rows: int, tile: int, columns: int
) -> None:
    row = ("add", ("mul", ("loop", 0), tile), ("loop", 1))
    facts = analyse(nest([rows, tile, columns], [row, ("loop", 2)], (rows * tile, columns)))
    touched = {(i * tile + j, k) for i in range(rows) for j in range(tile) for k in range(columns)}
    assert facts.elements.tolist() == [len(touched)]
    assert facts.executions[facts.access_row].tolist() == [rows * tile * columns]
    assert facts.access_bytes[0, 1] == -(-len(touched) * 4 // 64) * 64


@COMPILES
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 3))
def test_elements_of_a_sliding_window_are_exact(
    nest: Callable[..., ProgramTable], outputs: int, kernel: int, step: int
) -> None:
    size = (outputs - 1) * step + kernel
    facts = analyse(nest([outputs, kernel], [("add", ("mul", ("loop", 0), step), ("loop", 1))], (size,)))
    touched = {i * step + j for i in range(outputs) for j in range(kernel)}
    # a window that jumps leaves gaps
    assert facts.elements.tolist() == [len(touched)]


def test_strides_lines_and_reuse_by_hand(nest: Callable[..., ProgramTable]) -> None:
    """B[k, j] of a (32, 64) float32 matrix under loops i, j, k from outside: strided by a row, reused over i."""
    table = nest([16, 64, 32], [("loop", 2), ("loop", 1)], (32, 64))
    facts = analyse(table)
    assert facts.strides.tolist() == [[64, 1, 0, 0, 0, 0, 0, 0]]
    # every element of a column is in a line of its own
    assert facts.access_bytes.tolist() == [[32 * 64, 32 * 64 * 4]]
    assert facts.reuse.tolist() == [[16, 32 * 64 * 4, 64 * 32]]
    assert facts.executions[facts.access_row] / facts.elements == 16
    assert facts.touched[1:4].tolist() == [
        [32 * 64 * 4, 32 * 64 * 4],
        [32 * 64 * 4, 32 * 64],
        [32 * 64, 64],
    ]


def test_an_unmoved_access_is_one_line(nest: Callable[..., ProgramTable]) -> None:
    facts = analyse(nest([100], [5], (10,)))
    assert (facts.strides[0, 0], facts.access_bytes[0, 1], facts.elements[0]) == (0, 64, 1)
    assert facts.reuse.tolist() == [[100, 64, 1]]


def runs_along(addresses: list[int]) -> int:
    """Pieces of the first stride, one more wherever another one comes."""
    steps = np.diff(addresses)
    return 1 + int((steps[1:] != steps[0]).sum()) if len(steps) else 1


@COMPILES
@given(st.integers(1, 100), st.integers(1, 9), st.integers(0, 12), st.integers(0, 3))
def test_runs_are_those_of_the_addresses(
    nest: Callable[..., ProgramTable], extent: int, width: int, jump: int, step: int
) -> None:
    quotient, remainder = ("floordiv", ("loop", 1), width), ("floormod", ("loop", 1), width)
    facts = analyse(nest([3, extent], [("add", ("mul", quotient, jump), ("mul", remainder, step))]))
    along = [i // width * jump + i % width * step for i in range(min(extent, RUN_ITERATIONS))]
    assert facts.runs.tolist() == [runs_along(along)]


def test_lanes_of_two_groups_are_not_one_load(nest: Callable[..., ProgramTable]) -> None:
    """Channels of a grouped convolution: 16 lanes, of which each eight read the same element."""
    facts = analyse(nest([16], [("mul", ("floordiv", ("loop", 0), 8), 8)]))
    assert (facts.runs.tolist(), facts.strides[0, 0]) == ([2], 0)
    # over two dimensions that are one run of memory
    whole = [("floordiv", ("loop", 0), 7), ("floormod", ("loop", 0), 7)]
    assert analyse(nest([49], whole, (7, 7))).runs.tolist() == [1]
    assert analyse(nest([49], whole, (9, 9))).runs.tolist() == [7]


@given(st.integers(1, 2**20))
def test_lane_parts_are_powers_of_two_that_add_up(lanes: int) -> None:
    assert lane_parts(lanes) == f"{lanes:b}".count("1")


def of_store(table: ProgramTable) -> tuple[int, int]:
    facts = analyse(table)
    store = int(facts.access_row[0])
    return int(facts.repeated[store]), int(facts.removable[store])


def test_what_is_made_again_is_told_and_what_of_it_a_compiler_does_once(nest: Callable[..., ProgramTable]) -> None:
    # the two inner loops move nothing: straight code stands in both
    assert of_store(nest([3, 4, 8], [("loop", 0)])) == (32, 32)
    # a loop that stays one stands in them
    assert of_store(nest([4, 8, 3], [("loop", 2)])) == (32, 1)
    assert of_store(nest([4, 8, 1], [("loop", 0)])) == (8, 8)
    assert of_store(nest([4, 8], [("add", ("loop", 0), ("loop", 1))])) == (1, 1)
    # unrolled, it is straight code
    table = nest([4, 8, 3], [("loop", 2)])
    unrolled = dataclasses.replace(table, kind=np.where(table.extent == 3, UNROLLED, table.kind).astype(np.int16))
    assert of_store(unrolled) == (32, 32)
    # iterations of a parallel loop are calls of a function
    parallel = dataclasses.replace(table, kind=np.where(table.extent == 4, PARALLEL, table.kind).astype(np.int16))
    assert of_store(parallel) == (8, 1)


def test_a_reduction_does_not_make_the_same_values_again(modules: dict[str, list[Any]]) -> None:
    for module in modules["matmul"]:
        table, facts = facts_of(module)
        sums = [row for row in np.flatnonzero(facts.access >= 0) if NODE_KINDS[table.kind[row]] == "store"]
        assert {int(facts.repeated[row]) for row in sums} == {1}
