import importlib
import json

import pytest

from kernelcast.graphs.analysis import LoopFacts, ProgramFacts, analyse
from kernelcast.graphs.reader import parse_program
from kernelcast.graphs.tensorir import Loop, Program
from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, module_json, scheduled_module


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
    load_tvm()
    remove_rewrite = importlib.import_module("tvm.s_tir.transform").RemoveWeightLayoutRewriteBlock
    for candidate in candidates[name][:4]:
        module = remove_rewrite(skip_tensor_rewrite=True)(scheduled_module(suite[name], candidate.trace))
        facts = analyse(parse_program(module_json(module)))
        kept = [
            loop.loop.extent
            for loop in facts.loops.values()
            if not loop.unrolled and loop.loop.extent > 1 and (loop.scalar or loop.loop.kind != "loop_vectorized")
        ]
        assert sorted(kept) == lowered_loop_extents(module, target)


def test_work_of_schedules_is_that_of_the_workload(modules: dict[str, list[str]]) -> None:
    assert {analyse(parse_program(module)).flops for module in modules["matmul"]} == {2 * 64 * 32 * 48}
    # 8 x 8 x 16 outputs of 3 x 3 x 8 multiply-adds, plus bias and max
    assert {analyse(parse_program(module)).flops for module in modules["conv"]} == {8 * 8 * 16 * (2 * 72 + 2)}


def test_traffic_falls_as_the_cache_grows(modules: dict[str, list[str]]) -> None:
    for drawn in modules.values():
        for module in drawn:
            facts = analyse(parse_program(module))
            traffic = [facts.moved_bytes(2**power) for power in range(10, 26)]
            assert traffic == sorted(traffic, reverse=True)
            assert traffic[-1] == facts.touched_bytes


def nest(extents: list[int], bytes_by_level: list[int]) -> ProgramFacts:
    """A perfect nest; bytes touched by one execution of each loop, outermost first, then by one innermost iteration."""
    facts = ProgramFacts(Program((), ()))
    parents: tuple[LoopFacts, ...] = ()
    for extent, touched, body in zip(extents, bytes_by_level, bytes_by_level[1:], strict=False):
        loop = LoopFacts(Loop(0, extent, "loop_serial", None, ()), 1, 0, 1, parents)
        loop.touched_bytes, loop.body_bytes = touched, body
        (parents[-1].children if parents else facts.roots).append(loop)
        parents = (*parents, loop)
    facts.touched_bytes = bytes_by_level[0]
    return facts


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
def test_traffic_of_a_nest_by_hand(cache: int, moved: int) -> None:
    assert nest([4, 8, 16], [3_000, 2_000, 500, 64]).moved_bytes(cache) == moved


def test_a_condition_that_differs_between_lanes_stops_vectorising(modules: dict[str, list[str]]) -> None:
    vectorised = {
        name: [
            loop
            for module in drawn
            for loop in analyse(parse_program(module)).loops.values()
            if loop.loop.kind == "loop_vectorized"
        ]
        for name, drawn in modules.items()
    }
    # dilation asks of every element whether it is one of the input's
    assert any(loop.scalar for loop in vectorised["transpose"])
    assert vectorised["matmul"]
    assert not any(loop.scalar for loop in vectorised["matmul"])


def test_a_buffer_that_is_read_and_written_is_touched_once(suite: dict[str, Workload]) -> None:
    facts = analyse(parse_program(suite["matmul"].module))
    assert facts.touched_bytes == 4 * (64 * 48 + 48 * 32 + 64 * 32)
