"""What a user's Python file makes, with one message that names the place when it makes something else."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.networks.kernels import first_line, parameters, unmeasurable, unschedulable
from kernelcast.networks.naming import kind_of
from kernelcast.networks.requests import Request
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, module_json, structural_key

FILE_MODULE = "kernelcast_user_file_{}"
"""Name under which a file is imported; no module that it may import itself has it."""


def own_function_workload(request: Request) -> Workload:
    """The workload of a tensor program.

    Raises:
        ConfigError: the file, the function or what it makes cannot work.
    """
    given = request.arguments
    path, name = Path(given["file"]), request.name
    made = _made(name, path, "function", given["function"], given["arguments"], _is_program)
    module = _program(name, f"{path}: {given['function']}", made)
    reason = unmeasurable(module) or unschedulable(module)
    if reason:
        raise ConfigError(f"workload.{name}: {path}: {given['function']} cannot be measured: {reason}")
    arguments = {**given["arguments"], "parameters": parameters(module)}
    return Workload(structural_key(module), name, kind_of(given["function"]), arguments, module_json(module))


def own_script_workload(request: Request) -> Workload:
    """The workload of the only TensorIR in a file, scheduled or not.

    Raises:
        ConfigError: there is none, or more than one.
    """
    tvm = load_tvm()
    from tvm.script import ir, relax, tirx

    path, name = Path(request.arguments["file"]), request.name
    # what TVM prints leaves its imports out
    loaded = _load(name, path, {"I": ir, "T": tirx, "R": relax, "tvm": tvm})
    found = {known: value for known, value in vars(loaded).items() if not known.startswith("_") and _is_program(value)}
    if len(found) != 1:
        listed = f"several programs ({', '.join(found)})" if found else "no TensorIR"
        raise ConfigError(
            f"workload.{name}: {path} holds {listed}; name what "
            "is meant: module=NAME and example=NAME for a torch.nn.Module and its input, function=NAME for a tensor "
            "program"
        )
    [(known, made)] = found.items()
    module = _program(name, f"{path}: {known}", made)
    return Workload(structural_key(module), name, "program", {"parameters": parameters(module)}, module_json(module))


def own_network_parts(request: Request) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A network with its positional and its named inputs.

    Raises:
        ConfigError: the file, the network or the example cannot work.
    """
    import torch

    given = request.arguments
    path, name = Path(given["file"]), request.name
    torch.manual_seed(0)
    network = _made(
        name, path, "module", given["module"], given["arguments"], lambda value: isinstance(value, torch.nn.Module)
    )
    if not isinstance(network, torch.nn.Module):
        raise ConfigError(
            f"workload.{name}.module: {path}: {given['module']} is no torch.nn.Module but a {_type(network)}"
        )
    example = _made(name, path, "example", given["example"], {}, lambda value: not callable(value))
    where = f"workload.{name}.example: {path}: {given['example']}"
    if isinstance(example, torch.Tensor):
        return network, (example,), {}
    if isinstance(example, dict) and example and all(isinstance(value, torch.Tensor) for value in example.values()):
        return network, (), example
    if isinstance(example, tuple | list) and example and all(isinstance(value, torch.Tensor) for value in example):
        return network, tuple(example), {}
    raise ConfigError(f"{where} must be a tensor, or a tuple or mapping of tensors, not a {_type(example)}")


def _made(
    name: str, path: Path, key: str, attribute: str, arguments: dict[str, Any], complete: Callable[[Any], bool]
) -> Any:
    """The value of a name in the file, or what it returns when it is a function."""
    loaded = _load(name, path)
    if not hasattr(loaded, attribute):
        names = [
            known
            for known, value in vars(loaded).items()
            if not known.startswith("_") and getattr(value, "__module__", None) == loaded.__name__
        ]
        raise ConfigError(
            f"workload.{name}.{key}: {path} has no {attribute}; it has {', '.join(names) or 'nothing of its own'}"
        )
    value = getattr(loaded, attribute)
    if complete(value) or not callable(value):
        if arguments:
            raise ConfigError(f"workload.{name}.arguments: {path}: {attribute} is no function and takes none")
        return value
    try:
        return value(**arguments)
    except BaseException as error:  # SystemExit too: the file may be a program
        raise _raised(name, path, f"{attribute} raised", error) from error


def _load(name: str, path: Path, names: Mapping[str, Any] | None = None) -> Any:
    if not path.is_file():
        raise ConfigError(
            f"workload.{name}.file: there is no file {path}; a relative name begins at the folder where the command is "
            "typed"
        )
    module_name = FILE_MODULE.format(path.resolve().as_posix().encode().hex())
    if module_name in sys.modules:
        return sys.modules[module_name]
    # whatever its ending is
    loader = importlib.machinery.SourceFileLoader(module_name, str(path))
    spec = importlib.util.spec_from_loader(module_name, loader)
    assert spec is not None, "a loader was given"
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    vars(module).update(names or {})
    # as `python FILE` has it
    sys.path.insert(0, str(path.resolve().parent))
    try:
        loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        raise _raised(name, path, "it raised", error) from error
    finally:
        sys.path.pop(0)
    return module


def _raised(name: str, path: Path, what: str, error: BaseException) -> ConfigError:
    if isinstance(error, KeyboardInterrupt):
        raise error
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    place = f"{path}:{lines[-1]}" if lines else str(path)
    return ConfigError(f"workload.{name}: {place}: {what} {type(error).__name__}: {first_line(error)}")


def _is_program(value: Any) -> bool:
    tvm = load_tvm()
    return isinstance(value, tvm.IRModule | tvm.tirx.PrimFunc)


def _program(name: str, where: str, made: Any) -> Any:
    """An IRModule with one function `main` from whatever the user's function returned."""
    tvm = load_tvm()
    from tvm import te

    if isinstance(made, tvm.IRModule):
        names = [variable.name_hint for variable in made.get_global_vars()]
        if names != ["main"]:
            raise ConfigError(
                f"workload.{name}: {where} has the functions {', '.join(sorted(names)) or '(none)'}; it must have one, "
                "named main"
            )
        function = made["main"]
        if not isinstance(function, tvm.tirx.PrimFunc):
            raise ConfigError(
                f"workload.{name}: {where}: main is a {type(function).__name__}, not a TensorIR PrimFunc; for a "
                "network use kernelcast.networks.own.own_network"
            )
    elif isinstance(made, tvm.tirx.PrimFunc):
        function = made
    elif isinstance(made, list | tuple) and made and all(isinstance(tensor, te.Tensor) for tensor in made):
        try:
            function = te.create_prim_func(list(made)).with_attr("tirx.noalias", True)
        except Exception as error:
            raise ConfigError(
                f"workload.{name}: {where}: TVM makes no program of these tensors: {first_line(error)}; list the "
                "inputs first, then the outputs"
            ) from error
    else:
        raise ConfigError(
            f"workload.{name}: {where} makes a {_type(made)}; it must make a list of TE tensors (inputs, then "
            "outputs), a TensorIR PrimFunc or an IRModule"
        )
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _type(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return f"{type(value).__name__} of {type(value[0]).__name__}"
    return type(value).__name__
