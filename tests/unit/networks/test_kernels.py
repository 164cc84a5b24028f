"""Kernels of a real network: what they compute together, how often they run, and that they can be measured."""

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from kernelcast.errors import ConfigError
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.networks import catalogue
from kernelcast.networks.architectures import ARCHITECTURES, make_network
from kernelcast.networks.kernels import ANY_TARGET, network_module, network_workloads
from kernelcast.networks.requests import Request
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, parse_module, structural_key

SMALL: dict[str, dict[str, int]] = {
    "resnet18": {"image": 64},
    "mobilenet_v2": {"image": 64},
    "dqn": {},
    "dcgan": {"features": 8},
    "lstm": {"tokens": 2, "hidden": 32, "vocabulary": 100},
    "bert": {"tokens": 16, "layers": 1, "hidden": 64, "heads": 2, "vocabulary": 100},
    "vit": {"image": 64, "layers": 1, "hidden": 48},
}
"""Sizes at which a network is still itself, and quick."""


def relax_module(request: Request) -> tuple[Any, Any, tuple[Any, ...]]:
    network, example = make_network(**request.arguments)
    return network_module(request.name, network, example, {}, request.fused), network, example


@lru_cache(maxsize=4)
def extracted(architecture: str, fused: bool) -> tuple[list[Workload], Any]:
    request = getattr(catalogue, architecture)(architecture, fused=fused, **SMALL[architecture])
    module, _, _ = relax_module(request)
    workloads, left_out = network_workloads(request, module)
    assert left_out == []
    return workloads, module


def calls(module: Any) -> int:
    text = module["main"].script()
    return text.count("R.call_tir(")


def test_a_user_is_not_told_what_torch_thinks_of_its_own_classes(recwarn: pytest.WarningsRecorder) -> None:
    network_module("linear", torch.nn.Linear(4, 4), (torch.ones(2, 4),), {}, fused=True)
    assert [str(warning.message) for warning in recwarn if warning.category is FutureWarning] == []


def test_fused_kernels_do_the_work_of_several_operators() -> None:
    fused, fused_module = extracted("dqn", fused=True)
    unfused, unfused_module = extracted("dqn", fused=False)
    assert [workload.kind for workload in fused] == [
        *["fused_conv2d_add_relu"] * 3,
        "reshape",
        "fused_matmul_add_relu",
        "fused_matmul_add",
    ]
    assert {workload.kind for workload in unfused} == {"conv2d", "add", "relu", "reshape", "matmul"}
    for workloads, module, label in ((fused, fused_module, "dqn"), (unfused, unfused_module, "dqn/unfused")):
        assert sum(workload.networks[label] for workload in workloads) == calls(module)
    assert fused[0].name == "dqn.fused_conv2d_add_relu_1"
    assert fused[0].arguments["parameters"][0] == "float32[1, 4, 84, 84]"


def test_equal_kernels_are_one_workload_that_runs_more_often() -> None:
    workloads, module = extracted("lstm", fused=True)
    assert len({workload.key for workload in workloads}) == len({w.name for w in workloads}) == len(workloads)
    assert sum(workload.networks["lstm"] for workload in workloads) == calls(module) > len(workloads)


def test_keys_are_those_of_the_modules() -> None:
    for workload in extracted("dqn", fused=True)[0]:
        assert structural_key(parse_module(workload.module)) == workload.key


@pytest.mark.parametrize("fused", [True, False])
def test_batch_normalisation_is_fused_into_the_convolution(fused: bool) -> None:
    kinds = [workload.kind for workload in extracted("dcgan", fused)[0]]
    assert ("fused_conv2d_transpose_subtract_divide_multiply_add_relu" in kinds) == fused
    assert ("relu" in kinds) != fused


def check_output(architecture: str, fused: bool) -> None:
    request = getattr(catalogue, architecture)(architecture, fused=fused, **SMALL[architecture])
    module, network, example = relax_module(request)
    with torch.no_grad():
        expected = network(*example).numpy()
    tvm = load_tvm()
    machine = tvm.relax.VirtualMachine(tvm.compile(module, target=make_target(ANY_TARGET)), tvm.cpu())
    output = machine["main"](*[tvm.runtime.tensor(value.numpy()) for value in example])
    np.testing.assert_allclose(output[0].numpy(), expected, rtol=1e-4, atol=1e-4)


def test_the_kernels_compute_what_torch_computes() -> None:
    check_output("dqn", fused=True)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_network_computes_what_torch_computes(architecture: str, fused: bool) -> None:
    check_output(architecture, fused)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_kernel_can_be_scheduled(architecture: str, fused: bool) -> None:
    for workload in extracted(architecture, fused)[0]:
        assert sample_candidates(workload, ANY_TARGET, count=1, seed=0), workload.name


def refused(network: torch.nn.Module, *example: torch.Tensor) -> str:
    with pytest.raises(ConfigError) as error:
        network_module("net", network, example, {}, fused=True)
    message = str(error.value)
    assert message.startswith("workload.net: ")
    assert "\n" not in message
    return message


def test_an_operator_that_tvm_does_not_have_is_named() -> None:
    class Unknown(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(values)

    assert "TVM's importer has no operator special_bessel_j0" in refused(Unknown(), torch.eye(3))


def test_a_network_that_torch_cannot_export() -> None:
    class Branching(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values if values.sum() > 0 else -values

    said = refused(Branching(), torch.ones(3))
    assert "torch cannot export this network with this example: its course depends on the values in a tensor" in said
    assert re.search(r"test_kernels\.py:\d+: return values if values\.sum\(\) > 0 else -values; try", said)


def test_dynamic_shapes_are_refused() -> None:
    class Growing(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return torch.nonzero(values) + 1

    assert "the network has dynamic shapes (u0)" in refused(Growing(), torch.ones(3))


def test_an_example_of_the_wrong_size() -> None:
    said = refused(torch.nn.Linear(3, 4), torch.ones(5))
    assert "torch cannot export this network with this example: a and b must have same reduction dim" in said
    assert ", at " not in said, "no line of the network's own"
