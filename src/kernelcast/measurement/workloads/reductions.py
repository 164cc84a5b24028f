"""Sums, means and extremes over some dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads.construction import constant, from_tensors, placeholder, topi
from kernelcast.measurement.workloads.sizes import check_choice, check_dtype, check_shape, is_list, plain
from kernelcast.records import Workload

REDUCTIONS = ("sum", "mean", "max", "min")


def reduction(
    name: str, shape: Sequence[int], axes: Sequence[int] | None = None, operation: str = "sum", dtype: str = "float32"
) -> Workload:
    """The sum, mean, largest or smallest over some dimensions of a tensor.

    Args:
        name: of the workload.
        shape: of the tensor.
        axes: the dimensions that go away, from 0, or from -1 backwards; all of them if not given.
        operation: one of `REDUCTIONS`.
        dtype: of the data.
    """
    extents = check_shape(name, shape)
    check_choice(name, "operation", operation, REDUCTIONS)
    check_dtype(name, dtype)
    chosen = _axes(name, axes, len(extents))
    values = placeholder(name, "values", extents, dtype)
    if operation == "mean":
        count = math.prod(extents[axis] for axis in chosen)
        output = topi().divide(topi().sum(values, chosen), constant(float(count), dtype))
    else:
        output = getattr(topi(), operation)(values, chosen)
    return from_tensors(
        reduction, name, {"shape": shape, "axes": chosen}, [values, output], operation=operation, dtype=dtype
    )


def _axes(name: str, axes: Sequence[int] | None, dimensions: int) -> list[int]:
    if axes is None:
        return list(range(dimensions))
    valid = is_list(axes) and all(
        isinstance(axis, int) and not isinstance(axis, bool) and -dimensions <= axis < dimensions for axis in axes
    )
    chosen = sorted({axis % dimensions for axis in axes}) if valid else []
    if not chosen or len(chosen) != len(axes):
        raise ConfigError(
            f"workload {name}: axes must be a list of different dimensions, 0 to {dimensions - 1} or "
            f"-{dimensions} to -1, got {plain(axes)!r}"
        )
    return chosen
