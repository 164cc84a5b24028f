"""Every operator computes what NumPy computes, in every type of data that it takes."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelcast.measurement import workloads
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, parse_module

TOLERANCE = {"float32": 1e-4, "float16": 3e-2, "float64": 1e-10, "int8": 0.0, "int32": 0.0}
"""Of one element, relative to itself plus the largest of the result."""

Reference = Callable[..., np.ndarray]


def check(workload: Workload, reference: Reference) -> None:
    """Builds the unscheduled program, runs it on random inputs and compares with `reference` of the same in float64."""
    tvm = load_tvm()
    module = parse_module(workload.module)
    *buffers, output = module["main"].params
    random = np.random.default_rng(0)
    inputs = []
    for buffer in buffers:
        shape = [int(extent) for extent in buffer.shape]
        kind = str(buffer.dtype)
        integers = random.integers(-100, 100, shape)
        inputs.append((random.uniform(-1, 1, shape) if "float" in kind else integers).astype(kind))
    expected = reference(*(each.astype("float64") for each in inputs))
    result = tvm.runtime.tensor(np.zeros([int(extent) for extent in output.shape], str(output.dtype)))
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    tvm.compile(module, target=target)["main"](*(tvm.runtime.tensor(each) for each in inputs), result)
    got = result.numpy().astype("float64")
    assert got.shape == expected.shape
    assert np.isfinite(got).all()
    tolerance = TOLERANCE[str(buffers[0].dtype)]
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * max(1.0, np.abs(expected).max()))


def per_dimension(value: Any, dimensions: int) -> list[int]:
    return list(value) if isinstance(value, Sequence) else [value] * dimensions


def windows_of(image: np.ndarray, kernel: Any, stride: Any, padding: Any, dilation: Any, fill: float) -> np.ndarray:
    """(N, C, results..., kernel...) of an (N, C, ...) image."""
    dimensions = image.ndim - 2
    kernels, strides, paddings, dilations = (
        per_dimension(each, dimensions) for each in (kernel, stride, padding, dilation)
    )
    padded = np.pad(image, [(0, 0), (0, 0), *((each, each) for each in paddings)], constant_values=fill)
    covered = [(each - 1) * apart + 1 for each, apart in zip(kernels, dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, covered, axis=tuple(range(2, 2 + dimensions)))
    steps = [slice(None)] * 2 + [slice(None, None, each) for each in [*strides, *dilations]]
    return windows[tuple(steps)]


def convolution(
    layout: str, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Reference:
    def reference(image: np.ndarray, weight: np.ndarray) -> np.ndarray:
        last = layout[-1] == "C"
        if last:
            image, weight = np.moveaxis(image, -1, 1), np.moveaxis(weight, (-1, -2), (0, 1))
        windows = windows_of(image, kernel, stride, padding, dilation, 0.0)
        results = []
        for group in range(groups):
            ours = windows[:, group * weight.shape[1] : (group + 1) * weight.shape[1]]
            filters = weight.shape[0] // groups
            theirs = weight[group * filters : (group + 1) * filters]
            axes = [1, *range(2 + weight.ndim - 2, ours.ndim)]
            product = np.tensordot(ours, theirs, axes=(axes, list(range(1, weight.ndim))))
            results.append(np.moveaxis(product, -1, 1))
        result = np.concatenate(results, axis=1)
        return np.moveaxis(result, 1, -1) if last else result

    return reference


def bias_relu(convolve: Reference, layout: str) -> Reference:
    def reference(image: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        shape = (-1,) if layout[-1] == "C" else (-1, 1, 1)
        return np.maximum(convolve(image, weight) + bias.reshape(shape), 0)

    return reference


def depthwise(layout: str, **window: Any) -> Reference:
    """As a grouped convolution with one channel a group."""

    def reference(image: np.ndarray, weight: np.ndarray) -> np.ndarray:
        if layout == "NHWC":
            channels, kernel = image.shape[-1], weight.shape[:2]
            weight = weight.reshape(*kernel, 1, -1)
        else:
            channels, kernel = image.shape[1], weight.shape[2:]
            weight = weight.reshape(-1, 1, *kernel)
        return convolution(layout, kernel, groups=channels, **window)(image, weight)

    return reference


def transposed(stride: Any = 1, padding: Any = 0, output_padding: Any = 0) -> Reference:
    """Every element of the image puts the kernel, times itself, into the result."""

    def reference(image: np.ndarray, weight: np.ndarray) -> np.ndarray:
        dimensions = image.ndim - 2
        strides, paddings, added = (per_dimension(each, dimensions) for each in (stride, padding, output_padding))
        extents, kernel = image.shape[2:], weight.shape[2:]
        whole = [(e - 1) * s + k + a for e, s, k, a in zip(extents, strides, kernel, added, strict=True)]
        result = np.zeros((image.shape[0], weight.shape[1], *whole))
        for place in itertools.product(*map(range, extents)):
            put = tuple(slice(p * s, p * s + k) for p, s, k in zip(place, strides, kernel, strict=True))
            result[(slice(None), slice(None), *put)] += np.tensordot(image[(..., *place)], weight, axes=(1, 0))
        cut = tuple(slice(p, extent - p) for p, extent in zip(paddings, whole, strict=True))
        return result[(slice(None), slice(None), *cut)]

    return reference


def pooling(
    layout: str, kernel: Any, stride: Any = 1, padding: Any = 0, operation: str = "max", count_padding: bool = True
) -> Reference:
    def reference(image: np.ndarray) -> np.ndarray:
        last = layout[-1] == "C"
        first = np.moveaxis(image, -1, 1) if last else image
        axes = tuple(range(-(image.ndim - 2), 0))
        if operation == "max":
            result = windows_of(first, kernel, stride, padding, 1, -math.inf).max(axis=axes)
        else:
            windows = windows_of(first, kernel, stride, padding, 1, 0.0 if count_padding else math.nan)
            result = np.nanmean(windows, axis=axes)
        return np.moveaxis(result, 1, -1) if last else result

    return reference


def softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5) * scale + shift


def rms_norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * scale


def batch_norm(layout: str) -> Reference:
    def reference(image: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
        shape = (-1,) if layout == "NHWC" else (-1, 1, 1)
        mean, variance, scale, shift = (each.reshape(shape) for each in parameters)
        return (image - mean) / np.sqrt(np.maximum(variance, 0) + 1e-5) * scale + shift

    return reference


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    weights = softmax(query @ key.swapaxes(2, 3) / math.sqrt(query.shape[3]))
    return (weights @ value).transpose(0, 2, 1, 3)


ONE = {"height": 6, "width": 5, "channels": 4}
CASES: list[tuple[str, dict[str, Any], Reference]] = [
    ("matmul", {"rows": 4, "columns": 5, "depth": 6}, lambda a, b: a @ b),
    ("matmul", {"rows": 4, "columns": 5, "depth": 6, "transpose_right": True}, lambda a, b: a @ b.T),
    ("batch_matmul", {"batch": 3, "rows": 4, "columns": 5, "depth": 6}, lambda a, b: a @ b),
    (
        "batch_matmul",
        {"batch": 3, "rows": 4, "columns": 5, "depth": 6, "transpose_right": True},
        lambda a, b: a @ b.swapaxes(1, 2),
    ),
    ("dense", {"rows": 4, "columns": 5, "depth": 6}, lambda x, w, b: np.maximum(x @ w.T + b, 0)),
    ("conv1d", {"width": 9, "channels": 2, "filters": 3, "kernel": 3}, convolution("NWC", 3)),
    (
        "conv1d",
        {"width": 9, "channels": 2, "filters": 4, "kernel": 3, "dilation": 2, "groups": 2, "layout": "NCW"},
        convolution("NCW", 3, dilation=2, groups=2),
    ),
    ("conv2d", {**ONE, "filters": 3, "kernel": 3, "padding": 1}, convolution("NHWC", 3, padding=1)),
    (
        "conv2d",
        {**ONE, "filters": 3, "kernel": [1, 3], "stride": [2, 1], "padding": [0, 1], "layout": "NCHW", "batch": 2},
        convolution("NCHW", [1, 3], [2, 1], [0, 1]),
    ),
    ("conv2d", {**ONE, "filters": 6, "kernel": 3, "groups": 2}, convolution("NHWC", 3, groups=2)),
    (
        "conv2d_bias_relu",
        {**ONE, "filters": 3, "kernel": 3, "layout": "NCHW"},
        bias_relu(convolution("NCHW", 3), "NCHW"),
    ),
    ("conv2d_bias_relu", {**ONE, "filters": 3, "kernel": 2}, bias_relu(convolution("NHWC", 2), "NHWC")),
    ("depthwise_conv2d", {**ONE, "kernel": 3, "stride": 2, "padding": 1}, depthwise("NHWC", stride=2, padding=1)),
    (
        "depthwise_conv2d",
        {**ONE, "kernel": [3, 2], "dilation": 2, "multiplier": 2, "layout": "NCHW"},
        depthwise("NCHW", dilation=2),
    ),
    (
        "conv3d",
        {"depth": 3, "height": 4, "width": 5, "channels": 2, "filters": 3, "kernel": [1, 2, 3], "padding": 1},
        convolution("NDHWC", [1, 2, 3], padding=1),
    ),
    (
        "conv3d",
        {"depth": 3, "height": 4, "width": 5, "channels": 2, "filters": 3, "kernel": 2, "layout": "NCDHW"},
        convolution("NCDHW", 2),
    ),
    (
        "conv1d_transpose",
        {"width": 5, "channels": 2, "filters": 3, "kernel": 4, "stride": 2, "padding": 1, "output_padding": 1},
        transposed(2, 1, 1),
    ),
    (
        "conv2d_transpose",
        {"height": 1, "width": 2, "channels": 2, "filters": 3, "kernel": [4, 3], "stride": [1, 3]},
        transposed([1, 3]),
    ),
    (
        "conv3d_transpose",
        {"depth": 2, "height": 3, "width": 2, "channels": 2, "filters": 3, "kernel": 2, "stride": 2},
        transposed(2),
    ),
    ("pool1d", {"width": 9, "channels": 2, "kernel": 3, "stride": 2, "padding": 1}, pooling("NWC", 3, 2, 1)),
    ("pool2d", {**ONE, "kernel": 3, "stride": 2, "padding": 1}, pooling("NHWC", 3, 2, 1)),
    (
        "pool2d",
        {**ONE, "kernel": [2, 3], "padding": [0, 1], "operation": "mean", "layout": "NCHW"},
        pooling("NCHW", [2, 3], 1, [0, 1], "mean"),
    ),
    (
        "pool2d",
        {**ONE, "kernel": 3, "padding": 1, "operation": "mean", "count_padding": False},
        pooling("NHWC", 3, 1, 1, "mean", False),
    ),
    ("pool3d", {"depth": 4, **ONE, "kernel": 2, "stride": 2}, pooling("NDHWC", 2, 2)),
    ("global_pool2d", ONE, lambda image: image.mean(axis=(1, 2), keepdims=True)),
    (
        "global_pool2d",
        {**ONE, "operation": "max", "layout": "NCHW"},
        lambda image: image.max(axis=(2, 3), keepdims=True),
    ),
    ("softmax", {"rows": 3, "columns": 7}, softmax),
    ("log_softmax", {"rows": 3, "columns": 7}, lambda values: np.log(softmax(values))),
    ("layer_norm", {"rows": 3, "columns": 7}, layer_norm),
    ("rms_norm", {"rows": 3, "columns": 7}, rms_norm),
    ("batch_norm", ONE, batch_norm("NHWC")),
    ("batch_norm", {**ONE, "layout": "NCHW"}, batch_norm("NCHW")),
    ("reduction", {"shape": [3, 4, 5], "axes": [1]}, lambda x: x.sum(axis=1)),
    ("reduction", {"shape": [3, 4, 5], "axes": [-1, 0], "operation": "mean"}, lambda x: x.mean(axis=(0, 2))),
    ("reduction", {"shape": [3, 4], "operation": "max"}, lambda x: x.max()),
    ("reduction", {"shape": [3, 4], "axes": [0], "operation": "min"}, lambda x: x.min(axis=0)),
    (
        "elementwise",
        {"shape": [3, 4], "chain": ["add", "relu", "multiply", "tanh", "gelu", "sigmoid"]},
        lambda x, a, b: sigmoid(gelu(np.tanh(np.maximum(x + a, 0) * b))),
    ),
    (
        "elementwise",
        {"shape": [2, 3, 4], "chain": ["bias_add", "silu", "scale", "square", "subtract", "abs"]},
        lambda x, a, b, c: np.abs(((x + a) * sigmoid(x + a) * b) ** 2 - c),
    ),
    (
        "elementwise",
        {"shape": [7], "chain": ["maximum", "exp", "minimum", "leaky_relu", "negative", "erf"]},
        lambda x, a, b: np.vectorize(math.erf)(-leaky(np.minimum(np.exp(np.maximum(x, a)), b))),
    ),
    ("attention", {"heads": 2, "tokens": 5, "dim": 4, "batch": 2}, attention),
    ("attention", {"heads": 2, "tokens": 1, "key_tokens": 6, "dim": 4}, attention),
]
NUMBERS = {
    "matmul",
    "batch_matmul",
    "dense",
    "conv1d",
    "conv2d",
    "conv2d_bias_relu",
    "depthwise_conv2d",
    "conv3d",
    "conv1d_transpose",
    "conv2d_transpose",
    "conv3d_transpose",
}
"""Operators that also take int8."""

INTO_FLOAT32 = {"layer_norm", "rms_norm"}
"""Operators that do not take float64."""


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.01 * x)


def first_of_each_operator() -> list[tuple[str, dict[str, Any], Reference]]:
    return [case for place, case in enumerate(CASES) if case[0] not in {earlier[0] for earlier in CASES[:place]}]


def test_every_operator_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(workloads.__all__) - {"MOST_ELEMENTS", "from_module", "sweep"}


@pytest.mark.parametrize(("operator", "arguments", "reference"), CASES)
def test_values_are_those_of_numpy(operator: str, arguments: dict[str, Any], reference: Reference) -> None:
    workload = getattr(workloads, operator)("w", **arguments)
    assert workload.kind == operator
    check(workload, reference)


@pytest.mark.parametrize(("operator", "arguments", "reference"), first_of_each_operator())
def test_other_types_of_data(operator: str, arguments: dict[str, Any], reference: Reference) -> None:
    float64 = [] if operator in INTO_FLOAT32 else ["float64"]
    for dtype in ["float16", *float64, *(["int8"] if operator in NUMBERS else [])]:
        workload = getattr(workloads, operator)("w", **arguments, dtype=dtype)
        assert workload.arguments["dtype"] == dtype
        check(workload, reference)


@pytest.mark.parametrize("activation", ["none", "gelu", "tanh"])
def test_a_dense_layer_takes_other_activations(activation: str) -> None:
    function: dict[str, Reference] = {"none": lambda x: x, "gelu": gelu, "tanh": np.tanh}
    workload = workloads.dense("w", 2, 3, 4, activation=activation)
    check(workload, lambda x, w, b: function[activation](x @ w.T + b))


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_convolutions_of_any_size(data: st.DataObject) -> None:
    dimensions = data.draw(st.integers(1, 3))
    extents = dict(zip(("depth", "height", "width")[-dimensions:], data.draw(sizes(dimensions, 1, 6)), strict=True))
    window = {
        "kernel": data.draw(sizes(dimensions, 1, 3)),
        "stride": data.draw(sizes(dimensions, 1, 3)),
        "padding": data.draw(sizes(dimensions, 0, 2)),
        "dilation": data.draw(sizes(dimensions, 1, 2)),
    }
    assume(
        all(
            (kernel - 1) * dilation + 1 <= extent + 2 * padding
            for extent, kernel, padding, dilation in zip(
                extents.values(), window["kernel"], window["padding"], window["dilation"], strict=True
            )
        )
    )
    groups = data.draw(st.integers(1, 2))
    channels, filters = groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 3))
    spatial = "DHW"[-dimensions:]
    layout = data.draw(st.sampled_from([f"N{spatial}C", f"NC{spatial}"]))
    make = getattr(workloads, f"conv{dimensions}d")
    workload = make("w", **extents, channels=channels, filters=filters, groups=groups, layout=layout, **window)
    check(workload, convolution(layout, groups=groups, **window))


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_pooling_of_any_size(data: st.DataObject) -> None:
    dimensions = data.draw(st.integers(1, 3))
    extents = dict(zip(("depth", "height", "width")[-dimensions:], data.draw(sizes(dimensions, 3, 6)), strict=True))
    kernel = data.draw(sizes(dimensions, 1, 3))
    window: dict[str, Any] = {
        "kernel": kernel,
        "stride": data.draw(sizes(dimensions, 1, 3)),
        "padding": [data.draw(st.integers(0, each - 1)) for each in kernel],
        "operation": data.draw(st.sampled_from(["max", "mean"])),
        "count_padding": data.draw(st.booleans()),
    }
    spatial = "DHW"[-dimensions:]
    layout = data.draw(st.sampled_from([f"N{spatial}C", f"NC{spatial}"]))
    workload = getattr(workloads, f"pool{dimensions}d")("w", **extents, channels=2, layout=layout, **window)
    check(workload, pooling(layout, **window))


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_transposed_convolutions_of_any_size(data: st.DataObject) -> None:
    dimensions = data.draw(st.integers(1, 3))
    extents = data.draw(sizes(dimensions, 1, 4))
    kernel, stride = data.draw(sizes(dimensions, 1, 4)), data.draw(sizes(dimensions, 1, 3))
    padding = [data.draw(st.integers(0, each - 1)) for each in kernel]
    added = [data.draw(st.integers(0, each - 1)) for each in stride]
    results = zip(extents, kernel, stride, padding, added, strict=True)
    assume(all((e - 1) * s + k - 2 * p + a >= 1 for e, k, s, p, a in results))
    workload = getattr(workloads, f"conv{dimensions}d_transpose")(
        "w", *extents, channels=2, filters=3, kernel=kernel, stride=stride, padding=padding, output_padding=added
    )
    check(workload, transposed(stride, padding, added))


def sizes(count: int, least: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(least, most), min_size=count, max_size=count)
