"""CUDA as far as a machine without a GPU goes: programs are sampled and generated, and what is missing is said."""

from pathlib import Path

import pytest

from kernelcast.errors import ConfigError
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.workloads import matmul, softmax
from kernelcast.records import Workload
from kernelcast.tvm_compat import (
    GpuDescription,
    check_runs_here,
    describe_gpu,
    device_of,
    make_target,
    resolve_target,
    runnable_module,
    scheduled_module,
)
from kernelcast.tvm_compat.cuda import COMPILE_MODE, choose_compiler, cuda_source, runs_on

HOPPER = {"kind": "cuda", "arch": "sm_90"}


@pytest.mark.parametrize(
    "workload", [matmul("matmul", 32, 32, 32), softmax("softmax", 16, 32)], ids=lambda each: each.name
)
def test_programs_for_a_gpu_are_sampled_and_generated_without_one(workload: Workload) -> None:
    target = resolve_target(HOPPER)
    candidates = sample_candidates(workload, target, 3, seed=0)
    assert len(candidates) == 3
    for candidate in candidates:
        module = runnable_module(scheduled_module(workload, candidate.trace))
        source = cuda_source(module, make_target(target))
        assert "__global__ void" in source
        assert "threadIdx.x" in source


def test_a_gpu_that_is_named_needs_not_be_here() -> None:
    target = resolve_target({**HOPPER, "max_threads_per_block": 512})
    assert target["max_threads_per_block"] == 512
    assert target["max_shared_memory_per_block"] == 49152
    assert str(device_of(target)) == "cuda:0"


def test_without_its_gpu_a_target_is_refused_and_building_is_checked() -> None:
    if isinstance(describe_gpu(), GpuDescription):
        # every GPU refuses the machine code of another generation
        target = resolve_target({"kind": "cuda", "arch": "sm_75" if describe_gpu().arch != "sm_75" else "sm_90"})
    else:
        target = resolve_target(HOPPER)
        with pytest.raises(ConfigError, match=r"no GPU that TVM can use.*Building was checked: a kernel for sm_80"):
            resolve_target({"kind": "cuda"})
    with pytest.raises(ConfigError, match=f"Building was checked: a kernel for {target['arch']} was generated"):
        check_runs_here(target)


def test_the_compiler_is_chosen_by_what_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(COMPILE_MODE, "nvcc")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert choose_compiler() is None
    compiler = tmp_path / "nvcc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    assert choose_compiler() == "nvcc"
    monkeypatch.delenv(COMPILE_MODE)
    assert choose_compiler() in ("nvcc", "nvrtc")


@pytest.mark.parametrize(
    ("arch", "gpu", "runs"),
    [
        ("sm_90", "sm_90", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_90a", "sm_90", True),
        ("sm_100", "sm_103", True),
        ("sm_100a", "sm_103", False),
        ("compute", "sm_90", False),
    ],
)
def test_machine_code_runs_on_its_own_generation(arch: str, gpu: str, runs: bool) -> None:
    assert runs_on(arch, gpu) == runs
