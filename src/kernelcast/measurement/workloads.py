"""The operators to measure: each function makes one unscheduled workload and can be a Hydra `_target_`.

Convolutions take NHWC inputs, all data are float32. Sizes are positive integers, padding is the same on all sides.
"""

from __future__ import annotations

import math
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, module_json, structural_key

MOST_ELEMENTS = 2**31 - 1
"""Of one tensor, and so of each side: TVM's schedules count loops in 32 bits."""


def matmul(name: str, rows: int, columns: int, depth: int) -> Workload:
    """Matrix product, (rows, depth) times (depth, columns)."""
    sizes = _sizes(name, rows=rows, columns=columns, depth=depth)
    te, topi = _te(), _topi()
    left = te.placeholder((rows, depth), name="left")
    right = te.placeholder((depth, columns), name="right")
    return _workload(name, "matmul", sizes, [left, right, topi.nn.matmul(left, right)])


def batch_matmul(name: str, batch: int, rows: int, columns: int, depth: int) -> Workload:
    """Matrix product of each batch entry, (rows, depth) times (depth, columns), as in attention."""
    sizes = _sizes(name, batch=batch, rows=rows, columns=columns, depth=depth)
    te, topi = _te(), _topi()
    left = te.placeholder((batch, rows, depth), name="left")
    right = te.placeholder((batch, depth, columns), name="right")
    product = topi.nn.batch_matmul(left, right, transpose_a=False, transpose_b=False)
    return _workload(name, "batch_matmul", sizes, [left, right, product])


def conv2d(
    name: str,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    batch: int = 1,
) -> Workload:
    """2-D convolution with a square kernel."""
    sizes = _image_sizes(name, batch, height, width, channels, kernel, stride, padding, filters=filters)
    image, weight, output = _conv2d(sizes)
    return _workload(name, "conv2d", sizes, [image, weight, output])


def conv2d_bias_relu(
    name: str,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    batch: int = 1,
) -> Workload:
    """2-D convolution, a bias a filter and max(x, 0), fused into one kernel."""
    sizes = _image_sizes(name, batch, height, width, channels, kernel, stride, padding, filters=filters)
    te, topi = _te(), _topi()
    image, weight, convolved = _conv2d(sizes)
    bias = te.placeholder((filters,), name="bias")
    shape = [int(extent) for extent in convolved.shape]
    biased = te.compute(shape, lambda n, y, x, f: convolved[n, y, x, f] + bias[f], name="bias_add")
    return _workload(name, "conv2d_bias_relu", sizes, [image, weight, bias, topi.nn.relu(biased)])


def depthwise_conv2d(
    name: str, height: int, width: int, channels: int, kernel: int, stride: int = 1, padding: int = 0, batch: int = 1
) -> Workload:
    """2-D convolution of each channel with its own square kernel."""
    sizes = _image_sizes(name, batch, height, width, channels, kernel, stride, padding)
    te, topi = _te(), _topi()
    image = te.placeholder((batch, height, width, channels), name="image")
    weight = te.placeholder((kernel, kernel, channels, 1), name="weight")
    output = topi.nn.depthwise_conv2d_nhwc(image, weight, stride, padding, 1)
    return _workload(name, "depthwise_conv2d", sizes, [image, weight, output])


def conv2d_transpose(
    name: str,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    batch: int = 1,
) -> Workload:
    """Transposed 2-D convolution (NCHW), which enlarges an image by `stride`, as in DCGAN."""
    sizes = _image_sizes(name, batch, height, width, channels, kernel, stride, padding, filters=filters)
    if padding >= kernel:
        raise ConfigError(f"workload {name}: padding ({padding}) must be smaller than kernel ({kernel})")
    te, topi = _te(), _topi()
    image = te.placeholder((batch, channels, height, width), name="image")
    weight = te.placeholder((channels, filters, kernel, kernel), name="weight")
    output = topi.nn.conv2d_transpose_nchw(image, weight, (stride, stride), padding, "float32", (0, 0))
    return _workload(name, "conv2d_transpose", sizes, [image, weight, output])


def softmax(name: str, rows: int, columns: int) -> Workload:
    """Softmax of each row."""
    sizes = _sizes(name, rows=rows, columns=columns)
    values = _te().placeholder((rows, columns), name="values")
    return _workload(name, "softmax", sizes, [values, _topi().nn.softmax(values, axis=1)])


def layer_norm(name: str, rows: int, columns: int) -> Workload:
    """Each row minus its mean, over its standard deviation, with a scale and a shift a column."""
    sizes = _sizes(name, rows=rows, columns=columns)
    te = _te()
    values = te.placeholder((rows, columns), name="values")
    scale = te.placeholder((columns,), name="scale")
    shift = te.placeholder((columns,), name="shift")
    return _workload(
        name, "layer_norm", sizes, [values, scale, shift, _topi().nn.layer_norm(values, scale, shift, [1])]
    )


def from_module(name: str, kind: str, arguments: dict[str, Any], module: Any) -> Workload:
    """A workload from any TVM module that holds one function `main`."""
    return Workload(structural_key(module), name, kind, arguments, module_json(module))


def _conv2d(sizes: dict[str, int]) -> tuple[Any, Any, Any]:
    te, topi = _te(), _topi()
    kernel = sizes["kernel"]
    image = te.placeholder((sizes["batch"], sizes["height"], sizes["width"], sizes["channels"]), name="image")
    weight = te.placeholder((kernel, kernel, sizes["channels"], sizes["filters"]), name="weight")
    return image, weight, topi.nn.conv2d_nhwc(image, weight, sizes["stride"], sizes["padding"], 1)


def _workload(name: str, kind: str, sizes: dict[str, int], tensors: list[Any]) -> Workload:
    tvm = load_tvm()
    for tensor in tensors:
        elements = math.prod(int(extent) for extent in tensor.shape)
        if elements > MOST_ELEMENTS:
            raise ConfigError(
                f"workload {name}: the tensor {tensor.op.name} would have {elements} elements; make it smaller, "
                f"{MOST_ELEMENTS} at most"
            )
    function = _te().create_prim_func(tensors).with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    return from_module(name, kind, dict(sizes), tvm.IRModule({"main": function}))


def _image_sizes(
    name: str,
    batch: int,
    height: int,
    width: int,
    channels: int,
    kernel: int,
    stride: int,
    padding: int,
    **more: int,
) -> dict[str, int]:
    sizes = _sizes(
        name, batch=batch, height=height, width=width, channels=channels, kernel=kernel, stride=stride, **more
    )
    if isinstance(padding, bool) or not isinstance(padding, int) or padding < 0:
        raise ConfigError(f"workload {name}: padding must be an integer of at least 0, got {padding!r}")
    if kernel > min(height, width) + 2 * padding:
        raise ConfigError(f"workload {name}: kernel ({kernel}) is larger than the padded image")
    return {**sizes, "padding": padding}


def _sizes(name: str, **sizes: int) -> dict[str, int]:
    for key, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_ELEMENTS:
            raise ConfigError(
                f"workload {name}: {key} must be a positive integer, {MOST_ELEMENTS} at most, got {size!r}"
            )
    return sizes


def _te() -> Any:
    load_tvm()
    from tvm import te

    return te


def _topi() -> Any:
    load_tvm()
    from tvm import topi

    return topi
