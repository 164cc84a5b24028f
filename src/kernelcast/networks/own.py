"""The user's own programs and networks, from a Python file: each function asks for one and can be a Hydra `_target_`.

A relative `file` begins at the folder where the command was typed. The file runs in a process of its own, as it would
by `python FILE`, with its folder to import from; its name is not `__main__`.
"""

from __future__ import annotations

from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.networks.requests import Request, network_request, plain


def own_function(name: str, file: str, function: str, arguments: dict[str, Any] | None = None) -> Request:
    """A tensor program: one workload.

    Args:
        name: of the workload.
        file: the Python file.
        function: a name in it: a function that returns a list of TE tensors (inputs, then outputs), a TensorIR
            `PrimFunc` or an `IRModule` with one function `main`; or such a `PrimFunc` or `IRModule` itself.
        arguments: given to the function by name.
    """
    return Request(name, "function", _of_file(name, file, function=function, arguments=arguments))


def own_script(name: str, file: str) -> Request:
    """The only TensorIR in a Python file, as TVM prints it by `module.script()` or with imports of its own.

    Args:
        name: of the workload.
        file: the Python file.
    """
    return Request(name, "script", _of_file(name, file, arguments=None))


def own_network(
    name: str,
    file: str,
    module: str,
    example: str,
    arguments: dict[str, Any] | None = None,
    fused: bool = True,
    network: str | None = None,
) -> Request:
    """A network: one workload a kernel.

    Args:
        name: of the network.
        file: the Python file.
        module: a name in it: a `torch.nn.Module` or a function that returns one.
        example: a name in it: the input, or a function that returns it; a tensor, a tuple of the positional inputs or a
            mapping of the named ones.
        arguments: given to `module` by name.
        fused: whether operators are fused into kernels.
        network: the name in `Workload.networks`; by default `name`.
    """
    of_file = _of_file(name, file, module=module, example=example, arguments=arguments)
    return network_request(name, "module", of_file, network, fused)


def _of_file(name: str, file: str, arguments: dict[str, Any] | None, **names: str) -> dict[str, Any]:
    for key, value in {"file": file, **names}.items():
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"workload.{name}.{key} must be a name, got {value!r}")
    given = {} if arguments is None else arguments
    if not hasattr(given, "keys"):
        raise ConfigError(f"workload.{name}.arguments must be a mapping of names to values, got {arguments!r}")
    return plain(name, {"file": file, **names, "arguments": given})
