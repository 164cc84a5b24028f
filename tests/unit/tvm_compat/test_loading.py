import json
import platform
import subprocess
import sys

import pytest

from kernelcast.errors import ConfigError
from kernelcast.tvm_compat import TESTED_VERSIONS, check_versions, tvm_versions
from kernelcast.tvm_compat.loading import INTRINSICS_OF_MACHINE

FRESH_PROCESS = """
import json, sys
from kernelcast.tvm_compat import load_tvm
load_tvm()
from tvm.s_tir import TensorIntrin
from tvm.s_tir.meta_schedule import TuneContext
TuneContext(num_threads=1)
names = ["dot_16x4_vnni", "dot_16x4_avx512", "dot_4x4_i8i8s32_neon", "wmma_load_16x16x16_f16_a"]
known = [name for name in names if TensorIntrin.get(name, allow_missing=True) is not None]
loaded = [name for name in sys.modules if name.startswith("tvm.s_tir.tensor_intrin.")]
found = {"known": known, "loaded": loaded, "torch": "torch" in sys.modules}
import inspect
from kernelcast.tvm_compat import load_intrinsics
stack = inspect.stack
load_intrinsics("cuda")
found["stack restored"] = inspect.stack is stack
found["parameters"] = str(TensorIntrin.get("wmma_load_16x16x16_f16_a_shared").impl.params)
import torch
print(json.dumps({**found, "sum_by_torch": float(torch.ones(3).sum())}))
"""


# some of what each kind of processor has
INTRINSICS = {"x86": ["dot_16x4_vnni", "dot_16x4_avx512"], "arm_cpu": ["dot_4x4_i8i8s32_neon"]}


@pytest.fixture(scope="module")
def fresh_process() -> dict:
    run = subprocess.run([sys.executable, "-c", FRESH_PROCESS], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def test_intrinsics_of_this_processor_are_there_and_no_others(fresh_process: dict) -> None:
    # TVM-02: those of other targets take longer to load than a build may take
    kind = INTRINSICS_OF_MACHINE.get(platform.machine().lower())
    assert fresh_process["known"] == INTRINSICS.get(kind, [])
    assert fresh_process["loaded"] == ([f"tvm.s_tir.tensor_intrin.{kind}"] if kind else [])


def test_tvm_does_not_load_torch(fresh_process: dict) -> None:
    assert not fresh_process["torch"]


def test_torch_can_be_imported_after_tvm(fresh_process: dict) -> None:
    # TVM-18: neither is in the way of the other
    assert fresh_process["sum_by_torch"] == 3.0


def test_the_installed_pair_is_the_tested_one() -> None:
    # TVM-04
    check_versions(tvm_versions())


def test_another_pair_is_refused_with_the_command_that_installs_the_right_one() -> None:
    # TVM-04: before TVM is loaded, which would crash
    with pytest.raises(ConfigError, match=r"apache-tvm-ffi 0\.1\.15.*pip install apache-tvm==0\.27"):
        check_versions({**TESTED_VERSIONS, "apache-tvm-ffi": "0.1.15.post1"})


def test_intrinsics_of_a_gpu_load_without_the_source_of_every_frame(fresh_process: dict) -> None:
    # TVM's parser takes the names that a function encloses from the frames around it
    assert fresh_process["parameters"] == "(A, C)"
    assert fresh_process["stack restored"]
