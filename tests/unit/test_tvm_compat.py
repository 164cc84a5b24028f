import json
import math
import platform
import subprocess
import sys
from typing import Any

import pytest

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.workloads import conv2d, matmul
from kernelcast.tvm_compat import (
    TESTED_VERSIONS,
    available_cores,
    check_runs_here,
    check_versions,
    parse_module,
    resolve_target,
    runnable_module,
    scheduled_module,
    structural_key,
    tvm_versions,
    vector_bits,
)

FRESH_PROCESS = """
import json, sys
from kernelcast.tvm_compat import load_tvm
load_tvm()
from tvm.s_tir import TensorIntrin
from tvm.s_tir.meta_schedule import TuneContext
TuneContext(num_threads=1)
names = ["dot_16x4_vnni", "dot_16x4_avx512", "wmma_load_16x16x16_f16_a"]
known = [name for name in names if TensorIntrin.get(name, allow_missing=True) is not None]
loaded = [name for name in sys.modules if name.startswith("tvm.s_tir.tensor_intrin.")]
found = {"known": known, "loaded": loaded, "torch": "torch" in sys.modules}
import torch
print(json.dumps({**found, "sum_by_torch": float(torch.ones(3).sum())}))
"""


@pytest.fixture(scope="module")
def fresh_process() -> dict:
    run = subprocess.run([sys.executable, "-c", FRESH_PROCESS], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names the intrinsics of x86 processors")
def test_intrinsics_of_this_processor_are_there_and_no_others(fresh_process: dict) -> None:
    assert fresh_process["known"] == ["dot_16x4_vnni", "dot_16x4_avx512"]
    assert fresh_process["loaded"] == ["tvm.s_tir.tensor_intrin.x86"]


def test_tvm_does_not_load_torch(fresh_process: dict) -> None:
    assert not fresh_process["torch"]


def test_torch_can_be_imported_after_tvm(fresh_process: dict) -> None:
    assert fresh_process["sum_by_torch"] == 3.0


def test_the_installed_pair_is_the_tested_one() -> None:
    check_versions(tvm_versions())


def test_another_pair_is_refused_with_the_command_that_installs_the_right_one() -> None:
    with pytest.raises(ConfigError, match=r"apache-tvm-ffi 0\.1\.15.*pip install apache-tvm==0\.27"):
        check_versions({**TESTED_VERSIONS, "apache-tvm-ffi": "0.1.15.post1"})


def test_missing_parts_of_a_target_are_filled_in() -> None:
    target = resolve_target({"kind": "llvm", "mcpu": None, "num-cores": None})
    assert target["num-cores"] == available_cores()
    assert target["mcpu"]
    assert resolve_target({"kind": "llvm"}) == target
    assert vector_bits(target) >= 128


def test_given_parts_of_a_target_are_kept() -> None:
    target = resolve_target({"kind": "llvm", "num-cores": 3, "mcpu": "x86-64", "mtriple": "x86_64-linux-gnu"})
    assert target == {"kind": "llvm", "num-cores": 3, "mcpu": "x86-64", "mtriple": "x86_64-linux-gnu"}


@pytest.mark.parametrize("form", ["llvm -num-cores=4", {"kind": "llvm -num-cores=4"}])
def test_the_one_line_form_is_refused_with_the_dict_to_write(form: object) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_target(form)
    assert '{"kind": "llvm", "num-cores": 4}' in str(refused.value)


@pytest.mark.parametrize("cores", [0, -1, 2.5, "four", True])
def test_a_number_of_cores_that_is_none_is_refused(cores: object) -> None:
    with pytest.raises(ConfigError, match="num-cores must be a positive integer"):
        resolve_target({"kind": "llvm", "num-cores": cores})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"kind": "llvm", "mcpu": "no-such-processor"}, "no-such-processor"),
        ({"kind": "no-such-kind"}, "no-such-kind"),
        ({"kind": "llvm", "no-such-key": 1}, "no-such-key"),
        ({}, "kind"),
        (None, "kind"),
    ],
)
def test_a_target_that_tvm_would_refuse_late_is_refused_now(config: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        resolve_target(config)


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


@pytest.mark.parametrize("trace", ["", "{}", '[[["NoSuchInstruction",[],[],[]]],[]]'])
def test_what_is_no_trace_of_the_workload_is_refused(trace: str) -> None:
    with pytest.raises(MalformedDataError, match="workload matmul"):
        scheduled_module(matmul("matmul", 16, 16, 16), trace)


@pytest.mark.parametrize("text", ["", "{", '{"root_index": 0}', "3"])
def test_what_is_no_module_is_refused(text: str) -> None:
    with pytest.raises(MalformedDataError, match="not a TVM module"):
        parse_module(text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "cuda"}, "target.kind.*llvm"),
        ({"mtriple": "riscv32-unknown-elf"}, "target.mtriple.*riscv32"),
        ({"num-cores": available_cores() + 1}, "target.num-cores"),
    ],
)
def test_a_target_that_cannot_be_timed_here_is_refused_by_its_key(change: dict[str, Any], says: str) -> None:
    target = {"kind": "llvm", "num-cores": 1}
    check_runs_here(target)
    with pytest.raises(ConfigError, match=says):
        check_runs_here({**target, **change})


def test_a_processor_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"target\.mcpu"):
        resolve_target({"kind": "llvm", "mcpu": 7})
