"""Matrix products."""

from __future__ import annotations

from kernelcast.measurement.workloads.construction import accumulator, from_tensors, placeholder, topi
from kernelcast.measurement.workloads.elementwise import UNARY, apply
from kernelcast.measurement.workloads.sizes import NUMBERS, check_choice, check_dtype, check_flag, check_sizes
from kernelcast.records import Workload


def matmul(
    name: str, rows: int, columns: int, depth: int, transpose_right: bool = False, dtype: str = "float32"
) -> Workload:
    """Matrix product, (rows, depth) times (depth, columns); the right one is (columns, depth) if transposed."""
    sizes = check_sizes(name, rows=rows, columns=columns, depth=depth)
    check_flag(name, "transpose_right", transpose_right)
    check_dtype(name, dtype, NUMBERS)
    left = placeholder(name, "left", (rows, depth), dtype)
    right = placeholder(name, "right", (columns, depth) if transpose_right else (depth, columns), dtype)
    product = topi().nn.matmul(left, right, out_dtype=accumulator(dtype), transpose_b=transpose_right)
    return from_tensors(matmul, name, sizes, [left, right, product], transpose_right=transpose_right, dtype=dtype)


def batch_matmul(
    name: str, batch: int, rows: int, columns: int, depth: int, transpose_right: bool = False, dtype: str = "float32"
) -> Workload:
    """Matrix product of each batch entry, (rows, depth) times (depth, columns), as in attention."""
    sizes = check_sizes(name, batch=batch, rows=rows, columns=columns, depth=depth)
    check_flag(name, "transpose_right", transpose_right)
    check_dtype(name, dtype, NUMBERS)
    left = placeholder(name, "left", (batch, rows, depth), dtype)
    shape = (batch, columns, depth) if transpose_right else (batch, depth, columns)
    right = placeholder(name, "right", shape, dtype)
    product = topi().nn.batch_matmul(
        left, right, out_dtype=accumulator(dtype), transpose_a=False, transpose_b=transpose_right
    )
    return from_tensors(batch_matmul, name, sizes, [left, right, product], transpose_right=transpose_right, dtype=dtype)


def dense(name: str, rows: int, columns: int, depth: int, activation: str = "relu", dtype: str = "float32") -> Workload:
    """A fully connected layer as one kernel: product with weights (columns, depth), a bias a column, an activation.

    Args:
        name: of the workload.
        rows: inputs at once.
        columns: outputs.
        depth: features of an input.
        activation: an operation on one number, see `elementwise`, or `none`.
        dtype: of the data; of int8 only relu and none can be had.
    """
    sizes = check_sizes(name, rows=rows, columns=columns, depth=depth)
    check_dtype(name, dtype, NUMBERS)
    check_choice(name, "activation", activation, ["none", "relu"] if dtype == "int8" else ["none", *UNARY])
    data = placeholder(name, "data", (rows, depth), dtype)
    weight = placeholder(name, "weight", (columns, depth), dtype)
    bias = placeholder(name, "bias", (columns,), accumulator(dtype))
    product = topi().nn.dense(data, weight, bias, out_dtype=accumulator(dtype))
    output = product if activation == "none" else apply(activation, product)
    return from_tensors(dense, name, sizes, [data, weight, bias, output], activation=activation, dtype=dtype)
