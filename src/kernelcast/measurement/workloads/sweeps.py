"""Many shapes of one operator in one entry of the configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads.sizes import is_list, plain
from kernelcast.records import Workload


def sweep(
    name: str, operator: Callable[..., Workload], shapes: Sequence[Sequence[Any] | Mapping[str, Any]]
) -> list[Workload]:
    """One workload for each of several shapes.

    They are named after the sweep and their sizes: `NAME_56x56x64`, with `_KEY` and the value for each argument that
    the operator does not demand, as in `NAME_56x56x64_stride2`.

    Args:
        name: of the sweep.
        operator: makes a workload; a partial one may have arguments that all shapes share. In the configuration:
            `{_target_: kernelcast.measurement.workloads.matmul, _partial_: true, dtype: float16}`.
        shapes: for each workload the operator's arguments: a list in the order of its signature, or a mapping.

    Raises:
        ConfigError: no shapes, one that the operator does not take, or one that is there twice.
    """
    if not callable(operator):
        raise ConfigError(
            f"workload {name}: operator must be a function that makes a workload (`_target_` with `_partial_: true`), "
            f"got {operator!r}"
        )
    if not is_list(shapes) or not shapes:
        raise ConfigError(f"workload {name}: shapes must be a list with at least one shape, got {plain(shapes)!r}")
    workloads: dict[str, Workload] = {}
    for position, shape in enumerate(shapes):
        arguments = _arguments(name, operator, position, shape)
        label = f"{name}_{_label(operator, arguments)}"
        if label in workloads:
            raise ConfigError(f"workload {name}: shapes has {plain(shape)!r} twice, again at place {position + 1}")
        workload = operator(label, **arguments)
        if not isinstance(workload, Workload):
            raise ConfigError(f"workload {name}: operator makes no workload but a {type(workload).__name__}")
        workloads[label] = workload
    return list(workloads.values())


def _arguments(name: str, operator: Callable[..., Workload], position: int, shape: Any) -> dict[str, Any]:
    signature = inspect.signature(operator)
    try:
        if isinstance(shape, Mapping):
            bound = signature.bind(name, **shape)
        else:
            bound = signature.bind(name, *(shape if is_list(shape) else [shape]))
    except TypeError as error:
        takes = ", ".join(list(signature.parameters)[1:])
        shown = dict(shape) if isinstance(shape, Mapping) else plain(shape)
        raise ConfigError(
            f"workload {name}: shapes has {shown!r} at place {position + 1}, which does not fit ({error}); the "
            f"operator takes {takes}"
        ) from error
    named = dict(bound.arguments)
    named.pop(next(iter(signature.parameters)))
    return named


def _label(operator: Callable[..., Workload], arguments: Mapping[str, Any]) -> str:
    parameters = inspect.signature(operator).parameters
    demanded = [key for key in arguments if parameters[key].default is inspect.Parameter.empty]
    sizes = "x".join(_text(arguments[key]) for key in demanded)
    return "_".join(
        [*filter(None, [sizes]), *(f"{key}{_text(value)}" for key, value in arguments.items() if key not in demanded)]
    )


def _text(value: Any) -> str:
    if not is_list(value):
        return str(value)
    return ("-" if any(isinstance(each, str) for each in value) else "x").join(_text(each) for each in value)
