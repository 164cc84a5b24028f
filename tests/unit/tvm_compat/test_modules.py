import math

import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.workloads import (
    batch_matmul,
    conv2d,
    conv2d_bias_relu,
    dense,
    global_pool2d,
    matmul,
    softmax,
)
from kernelcast.records import Workload
from kernelcast.tvm_compat import (
    is_scheduled,
    layout_changes,
    module_json,
    parse_module,
    resolve_target,
    runnable_module,
    scheduled_module,
    structural_key,
)


def test_a_trace_makes_the_program_that_was_sampled_and_no_other() -> None:
    workload = matmul("matmul", 16, 16, 16)
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    candidates = sample_candidates(workload, target, 4, seed=0)
    keys = [structural_key(scheduled_module(workload, candidate.trace)) for candidate in candidates]
    assert keys == [candidate.program_key for candidate in candidates]
    assert structural_key(parse_module(workload.module)) == workload.key


def test_what_rewrites_the_weights_is_no_part_of_what_runs() -> None:
    workload = conv2d("conv2d", 8, 8, 8, 16, 3, 1, 1)
    rewrites = "meta_schedule.layout_rewrite_preproc"
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    modules = [scheduled_module(workload, each.trace) for each in sample_candidates(workload, target, 8, seed=0)]
    rewriting = [module for module in modules if rewrites in module.script()]
    assert rewriting
    for module in rewriting:
        runs = runnable_module(module)
        # its block is empty
        assert f'"{rewrites}": True}})\n' in runs.script()
        assert runs.script().partition(rewrites)[2].split("\n")[1].strip() == "T.evaluate(0)"
        shape = [int(extent) for extent in runs["main"].params[1].shape]
        assert math.prod(shape) == 3 * 3 * 8 * 16
        assert shape != [3, 3, 8, 16]
        # and what it did is a program of its own
        ((position, change),) = layout_changes(module).items()
        assert position == 1
        before, after = change["main"].params
        assert before.same_as(module["main"].params[1])
        assert after.same_as(runs["main"].params[1])


@pytest.mark.parametrize(
    "workload",
    [
        matmul("matmul", 32, 64, 16),
        dense("dense", 8, 16, 16),
        batch_matmul("batch_matmul", 2, 16, 16, 16),
        conv2d_bias_relu("conv2d_bias_relu", 8, 8, 8, 16, 3, 1, 1),
        softmax("softmax", 16, 16),
    ],
    ids=lambda workload: workload.name,
)
def test_layouts_are_changed_of_just_the_arguments_that_what_runs_takes_anew(workload: Workload) -> None:
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    for candidate in sample_candidates(workload, target, 6, seed=0):
        module = scheduled_module(workload, candidate.trace)
        pairs = enumerate(zip(module["main"].params, runnable_module(module)["main"].params, strict=True))
        anew = {position: taken for position, (given, taken) in pairs if not taken.same_as(given)}
        changes = layout_changes(module)
        assert set(changes) == set(anew)
        assert all(changes[position]["main"].params[1].same_as(taken) for position, taken in anew.items())


@pytest.mark.parametrize("trace", ["", "{}", '[[["NoSuchInstruction",[],[],[]]],[]]'])
def test_what_is_no_trace_of_the_workload_is_refused(trace: str) -> None:
    with pytest.raises(MalformedDataError, match="workload matmul"):
        scheduled_module(matmul("matmul", 16, 16, 16), trace)


@pytest.mark.parametrize("text", ["", "{", '{"root_index": 0}', "3"])
def test_what_is_no_module_is_refused(text: str) -> None:
    with pytest.raises(MalformedDataError, match="not a TVM module"):
        parse_module(text)


def test_programs_are_told_from_workloads() -> None:
    suite = [
        matmul("matmul", 16, 16, 16),
        softmax("softmax", 16, 16),
        conv2d_bias_relu("conv2d", height=8, width=8, channels=4, filters=4, kernel=3, padding=1),
        global_pool2d("pool", height=4, width=4, channels=8),
    ]
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    assert not any(is_scheduled(workload.module) for workload in suite)
    for workload in suite:
        for candidate in sample_candidates(workload, target, 3, seed=0):
            assert is_scheduled(module_json(scheduled_module(workload, candidate.trace)))
