"""Convolutions in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads.construction import accumulator, from_tensors, placeholder, te, topi
from kernelcast.measurement.workloads.sizes import NUMBERS, check_choice, check_dtype, check_sizes
from kernelcast.measurement.workloads.windows import LAYOUTS, Window, shape_in, window_of
from kernelcast.records import Workload

Sizes = int | Sequence[int]
"""One for every dimension of the image, or a list with one for each."""


def conv1d(
    name: str,
    width: int,
    channels: int,
    filters: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NWC",
    dtype: str = "float32",
) -> Workload:
    """1-D convolution, as over time; see `conv2d` for the arguments."""
    window = window_of(name, 1, batch, {"width": width}, channels, kernel, stride, padding, dilation, filters=filters)
    tensors = _convolution(name, window, groups, layout, dtype)
    return from_tensors(
        conv1d, name, window.sizes, tensors, dilation=dilation, groups=groups, layout=layout, dtype=dtype
    )


def conv2d(
    name: str,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NHWC",
    dtype: str = "float32",
) -> Workload:
    """2-D convolution.

    Args:
        name: of the workload.
        height: of the image.
        width: of the image.
        channels: of the image.
        filters: channels of the result.
        kernel: extent of the window.
        stride: by how much the window moves.
        padding: zeros on either side of the image.
        batch: images at once.
        dilation: distance between neighbours in the window.
        groups: parts of channels and filters that know nothing of each other; a divisor of both.
        layout: NHWC (weights: height, width, channels, filters) or NCHW (filters, channels, height, width).
        dtype: of the data.
    """
    extents = {"height": height, "width": width}
    window = window_of(name, 2, batch, extents, channels, kernel, stride, padding, dilation, filters=filters)
    tensors = _convolution(name, window, groups, layout, dtype)
    return from_tensors(
        conv2d, name, window.sizes, tensors, dilation=dilation, groups=groups, layout=layout, dtype=dtype
    )


def conv2d_bias_relu(
    name: str,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NHWC",
    dtype: str = "float32",
) -> Workload:
    """2-D convolution, a bias a filter and max(x, 0), fused into one kernel; see `conv2d` for the arguments."""
    extents = {"height": height, "width": width}
    window = window_of(name, 2, batch, extents, channels, kernel, stride, padding, dilation, filters=filters)
    image, weight, convolved = _convolution(name, window, groups, layout, dtype)
    bias = placeholder(name, "bias", (filters,), accumulator(dtype))
    axis = layout.index("C")
    shape = [int(extent) for extent in convolved.shape]
    biased = te().compute(shape, lambda *indices: convolved[indices] + bias[indices[axis]], name="bias_add")
    tensors = [image, weight, bias, topi().nn.relu(biased)]
    return from_tensors(
        conv2d_bias_relu, name, window.sizes, tensors, dilation=dilation, groups=groups, layout=layout, dtype=dtype
    )


def conv3d(
    name: str,
    depth: int,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NDHWC",
    dtype: str = "float32",
) -> Workload:
    """3-D convolution, as over videos; see `conv2d` for the arguments."""
    extents = {"depth": depth, "height": height, "width": width}
    window = window_of(name, 3, batch, extents, channels, kernel, stride, padding, dilation, filters=filters)
    tensors = _convolution(name, window, groups, layout, dtype)
    return from_tensors(
        conv3d, name, window.sizes, tensors, dilation=dilation, groups=groups, layout=layout, dtype=dtype
    )


def depthwise_conv2d(
    name: str,
    height: int,
    width: int,
    channels: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    dilation: Sizes = 1,
    multiplier: int = 1,
    layout: str = "NHWC",
    dtype: str = "float32",
) -> Workload:
    """2-D convolution of each channel with kernels of its own, `multiplier` of them; see `conv2d` for the arguments."""
    extents = {"height": height, "width": width}
    window = window_of(name, 2, batch, extents, channels, kernel, stride, padding, dilation)
    check_sizes(name, multiplier=multiplier)
    image = _image(name, window, layout, dtype)
    if layout == "NHWC":
        weight = placeholder(name, "weight", (*window.kernel, channels, multiplier), dtype)
        convolve = topi().nn.depthwise_conv2d_nhwc
    else:
        weight = placeholder(name, "weight", (channels, multiplier, *window.kernel), dtype)
        convolve = topi().nn.depthwise_conv2d_nchw
    output = convolve(image, weight, window.stride, window.padding, window.dilation, out_dtype=accumulator(dtype))
    return from_tensors(
        depthwise_conv2d,
        name,
        window.sizes,
        [image, weight, output],
        dilation=dilation,
        multiplier=multiplier,
        layout=layout,
        dtype=dtype,
    )


def _convolution(name: str, window: Window, groups: int, layout: str, dtype: str) -> tuple[Any, Any, Any]:
    image = _image(name, window, layout, dtype)
    channels, filters = window.sizes["channels"], window.sizes["filters"]
    check_sizes(name, groups=groups)
    if channels % groups or filters % groups:
        raise ConfigError(
            f"workload {name}: groups ({groups}) must divide channels ({channels}) and filters ({filters})"
        )
    spatial = layout.strip("NC")
    if layout[1] == "C":
        shape, weight_layout = (filters, channels // groups, *window.kernel), f"OI{spatial}"
    else:
        shape, weight_layout = (*window.kernel, channels // groups, filters), f"{spatial}IO"
    weight = placeholder(name, "weight", shape, dtype)
    output = topi().nn.conv(
        image,
        weight,
        window.stride,
        window.padding,
        window.dilation,
        groups,
        layout,
        weight_layout,
        accumulator(dtype),
        # weights are constants of a network, so a schedule may choose their layout; TVM does so for this case only
        auto_scheduler_should_rewrite_layout=layout == "NHWC" and groups == 1,
    )
    return image, weight, output


def _image(name: str, window: Window, layout: str, dtype: str) -> Any:
    window.check_fits(name)
    check_choice(name, "layout", layout, LAYOUTS[len(window.extents)])
    check_dtype(name, dtype, NUMBERS)
    shape = shape_in(layout, window.sizes["batch"], window.sizes["channels"], window.extents)
    return placeholder(name, "image", shape, dtype)
