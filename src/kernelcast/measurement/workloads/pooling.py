"""Pooling: the largest or the mean of every window of an image."""

from __future__ import annotations

from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads.construction import from_tensors, placeholder, topi
from kernelcast.measurement.workloads.convolutions import Sizes
from kernelcast.measurement.workloads.sizes import check_choice, check_dtype, check_flag, check_sizes
from kernelcast.measurement.workloads.windows import LAYOUTS, Window, shape_in, window_of
from kernelcast.records import Workload

OPERATIONS = {"max": "max", "mean": "avg"}
"""What is taken of a window, and TVM's word for it."""


def pool1d(
    name: str,
    width: int,
    channels: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    operation: str = "max",
    count_padding: bool = True,
    layout: str = "NWC",
    dtype: str = "float32",
) -> Workload:
    """Pooling over one dimension; see `pool2d` for the arguments."""
    window = window_of(name, 1, batch, {"width": width}, channels, kernel, stride, padding)
    tensors = _pooled(name, window, operation, count_padding, layout, dtype)
    choices: dict[str, Any] = {"operation": operation, "count_padding": count_padding, "layout": layout, "dtype": dtype}
    return from_tensors(pool1d, name, window.sizes, tensors, **choices)


def pool2d(
    name: str,
    height: int,
    width: int,
    channels: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    operation: str = "max",
    count_padding: bool = True,
    layout: str = "NHWC",
    dtype: str = "float32",
) -> Workload:
    """Pooling over an image.

    Args:
        name: of the workload.
        height: of the image.
        width: of the image.
        channels: of the image.
        kernel: extent of the window.
        stride: by how much the window moves.
        padding: added on either side of the image, smaller than the kernel; never the largest of a window.
        batch: images at once.
        operation: max or mean.
        count_padding: whether padding counts, as zeros, for a mean.
        layout: NHWC or NCHW.
        dtype: of the data.
    """
    window = window_of(name, 2, batch, {"height": height, "width": width}, channels, kernel, stride, padding)
    tensors = _pooled(name, window, operation, count_padding, layout, dtype)
    choices: dict[str, Any] = {"operation": operation, "count_padding": count_padding, "layout": layout, "dtype": dtype}
    return from_tensors(pool2d, name, window.sizes, tensors, **choices)


def pool3d(
    name: str,
    depth: int,
    height: int,
    width: int,
    channels: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    operation: str = "max",
    count_padding: bool = True,
    layout: str = "NDHWC",
    dtype: str = "float32",
) -> Workload:
    """Pooling over a volume or a video; see `pool2d` for the arguments."""
    extents = {"depth": depth, "height": height, "width": width}
    window = window_of(name, 3, batch, extents, channels, kernel, stride, padding)
    tensors = _pooled(name, window, operation, count_padding, layout, dtype)
    choices: dict[str, Any] = {"operation": operation, "count_padding": count_padding, "layout": layout, "dtype": dtype}
    return from_tensors(pool3d, name, window.sizes, tensors, **choices)


def global_pool2d(
    name: str,
    height: int,
    width: int,
    channels: int,
    batch: int = 1,
    operation: str = "mean",
    layout: str = "NHWC",
    dtype: str = "float32",
) -> Workload:
    """The largest or the mean of each channel over the whole image, as before a classifier."""
    sizes = check_sizes(name, batch=batch, height=height, width=width, channels=channels)
    _check_choices(name, 2, operation, layout, dtype)
    image = placeholder(name, "image", shape_in(layout, batch, channels, (height, width)), dtype)
    output = topi().nn.global_pool(image, OPERATIONS[operation], layout)
    return from_tensors(global_pool2d, name, sizes, [image, output], operation=operation, layout=layout, dtype=dtype)


def _pooled(name: str, window: Window, operation: str, count_padding: bool, layout: str, dtype: str) -> list[Any]:
    dimensions = len(window.extents)
    _check_choices(name, dimensions, operation, layout, dtype)
    check_flag(name, "count_padding", count_padding)
    for kernel, padding in zip(window.kernel, window.padding, strict=True):
        if padding >= kernel:  # some window would see nothing of the image
            raise ConfigError(f"workload {name}: padding ({padding}) must be smaller than kernel ({kernel})")
    window.check_fits(name)
    shape = shape_in(layout, window.sizes["batch"], window.sizes["channels"], window.extents)
    image = placeholder(name, "image", shape, dtype)
    operators = topi().nn
    pool = {1: operators.pool1d, 2: operators.pool2d, 3: operators.pool3d}[dimensions]
    output = pool(
        image,
        window.kernel,
        window.stride,
        window.dilation,
        window.padding * 2,  # before each dimension, then after each
        OPERATIONS[operation],
        layout=layout,
        count_include_pad=count_padding,
    )
    return [image, output]


def _check_choices(name: str, dimensions: int, operation: str, layout: str, dtype: str) -> None:
    check_choice(name, "operation", operation, list(OPERATIONS))
    check_choice(name, "layout", layout, LAYOUTS[dimensions])
    check_dtype(name, dtype)
