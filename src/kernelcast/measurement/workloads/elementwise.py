"""Operations on every element by itself, chained into one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads.construction import constant, from_tensors, placeholder, topi
from kernelcast.measurement.workloads.sizes import check_dtype, check_shape, is_list, plain
from kernelcast.records import Workload

MOST_OPERATIONS = 32
"""Of one chain; kernels that compilers fuse are shorter."""

UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda ops, x: ops.nn.relu(x),
    "leaky_relu": lambda ops, x: ops.nn.leaky_relu(x, 0.01),
    "tanh": lambda ops, x: ops.tanh(x),
    "sigmoid": lambda ops, x: ops.sigmoid(x),
    "silu": lambda ops, x: ops.multiply(x, ops.sigmoid(x)),
    "gelu": lambda ops, x: _gelu(ops, x),
    "erf": lambda ops, x: _erf(ops, x),
    "exp": lambda ops, x: ops.exp(x),
    "abs": lambda ops, x: ops.abs(x),
    "negative": lambda ops, x: ops.negative(x),
    "square": lambda ops, x: ops.multiply(x, x),
}
"""Operations on one tensor, defined for every number: a random input must not make NaN."""

BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
"""Operations with a second tensor of the same shape, an input of its own."""

ALONG_ROWS = {"bias_add": "add", "scale": "multiply"}
"""Operations with a vector that is as long as the last dimension, an input of its own."""


def elementwise(name: str, shape: Sequence[int], chain: Sequence[str], dtype: str = "float32") -> Workload:
    """A chain of operations on every element of a tensor, fused into one kernel.

    Args:
        name: of the workload.
        shape: of the tensor.
        chain: names of `UNARY`, `BINARY` or `ALONG_ROWS`, in the order in which they are applied, at most
            `MOST_OPERATIONS`; the last two kinds take one more input each.
        dtype: of the data.
    """
    extents = check_shape(name, shape)
    check_dtype(name, dtype)
    _check_chain(name, chain)
    value = placeholder(name, "values", extents, dtype)
    inputs = [value]
    for position, operation in enumerate(chain):
        if operation in UNARY:
            value = apply(operation, value)
        else:
            of_operand = extents[-1:] if operation in ALONG_ROWS else extents
            operand = placeholder(name, f"operand_{position}", of_operand, dtype)
            inputs.append(operand)
            value = getattr(topi(), ALONG_ROWS.get(operation, operation))(value, operand)
    return from_tensors(elementwise, name, {"shape": shape, "chain": chain}, [*inputs, value], dtype=dtype)


def apply(operation: str, tensor: Any) -> Any:
    """One of the operations `UNARY` on every element."""
    return UNARY[operation](topi(), tensor)


def _gelu(ops: Any, tensor: Any) -> Any:
    """Each x times the normal distribution's cumulative probability (Hendrycks and Gimpel 2016, arXiv 1606.08415)."""
    dtype = str(tensor.dtype)
    error = _erf(ops, ops.multiply(tensor, constant(math.sqrt(0.5), dtype)))
    probability = ops.multiply(ops.add(error, constant(1.0, dtype)), constant(0.5, dtype))
    return ops.multiply(tensor, probability)


def _erf(ops: Any, tensor: Any) -> Any:
    """The error function; by way of float32 for float16, of which LLVM has none."""
    if str(tensor.dtype) != "float16":
        return ops.erf(tensor)
    return ops.cast(ops.erf(ops.cast(tensor, "float32")), "float16")


def _check_chain(name: str, chain: Any) -> None:
    allowed = [*UNARY, *BINARY, *ALONG_ROWS]
    if not is_list(chain) or not 1 <= len(chain) <= MOST_OPERATIONS:
        raise ConfigError(
            f"workload {name}: chain must be a list of 1 to {MOST_OPERATIONS} operations, got {plain(chain)!r}"
        )
    for position, operation in enumerate(chain):
        if operation not in allowed:
            raise ConfigError(
                f"workload {name}: chain has an unknown operation {operation!r} at place {position + 1}; there are "
                f"{', '.join(allowed)}"
            )
