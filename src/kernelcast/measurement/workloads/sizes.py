"""Checks of what a workload is made from: each refuses with the workload, the key and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kernelcast.errors import ConfigError

MOST_ELEMENTS = 2**31 - 1
"""Of one tensor, and so of each side: TVM's schedules count loops in 32 bits."""

MOST_DIMENSIONS = 6
"""Of a tensor whose shape is free."""

FLOATS = ("float32", "float16", "float64")
"""Types of data that every operator takes."""

NUMBERS = (*FLOATS, "int8")
"""Types of data of products and convolutions."""


def check_sizes(name: str, **sizes: int) -> dict[str, Any]:
    """The sizes of the workload `name`, all positive integers."""
    for key, size in sizes.items():
        if not _is_integer(size, least=1):
            raise ConfigError(
                f"workload {name}: {key} must be a positive integer, {MOST_ELEMENTS} at most, got {size!r}"
            )
    return sizes


def check_dtype(name: str, dtype: str, allowed: Sequence[str] = FLOATS) -> None:
    """Makes sure that data may have this type."""
    check_choice(name, "dtype", dtype, allowed)


def check_choice(name: str, key: str, value: str, allowed: Sequence[str]) -> None:
    """Makes sure that `value` is one of the words allowed for `key`."""
    if value not in allowed:
        raise ConfigError(f"workload {name}: {key} must be one of {', '.join(allowed)}, got {value!r}")


def check_flag(name: str, key: str, value: bool) -> None:
    """Makes sure that `value` is true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"workload {name}: {key} must be true or false, got {value!r}")


def check_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as it was configured, 1 to `MOST_DIMENSIONS` positive integers."""
    if not is_list(shape) or not 1 <= len(shape) <= MOST_DIMENSIONS or not all(_is_integer(size, 1) for size in shape):
        raise ConfigError(
            f"workload {name}: shape must be a list of 1 to {MOST_DIMENSIONS} positive integers, each {MOST_ELEMENTS} "
            f"at most, got {shape!r}"
        )
    return tuple(shape)


def check_elements(name: str, tensor: str, shape: Sequence[int]) -> None:
    """Makes sure that a tensor is not larger than schedules can count."""
    elements = math.prod(shape)
    if elements > MOST_ELEMENTS:
        raise ConfigError(
            f"workload {name}: the tensor {tensor} would have {elements} elements; make it smaller, "
            f"{MOST_ELEMENTS} at most"
        )


def per_dimension(name: str, key: str, value: Any, dimensions: Sequence[str], least: int = 1) -> tuple[int, ...]:
    """One integer for each dimension, from one for all of them or from a list.

    Args:
        name: of the workload.
        key: what is configured, for example `stride`.
        value: an integer or a list.
        dimensions: what they are called, for example height and width.
        least: the smallest that is allowed.
    """
    values = tuple(value) if is_list(value) else (value,) * len(dimensions)
    if len(values) != len(dimensions) or not all(_is_integer(each, least) for each in values):
        what = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ConfigError(
            f"workload {name}: {key} must be {what}, {MOST_ELEMENTS} at most, or a list of such for "
            f"{', '.join(dimensions)}, got {plain(value)!r}"
        )
    return values


def is_list(value: Any) -> bool:
    """Whether this is a list in the sense of the configuration."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def plain(value: Any) -> Any:
    """The same, with lists of the configuration as Python's own."""
    return [plain(each) for each in value] if is_list(value) else value


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST_ELEMENTS
