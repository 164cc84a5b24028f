"""Transposed convolutions, which enlarge an image by their stride. Images have their channels first."""

from __future__ import annotations

from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads.construction import accumulator, from_tensors, placeholder, topi
from kernelcast.measurement.workloads.convolutions import Sizes
from kernelcast.measurement.workloads.sizes import MOST_ELEMENTS, NUMBERS, check_dtype, per_dimension
from kernelcast.measurement.workloads.windows import EXTENTS, Window, shape_in, window_of
from kernelcast.records import Workload


def conv1d_transpose(
    name: str,
    width: int,
    channels: int,
    filters: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    output_padding: Sizes = 0,
    dtype: str = "float32",
) -> Workload:
    """Transposed 1-D convolution (NCW), as in vocoders; see `conv2d_transpose` for the arguments."""
    window = window_of(name, 1, batch, {"width": width}, channels, kernel, stride, padding, filters=filters)
    tensors = _transposed(name, window, output_padding, dtype)
    return from_tensors(conv1d_transpose, name, window.sizes, tensors, output_padding=output_padding, dtype=dtype)


def conv2d_transpose(
    name: str,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    batch: int = 1,
    output_padding: Sizes = 0,
    dtype: str = "float32",
) -> Workload:
    """Transposed 2-D convolution (NCHW), as in DCGAN.

    Args:
        name: of the workload.
        height: of the image.
        width: of the image.
        channels: of the image.
        filters: channels of the result.
        kernel: extent of the window.
        stride: by how much the image is enlarged.
        padding: cut off from every side of the result, smaller than the kernel.
        batch: images at once.
        output_padding: added at the end of each dimension of the result, smaller than the stride.
        dtype: of the data.
    """
    extents = {"height": height, "width": width}
    window = window_of(name, 2, batch, extents, channels, kernel, stride, padding, filters=filters)
    tensors = _transposed(name, window, output_padding, dtype)
    return from_tensors(conv2d_transpose, name, window.sizes, tensors, output_padding=output_padding, dtype=dtype)


def conv3d_transpose(
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
    output_padding: Sizes = 0,
    dtype: str = "float32",
) -> Workload:
    """Transposed 3-D convolution (NCDHW), as in 3-D U-Nets; see `conv2d_transpose` for the arguments."""
    extents = {"depth": depth, "height": height, "width": width}
    window = window_of(name, 3, batch, extents, channels, kernel, stride, padding, filters=filters)
    tensors = _transposed(name, window, output_padding, dtype)
    return from_tensors(conv3d_transpose, name, window.sizes, tensors, output_padding=output_padding, dtype=dtype)


def _transposed(name: str, window: Window, output_padding: Any, dtype: str) -> list[Any]:
    dimensions = len(window.extents)
    check_dtype(name, dtype, NUMBERS)
    added = per_dimension(name, "output_padding", output_padding, EXTENTS[dimensions], least=0)
    _check_result(name, window, added)
    batch, channels, filters = (window.sizes[key] for key in ("batch", "channels", "filters"))
    image = placeholder(name, "image", shape_in("NC", batch, channels, window.extents), dtype)
    weight = placeholder(name, "weight", (channels, filters, *window.kernel), dtype)
    operators = topi().nn
    convolve = {
        1: operators.conv1d_transpose_ncw,
        2: operators.conv2d_transpose_nchw,
        3: operators.conv3d_transpose_ncdhw,
    }[dimensions]
    return [image, weight, convolve(image, weight, window.stride, window.padding, accumulator(dtype), added)]


def _check_result(name: str, window: Window, output_padding: tuple[int, ...]) -> None:
    for dimension, extent, kernel, stride, padding, added in zip(
        EXTENTS[len(window.extents)],
        window.extents,
        window.kernel,
        window.stride,
        window.padding,
        output_padding,
        strict=True,
    ):
        if padding >= kernel:
            raise ConfigError(f"workload {name}: padding ({padding}) must be smaller than kernel ({kernel})")
        if added >= stride:
            raise ConfigError(f"workload {name}: output_padding ({added}) must be smaller than stride ({stride})")
        result = (extent - 1) * stride + kernel - 2 * padding + added
        if not 1 <= result <= MOST_ELEMENTS:
            raise ConfigError(
                f"workload {name}: the result's {dimension} would be {result}, which must be 1 to {MOST_ELEMENTS}; "
                f"change {dimension}, kernel, stride or padding"
            )
