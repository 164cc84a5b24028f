"""Softmax and the normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelcast.measurement.workloads.construction import constant, from_tensors, placeholder, te, topi
from kernelcast.measurement.workloads.sizes import FLOATS, check_choice, check_dtype, check_sizes
from kernelcast.records import Workload

EPSILON = 1e-5
"""Added to a variance before its root is taken."""

INTO_FLOAT32 = ("float32", "float16")
"""Types of data of the normalisations for which TVM computes in float32, whatever the data are."""


def softmax(name: str, rows: int, columns: int, dtype: str = "float32") -> Workload:
    """Softmax of each row."""
    sizes, values = _rows(name, rows, columns, dtype)
    return from_tensors(softmax, name, sizes, [values, topi().nn.softmax(values, axis=1)], dtype=dtype)


def log_softmax(name: str, rows: int, columns: int, dtype: str = "float32") -> Workload:
    """Logarithm of the softmax of each row."""
    sizes, values = _rows(name, rows, columns, dtype)
    return from_tensors(log_softmax, name, sizes, [values, topi().nn.log_softmax(values, axis=1)], dtype=dtype)


def layer_norm(name: str, rows: int, columns: int, dtype: str = "float32") -> Workload:
    """Each row minus its mean, over its standard deviation, with a scale and a shift a column."""
    sizes, values = _rows(name, rows, columns, dtype, INTO_FLOAT32)
    scale = placeholder(name, "scale", (columns,), dtype)
    shift = placeholder(name, "shift", (columns,), dtype)
    output = topi().nn.layer_norm(values, scale, shift, [1], EPSILON)
    return from_tensors(layer_norm, name, sizes, [values, scale, shift, output], dtype=dtype)


def rms_norm(name: str, rows: int, columns: int, dtype: str = "float32") -> Workload:
    """Each row over the root of its mean square, with a scale a column (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    sizes, values = _rows(name, rows, columns, dtype, INTO_FLOAT32)
    scale = placeholder(name, "scale", (columns,), dtype)
    output = topi().nn.rms_norm(values, scale, [1], EPSILON)
    return from_tensors(rms_norm, name, sizes, [values, scale, output], dtype=dtype)


def batch_norm(
    name: str, height: int, width: int, channels: int, batch: int = 1, layout: str = "NHWC", dtype: str = "float32"
) -> Workload:
    """Batch normalisation of an image with the means and variances of training, as in inference.

    A negative variance, which only random inputs have, counts as 0.
    """
    sizes = check_sizes(name, batch=batch, height=height, width=width, channels=channels)
    check_choice(name, "layout", layout, ("NHWC", "NCHW"))
    check_dtype(name, dtype)
    shape = (batch, height, width, channels) if layout == "NHWC" else (batch, channels, height, width)
    image = placeholder(name, "image", shape, dtype)
    mean, variance, scale, shift = (
        placeholder(name, each, (channels,), dtype) for each in ("mean", "variance", "scale", "shift")
    )
    axis = layout.index("C")

    def normal(*indices: Any) -> Any:
        channel = indices[axis]
        spread = te().max(variance[channel], constant(0.0, dtype)) + constant(EPSILON, dtype)
        return (image[indices] - mean[channel]) / te().sqrt(spread) * scale[channel] + shift[channel]

    output = te().compute(shape, normal, name="batch_norm")
    tensors = [image, mean, variance, scale, shift, output]
    return from_tensors(batch_norm, name, sizes, tensors, layout=layout, dtype=dtype)


def _rows(
    name: str, rows: int, columns: int, dtype: str, allowed: Sequence[str] = FLOATS
) -> tuple[dict[str, Any], Any]:
    sizes = check_sizes(name, rows=rows, columns=columns)
    check_dtype(name, dtype, allowed)
    return sizes, placeholder(name, "values", (rows, columns), dtype)
