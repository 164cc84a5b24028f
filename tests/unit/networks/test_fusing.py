"""Groups of operators that TVM fuses, and networks where some of them stay apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kernelcast.networks import catalogue
from kernelcast.networks.architectures import make_network
from kernelcast.networks.fusing import FusionGroup, calls_of, fused_module, fusion_groups, kernel_key
from kernelcast.networks.kernels import ANY_TARGET, network_module
from kernelcast.tvm_compat import load_tvm, make_target

EXAMPLE = torch.linspace(-1, 1, 2 * 8 * 8).reshape(1, 2, 8, 8)


class Network(torch.nn.Module):
    """A convolution, the same layer twice, a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(2, 4, 3, stride=2)
        self.first, self.second = torch.nn.Linear(36, 36), torch.nn.Linear(36, 36)
        self.last = torch.nn.Linear(36, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = torch.flatten(torch.relu(self.convolution(values)), 1)
        return self.last(torch.relu(self.second(torch.relu(self.first(hidden)))))


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Network()


@pytest.fixture(scope="module")
def unfused(network: torch.nn.Module) -> Any:
    return network_module("net", network, (EXAMPLE,), {}, fused=False)


@pytest.fixture(scope="module")
def groups(unfused: Any) -> list[FusionGroup]:
    return fusion_groups(unfused)


def names_by_key(module: Any) -> dict[str, str]:
    return {kernel_key(module[variable]): variable.name_hint for variable in calls_of(module["main"])}


def kernels_of(module: Any) -> list[Any]:
    return [module[variable] for variable in calls_of(module["main"])]


def test_groups_are_what_the_fused_network_runs_and_hold_what_the_unfused_one_runs(
    unfused: Any, groups: list[FusionGroup]
) -> None:
    fused, apart = names_by_key(fused_module(unfused)), names_by_key(unfused)
    found = [(fused[group.fused], [apart[key] for key in group.members], group.count) for group in groups]
    assert found == [
        ("fused_conv2d_add_relu", ["conv2d", "add", "relu"], 1),
        ("fused_matmul_add1_relu1", ["matmul", "add1", "relu1"], 2),
        ("fused_matmul1_add2", ["matmul1", "add2"], 1),
    ]


def test_a_view_is_no_kernel_of_a_group() -> None:
    flattened = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Sigmoid())
    module = network_module("net", flattened, (EXAMPLE,), {}, fused=False)
    (group,) = fusion_groups(module)
    assert [names_by_key(module)[key] for key in group.members] == ["tir_sigmoid"]


def test_a_group_that_stays_apart_leaves_the_others_and_the_result_as_they_were(
    network: torch.nn.Module, unfused: Any, groups: list[FusionGroup]
) -> None:
    _, layers, last = groups
    module = fused_module(unfused, apart=[layers.fused])
    kernels = [kernel_key(module[variable]) for variable in calls_of(module["main"])]
    assert kernels.count(layers.fused) == 0
    assert [kernels.count(key) for key in layers.members] == [layers.count] * 3
    assert kernels.count(last.fused) == 1

    tvm = load_tvm()
    machine = tvm.relax.VirtualMachine(tvm.compile(module, target=make_target(ANY_TARGET)), tvm.cpu())
    (output,) = machine["main"](tvm.runtime.tensor(EXAMPLE.numpy()))
    with torch.no_grad():
        np.testing.assert_allclose(output.numpy(), network(EXAMPLE).numpy(), rtol=1e-5, atol=1e-6)


SMALL: dict[str, dict[str, int]] = {
    "resnet18": {"image": 64},
    "mobilenet_v2": {"image": 64},
    "dcgan": {"features": 8},
    "lstm": {"tokens": 2, "hidden": 32, "vocabulary": 100},
    "bert": {"tokens": 16, "layers": 1, "hidden": 64, "heads": 2, "vocabulary": 100},
    "vit": {"image": 64, "layers": 1, "hidden": 48},
}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", sorted(SMALL))
def test_every_network_computes_the_same_with_every_other_group_apart(architecture: str) -> None:
    request = getattr(catalogue, architecture)(architecture, **SMALL[architecture])
    network, example = make_network(**request.arguments)
    unfused = network_module(architecture, network, example, {}, fused=False)
    groups = fusion_groups(unfused)
    run_fused = {kernel_key(function) for function in kernels_of(fused_module(unfused))}
    run_apart = {kernel_key(function) for function in kernels_of(unfused)}
    assert groups
    assert {group.fused for group in groups} <= run_fused
    assert {key for group in groups for key in group.members} <= run_apart
    apart = {group.fused for group in groups[::2]}
    module = fused_module(unfused, apart)
    assert not apart & {kernel_key(function) for function in kernels_of(module)}
    tvm = load_tvm()
    machine = tvm.relax.VirtualMachine(tvm.compile(module, target=make_target(ANY_TARGET)), tvm.cpu())
    output = machine["main"](*[tvm.runtime.tensor(value.numpy()) for value in example])
    with torch.no_grad():
        np.testing.assert_allclose(output[0].numpy(), network(*example).numpy(), rtol=1e-4, atol=1e-4)
