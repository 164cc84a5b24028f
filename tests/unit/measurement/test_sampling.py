from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.errors import MeasurementError
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.workloads import elementwise, matmul, reduction
from kernelcast.records import Origin, Workload
from kernelcast.tvm_compat import (
    load_tvm,
    module_json,
    parse_module,
    scheduled_module,
    structural_key,
)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**40), count=st.integers(1, 40))
def test_programs_are_distinct_repeatable_and_begin_alike(seed: int, count: int) -> None:
    workload = matmul("m", 16, 16, 16)
    target = {"kind": "llvm", "num-cores": 1}
    candidates = sample_candidates(workload, target, count, seed)
    assert len({candidate.program_key for candidate in candidates}) == count
    assert sample_candidates(workload, target, count + 5, seed)[:count] == candidates


def test_another_seed_gives_other_programs(small_matmul: Workload, target: dict[str, Any]) -> None:
    one = sample_candidates(small_matmul, target, 8, seed=1)
    other = sample_candidates(small_matmul, target, 8, seed=2)
    assert {each.program_key for each in one} != {each.program_key for each in other}


def test_every_trace_makes_its_program(target: dict[str, Any]) -> None:
    from kernelcast.measurement.workloads import conv2d_bias_relu

    # its schedules rewrite layouts and have postprocessing: all that must be in the trace
    workload = conv2d_bias_relu("c", 8, 8, 8, 16, 3, 1, 1)
    for candidate in sample_candidates(workload, target, 6, seed=0):
        assert structural_key(scheduled_module(workload, candidate.trace)) == candidate.program_key


def test_a_space_with_fewer_programs_is_taken_whole(faulty: Any, target: dict[str, Any]) -> None:
    workload = faulty.large("copy", 1)
    candidates = sample_candidates(workload, target, 50, seed=0)
    assert 1 <= len(candidates) < 50
    assert candidates == sample_candidates(workload, target, 60, seed=0)


def test_a_space_that_yields_next_to_nothing_is_left(target: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    workload = reduction("sum", shape=[2, 4], axes=[1])
    with caplog.at_level("INFO"):
        few = sample_candidates(workload, target, 100_000, seed=0)
    assert 1 < len(few) < 1000
    assert f"workload {workload.name}: only {len(few)} of 100000 programs" in caplog.text


def test_a_kernel_with_one_schedule_is_nothing_to_talk_about(
    target: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    workload = elementwise("chain", shape=[128, 3072], chain=["multiply", "add"])
    with caplog.at_level("INFO"):
        assert len(sample_candidates(workload, target, 8, seed=0)) == 1
    assert not caplog.text


def test_what_tvm_cannot_schedule_is_named_with_its_reason(small_matmul: Workload) -> None:
    # what `resolve_target` fills in: without it MetaSchedule's rule for parallel loops fails
    with pytest.raises(MeasurementError, match=r"workload matmul_small: TVM cannot schedule it for .*num-cores"):
        sample_candidates(small_matmul, {"kind": "llvm"}, 4, seed=0)


def test_a_workload_without_one_valid_schedule_is_named(target: dict[str, Any]) -> None:
    tvm = load_tvm()
    function = parse_module(matmul("m", 16, 16, 16).module)["main"].without_attr("global_symbol")
    # MetaSchedule takes a module with one function
    two = replace(matmul("two", 16, 16, 16), module=module_json(tvm.IRModule({"one": function, "two": function})))
    with pytest.raises(MeasurementError, match="workload two: "):
        sample_candidates(two, target, 4, seed=0)


def test_nothing_asked_for_is_nothing_drawn(small_matmul: Workload, target: dict[str, Any]) -> None:
    assert sample_candidates(small_matmul, target, 0, seed=0) == []
    assert {each.origin for each in sample_candidates(small_matmul, target, 3, seed=0)} == {Origin.RANDOM}
