"""The view as the stage `graphs` and a tuner make it."""

import numpy as np
import pytest

from kernelcast.errors import ConfigError
from kernelcast.graphs.dataset.unit import Unit, build_unit
from kernelcast.graphs.machine_code.rows import machine_code_rows
from kernelcast.graphs.options import ViewOptions
from kernelcast.tuning.candidates import Reading, read_candidates
from kernelcast.tvm_compat import replayed_schedule, resolve_target, runnable_module

OPTIONS = ViewOptions(views=("machine_code", "features"))


@pytest.fixture(scope="module")
def drawn(suite, candidates):
    return [(suite[name], one) for name in ("matmul", "softmax") for one in candidates[name][:3]]


def unit_of(drawn, target, options=OPTIONS):
    return Unit(
        workloads={workload.key: workload for workload, _ in drawn},
        workload_keys=tuple(workload.key for workload, _ in drawn),
        program_keys=tuple(one.program_key for _, one in drawn),
        traces=tuple(one.trace for _, one in drawn),
        target=target,
        cache_bytes=2**20,
        options=options,
    )


def test_the_stage_and_a_tuner_read_the_same_code(drawn, target):
    built = build_unit(unit_of(drawn, target))
    assert built.kept.tolist() == list(range(len(drawn)))
    assert list(built.views) == ["features", "machine_code"]
    schedules = [replayed_schedule(workload, one.trace) for workload, one in drawn]
    read = read_candidates(schedules, Reading(("machine_code",), OPTIONS, 2**20, target))
    expected = machine_code_rows([runnable_module(one.mod) for one in schedules], target)
    for found in (built.views["machine_code"], read.views["machine_code"]):
        assert found.names == expected.names
        np.testing.assert_array_equal(found.values, expected.values)


def test_a_program_that_is_another_one_today_is_left_out(drawn, target):
    unit = unit_of(drawn, target)
    changed = (unit.program_keys[0], "0" * 16, *unit.program_keys[2:])
    built = build_unit(Unit(**{**vars(unit), "program_keys": changed}))
    assert built.kept.tolist() == [0, 2, 3, 4, 5]
    assert len(built.views["machine_code"]) == 5


def test_another_instruction_set_makes_other_code(drawn):
    views = [
        build_unit(unit_of(drawn[:2], resolve_target({"kind": "llvm", "mcpu": mcpu, "num-cores": 1}))).views
        for mcpu in ("x86-64", "haswell")
    ]
    names = views[0]["machine_code"].names
    plain, avx2 = (view["machine_code"].values[:, names.index("multiply_adds")] for view in views)
    assert (plain == 0).all()
    assert (avx2 > 0).any()


def test_a_gpu_has_no_such_view(drawn):
    cuda = resolve_target({"kind": "cuda", "arch": "sm_80"})
    with pytest.raises(ConfigError, match="reads x86-64 code"):
        build_unit(unit_of(drawn[:1], cuda, ViewOptions(views=("machine_code",))))
