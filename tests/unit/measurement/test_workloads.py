from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hydra.utils import instantiate

from kernelcast.errors import ConfigError
from kernelcast.measurement import workloads
from kernelcast.measurement.workloads import (
    batch_matmul,
    conv2d,
    conv2d_bias_relu,
    conv2d_transpose,
    depthwise_conv2d,
    layer_norm,
    matmul,
    softmax,
)
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, parse_module

OPERATORS = set(workloads.__all__) - {"MOST_ELEMENTS", "from_module", "sweep"}


def run(workload: Workload, *inputs: np.ndarray) -> np.ndarray:
    """The result of the unscheduled program."""
    tvm = load_tvm()
    module = parse_module(workload.module)
    shape = [int(extent) for extent in module["main"].params[-1].shape]
    result = tvm.runtime.tensor(np.zeros(shape, "float32"))
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    tvm.compile(module, target=target)["main"](*(tvm.runtime.tensor(each) for each in inputs), result)
    return result.numpy()


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype("float32")


def convolve(image: np.ndarray, weight: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """NHWC convolution as it stands in the books."""
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    kernel = weight.shape[0]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))[:, ::stride, ::stride]
    return np.einsum("nyxcij,ijcf->nyxf", windows, weight)


def test_matmul() -> None:
    left, right = numbers(4, 6), numbers(6, 5)
    np.testing.assert_allclose(run(matmul("m", 4, 5, 6), left, right), left @ right, rtol=1e-5)


def test_batch_matmul() -> None:
    left, right = numbers(3, 4, 6), numbers(3, 6, 5)
    np.testing.assert_allclose(run(batch_matmul("b", 3, 4, 5, 6), left, right), left @ right, rtol=1e-4, atol=1e-6)


def test_conv2d() -> None:
    image, weight = numbers(1, 7, 6, 3), numbers(3, 3, 3, 4)
    expected = convolve(image, weight, stride=2, padding=1)
    np.testing.assert_allclose(run(conv2d("c", 7, 6, 3, 4, 3, 2, 1), image, weight), expected, rtol=1e-4, atol=1e-5)


def test_conv2d_bias_relu() -> None:
    image, weight, bias = numbers(1, 5, 5, 2), numbers(3, 3, 2, 4), numbers(4)
    expected = np.maximum(convolve(image, weight, stride=1, padding=1) + bias, 0)
    result = run(conv2d_bias_relu("c", 5, 5, 2, 4, 3, 1, 1), image, weight, bias)
    assert (result == 0).any()
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_depthwise_conv2d() -> None:
    image, weight = numbers(1, 5, 6, 3), numbers(3, 3, 3, 1)
    # channel by channel, as a convolution of one channel
    expected = np.concatenate(
        [convolve(image[..., c : c + 1], weight[:, :, c : c + 1], stride=1, padding=1) for c in range(3)], axis=-1
    )
    result = run(depthwise_conv2d("d", 5, 6, 3, 3, padding=1), image, weight)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_conv2d_transpose() -> None:
    image, weight = numbers(1, 2, 3, 3), numbers(2, 4, 4, 4)
    full = np.zeros((1, 4, 8, 8), "float32")
    for y in range(3):
        for x in range(3):
            full[:, :, 2 * y : 2 * y + 4, 2 * x : 2 * x + 4] += np.einsum("nc,cfij->nfij", image[:, :, y, x], weight)
    result = run(conv2d_transpose("t", 3, 3, 2, 4, 4, stride=2, padding=1), image, weight)
    np.testing.assert_allclose(result, full[:, :, 1:-1, 1:-1], rtol=1e-4, atol=1e-5)


def test_softmax() -> None:
    values = numbers(3, 7)
    expected = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run(softmax("s", 3, 7), values), expected, rtol=1e-5)


def test_layer_norm() -> None:
    values, scale, shift = numbers(3, 8), numbers(8), numbers(8)
    normal = (values - values.mean(axis=1, keepdims=True)) / np.sqrt(values.var(axis=1, keepdims=True) + 1e-5)
    result = run(layer_norm("l", 3, 8), values, scale, shift)
    np.testing.assert_allclose(result, normal * scale + shift, rtol=1e-4, atol=1e-5)


def test_equal_computations_have_equal_keys_and_others_have_not() -> None:
    assert matmul("one", 4, 5, 6).key == matmul("other", 4, 5, 6).key
    keys = {matmul("m", *sizes).key for sizes in [(4, 5, 6), (5, 4, 6), (6, 5, 4)]}
    assert len(keys) == 3


def test_a_workload_knows_its_kind_and_sizes() -> None:
    workload = softmax("rows", rows=3, columns=7)
    assert (workload.name, workload.kind, workload.arguments) == ("rows", "softmax", {"rows": 3, "columns": 7})


@pytest.mark.parametrize("bad", [0, -1, 2.0, "3", None, True])
def test_a_size_that_is_none_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(ConfigError, match="workload m: depth must be a positive integer"):
        matmul("m", 4, 4, bad)


@pytest.mark.parametrize(
    ("kind", "sizes", "says"),
    [
        ("conv2d", {"height": 2, "width": 9, "channels": 1, "filters": 1, "kernel": 3}, "larger than the padded image"),
        ("conv2d", {"height": 9, "width": 9, "channels": 1, "filters": 1, "kernel": 3, "padding": -1}, "padding must"),
        (
            "conv2d_transpose",
            {"height": 4, "width": 4, "channels": 1, "filters": 1, "kernel": 3, "padding": 3},
            "padding .3. must be smaller",
        ),
    ],
)
def test_an_image_that_cannot_be_convolved_is_refused(kind: str, sizes: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        getattr(workloads, kind)("image", **sizes)


@pytest.mark.parametrize("make", [lambda: softmax("m", 2**31, 1), lambda: softmax("m", 2**16, 2**16)])
def test_more_elements_than_schedules_can_count_are_refused(make: Callable[[], Workload]) -> None:
    with pytest.raises(ConfigError, match=r"workload m: .*2147483647 at most"):
        make()


SUITES = Path(__file__).resolve().parents[3] / "conf" / "workload"

KEYS = {
    "matmul_classifier": "46960afee6d9453e",
    "batch_matmul_scores": "ad402ed1d4c2ac97",
    "conv2d_shortcut": "9396a2dc7987bacc",
    "depthwise_28": "0100e511f63848d7",
    "conv2d_transpose_16": "7459a6e46da90df5",
    "softmax_attention": "8e2e5910084ca536",
    "layer_norm_base": "6b60ffc90063cab3",
    "conv2d_bias_relu_7": "1b92f13c8979896b",
    "matmul_small": "66e4603de54da1b0",
    "conv2d_small": "a02581cc994465ad",
    "softmax_small": "287daa819e7f6fc9",
    "layer_norm_small": "c7ceb331dcbad1c1",
}
"""Measurements are found again by these: a module that changes loses its own, so it must not change by accident."""


def suite(name: str) -> dict[str, Any]:
    nodes = yaml.safe_load((SUITES / f"{name}.yaml").read_text())
    return {key: instantiate(node, name=key) for key, node in nodes.items()}


def test_workloads_that_others_have_measured_keep_their_keys() -> None:
    made = suite("default") | suite("tiny")
    assert {name: made[name].key for name in KEYS} == KEYS


def test_the_suite_of_all_operators_has_each() -> None:
    made = suite("operators")
    assert {workload.kind for workload in made.values()} == OPERATORS
    assert len({workload.key for workload in made.values()}) == len(made)


def test_the_suite_of_shapes_has_several_of_each_operator() -> None:
    made = suite("shapes")
    assert all(len({workload.kind for workload in several}) == 1 < len(several) for several in made.values())
    everything = [workload for several in made.values() for workload in several]
    assert len({workload.key for workload in everything}) == len({each.name for each in everything}) == len(everything)
