"""Programs by name: operators, networks, and what a user's Python file or torch module makes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from kernelcast.errors import ConfigError, near_name
from kernelcast.measurement import workloads as operators
from kernelcast.networks import catalogue
from kernelcast.networks.isolation import extract_workloads
from kernelcast.networks.own import own_function, own_network, own_script
from kernelcast.networks.requests import Request
from kernelcast.records import Workload

logger = logging.getLogger(__name__)

TRUST = "trust_python"


@dataclass(frozen=True)
class InPython:
    """What to take from a Python file.

    Attributes:
        module: a name in it: a `torch.nn.Module`, its class or a function that returns one; with `example`.
        example: a name in it: the module's input, or a function that returns it.
        function: a name in it: a TensorIR function or module, or a function that returns one or TE tensors.
        arguments: given by name to `module` or `function` where that is a function or a class.
        trusted: whether the file may run.
    """

    module: str | None = None
    example: str | None = None
    function: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = False


def operator_names() -> dict[str, Callable[..., Workload]]:
    """The operators by name; each takes the name of a workload and its sizes."""
    functions = {name: getattr(operators, name) for name in operators.__all__}
    return {
        name: made
        for name, made in functions.items()
        if inspect.isfunction(made) and get_type_hints(made)["return"] is Workload and made is not operators.from_module
    }


def network_names() -> dict[str, Callable[..., Request]]:
    """The networks by name; each takes the name of a network and its sizes."""
    return {
        name: made
        for name, made in vars(catalogue).items()
        if inspect.isfunction(made) and not name.startswith("_") and made.__module__ == catalogue.__name__
    }


def meant(typed: str, known: Iterable[str]) -> str:
    """What was probably meant, as the end of a message; empty where nothing is like it."""
    close = near_name(typed, known)
    return f" (did you mean {close}?)" if close else ""


def named_workloads(name: str, shape: Mapping[str, Any]) -> list[Workload] | None:
    """The workloads of an operator or a network; None where there is none of that name.

    Args:
        name: of the operator or the network.
        shape: its sizes.

    Raises:
        ConfigError: it does not take these.
    """
    if name in operator_names():
        return [_called(name, operator_names()[name], shape)]
    if name in network_names():
        [extracted] = extract_workloads([_called(name, network_names()[name], shape)])
        return extracted
    return None


def check_python(path: Path, wanted: InPython) -> None:
    """Makes sure, before any work, that a Python file may run and that what is wanted of it makes sense.

    Raises:
        ConfigError: it may not, or does not.
    """
    if not wanted.trusted:
        raise ConfigError(
            f"input={path}: Python code runs when it is read, TVMScript too, and can do all that you can do; look at "
            f"the file, then allow it by {TRUST}=true"
        )
    if (wanted.module is None) != (wanted.example is None):
        raise ConfigError(
            f"input={path}: a torch.nn.Module goes with its input: name both in the file, module=NAME example=NAME"
        )
    if wanted.module is not None and wanted.function is not None:
        raise ConfigError(f"input={path}: name either module and example or function, not both")


def python_workloads(path: Path, wanted: InPython) -> list[Workload]:
    """The workloads of a Python file, which runs in a process of its own.

    Raises:
        ConfigError: the file may not run, or there is nothing in it that can be predicted.
    """
    check_python(path, wanted)
    name, file, arguments = path.stem, str(path.absolute()), dict(wanted.arguments)
    if wanted.module is not None and wanted.example is not None:
        request = own_network(name, file, wanted.module, wanted.example, arguments)
    elif wanted.function is not None:
        request = own_function(name, file, wanted.function, arguments)
    else:
        request = own_script(name, file)
    [extracted] = extract_workloads([request])
    return extracted


def torch_workloads(module: Any, example: Any, name: str) -> list[Workload]:
    """The kernels of a `torch.nn.Module` that is in this process.

    Args:
        module: the network.
        example: its input: a tensor, a tuple of the positional ones or a mapping of the named ones.
        name: of the network.

    Raises:
        ConfigError: torch or TVM cannot take it.
    """
    from kernelcast.networks.kernels import network_module, network_workloads

    if example is None:
        raise ConfigError(f"{name}: a torch.nn.Module goes with its input: predict(module, example=TENSOR)")
    named = dict(example) if isinstance(example, Mapping) else {}
    positional = () if named else tuple(example) if isinstance(example, tuple | list) else (example,)
    request = Request(name, "module", {}, name)
    workloads, left_out = network_workloads(request, network_module(name, module, positional, named, fused=True))
    for line in left_out:
        logger.warning("%s", line)
    return workloads


def _called(name: str, make: Callable[..., Any], shape: Mapping[str, Any]) -> Any:
    signature = inspect.signature(make)
    known = [key for key in signature.parameters if key != "name"]
    unknown = [key for key in shape if key not in known]
    missing = [
        key for key in known if key not in shape and signature.parameters[key].default is inspect.Parameter.empty
    ]
    if unknown or missing:
        wrong = f"it has no {', '.join(unknown)}" if unknown else f"{', '.join(missing)} must be given"
        wrong += "".join(meant(key, known) for key in unknown)
        example = ", ".join(f"{key}: 64" for key in missing or known[:2])
        raise ConfigError(f"input={name}: {wrong}; its sizes are {', '.join(known)}, as in 'shape={{{example}}}'")
    return make(name, **shape)
