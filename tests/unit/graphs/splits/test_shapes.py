"""What makes two workloads the same one."""

import json
from pathlib import Path

import numpy as np
import pytest

from kernelcast.graphs.programs import Programs
from kernelcast.graphs.splits import Rows
from kernelcast.graphs.splits.shapes import anchor_key, shape_numbers
from kernelcast.measurement import workloads
from kernelcast.networks import own
from kernelcast.networks.extract import workloads_of
from kernelcast.records import Workload
from kernelcast.tvm_compat import parse_module, structural_key

SIZES = {"height": 8, "width": 8, "channels": 8, "filters": 16, "kernel": 3}


@pytest.fixture(scope="module")
def convolution() -> Workload:
    return workloads.conv2d("conv", **SIZES, padding=1)


def test_a_computation_with_something_fused_to_it_is_the_same(convolution: Workload) -> None:
    fused = workloads.conv2d_bias_relu("fused", **SIZES, padding=1)
    assert fused.key != convolution.key
    assert anchor_key(fused.module) == anchor_key(convolution.module)
    assert len(anchor_key(fused.module)) == 16


@pytest.mark.parametrize("change", [{"stride": 2}, {"filters": 8}, {"layout": "NCHW"}, {"dtype": "float16"}])
def test_other_sizes_strides_layouts_and_types_are_others(convolution: Workload, change: dict) -> None:
    other = workloads.conv2d("other", **{**SIZES, "padding": 1, **change})
    assert anchor_key(other.module) != anchor_key(convolution.module)


@pytest.mark.parametrize("module", ["", "{}", "no JSON", "[]"])
def test_what_this_tvm_cannot_read_has_no_anchor(module: str) -> None:
    assert anchor_key(module) == ""


def test_without_a_reduction_the_whole_program_counts() -> None:
    relu, tanh = (anchor_key(workloads.elementwise("e", [4, 8], [chain]).module) for chain in ("relu", "tanh"))
    assert relu != tanh


def test_any_equal_identity_makes_one_shape_also_by_way_of_a_third() -> None:
    described = [
        ("1", "conv2d", {"size": 1}, "x"),
        ("2", "conv2d", {"size": 2}, "y"),
        ("3", "fused", {"size": 3}, "x"),  # anchor of the first
        ("4", "fused", {"size": 3}, ""),  # arguments of the third
        ("2", "own", {}, ""),  # key of the second
        ("5", "own", {}, ""),  # nothing is known of its arguments: no identity
        ("6", "matmul", {"size": 1}, ""),  # arguments of the first, of another kind
    ]
    numbers = shape_numbers(described).tolist()
    assert numbers[0] == numbers[2] == numbers[3]
    assert numbers[1] == numbers[4]
    assert len(set(numbers)) == 4
    assert shape_numbers([]).tolist() == []


def test_rows_come_from_programs_and_the_workloads_of_the_measurements(convolution: Workload) -> None:
    named = Workload(convolution.key[::-1], "twin", "fused_conv2d", {}, convolution.module, {"resnet18": 3})
    targets = tuple(json.dumps({"kind": "llvm", "num-cores": cores}) for cores in (1, 2))
    programs = Programs.in_memory(
        {},
        log_seconds=np.zeros(3),
        workload=np.array([0, 1, 1], dtype=np.int32),
        workload_names=("conv", "twin"),
        target=np.array([0, 0, 1], dtype=np.int16),
        targets=targets,
        program_key=np.array(["a", "b", "b"]),
        feature_version="",
    )
    rows = Rows.of(programs, [convolution, named])
    assert len(rows) == 3
    assert rows.targets[1] == {"kind": "llvm", "num-cores": 2}
    assert rows.shape.tolist() == [0, 0, 0]
    assert rows.networks() == ["resnet18"]
    assert rows.kinds() == ["conv2d", "fused_conv2d"]


def test_a_kernel_of_a_network_has_the_anchor_of_the_operator_of_the_catalogue(tmp_path: Path) -> None:
    source = tmp_path / "network.py"
    source.write_text(
        "import torch\n\nclass Product(torch.nn.Module):\n    def forward(self, a, b):\n        return (a @ b).relu()\n"
        "\n\ndef example():\n    return torch.randn(16, 32), torch.randn(32, 8)\n"
    )
    kernels = {
        workload.kind: workload
        for fused in (True, False)
        for workload in workloads_of(own.own_network("net", str(source), "Product", "example", fused=fused))[0]
    }
    matmul = workloads.matmul("matmul", rows=16, columns=8, depth=32)
    relu = workloads.elementwise("relu", [16, 8], ["relu"])
    # other modules: the network's extents are of 64 bits
    assert len({kernels["fused_matmul_relu"].key, kernels["matmul"].key, matmul.key}) == 3
    assert anchor_key(kernels["fused_matmul_relu"].module) == anchor_key(matmul.module)
    assert anchor_key(kernels["matmul"].module) == anchor_key(matmul.module)
    assert anchor_key(kernels["relu"].module) == anchor_key(relu.module) != anchor_key(matmul.module)
    # the workloads themselves remain what they were
    for workload in (kernels["matmul"], matmul):
        assert structural_key(parse_module(workload.module)) == workload.key
