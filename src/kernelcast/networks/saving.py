"""Writes a network to files; the extracting process alone imports this, since it runs torch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.files import write_json
from kernelcast.networks.fusing import fused_module
from kernelcast.networks.kernels import exported_program, imported_module, legalised, network_workloads
from kernelcast.networks.requests import Request
from kernelcast.networks.saved import (
    EXAMPLE_FILE,
    MODULE_FILE,
    NETWORK_FILE,
    SAVED_VERSION,
    WORKLOADS_FILE,
    Tensor,
)
from kernelcast.records import Workload
from kernelcast.tvm_compat import module_json


def save_network_files(request: Request, folder: Path) -> tuple[list[Workload], list[str]]:
    """Writes a network into an existing folder, and gives its workloads and what was left out.

    Raises:
        ConfigError: the network cannot be exported, imported or compiled.
    """
    from kernelcast.networks.extract import network_parts

    network, positional, named = network_parts(request)
    program = exported_program(request.name, network, positional, named)
    module = imported_module(request.name, program)
    lowered = legalised(request.name, module)
    workloads, left_out = network_workloads(request, fused_module(lowered) if request.fused else lowered)
    inputs, outputs = _example(network, positional, named, program)
    described = _described(request, module, inputs)
    (folder / MODULE_FILE).write_text(module_json(module))
    with (folder / EXAMPLE_FILE).open("wb") as stream:
        numbered: dict[str, Any] = {f"input_{number}": array for number, (array, _) in enumerate(inputs)}
        numbered |= {f"output_{number}": array for number, (array, _) in enumerate(outputs)}
        np.savez(stream, **numbered)
    write_json(folder / WORKLOADS_FILE, [dataclasses.asdict(workload) for workload in workloads])
    made = [Tensor(f"output_{number}", array.shape, dtype) for number, (array, dtype) in enumerate(outputs)]
    description = {
        "version": SAVED_VERSION,
        "request": request.as_json(),
        "inputs": [dataclasses.asdict(tensor) for tensor in described],
        "outputs": [dataclasses.asdict(tensor) for tensor in made],
        "left_out": left_out,
    }
    write_json(folder / NETWORK_FILE, description)
    return workloads, left_out


def _example(
    network: Any, positional: tuple[Any, ...], named: dict[str, Any], program: Any
) -> tuple[list[tuple[np.ndarray, str]], list[tuple[np.ndarray, str]]]:
    """Inputs in the order of the exported program, and what torch makes of them; each with its type."""
    import torch
    from torch.utils._pytree import tree_leaves

    with torch.inference_mode():
        made = network(*positional, **named)
    given = tree_leaves(program.example_inputs)
    return [_array(tensor) for tensor in given], [
        _array(tensor) for tensor in tree_leaves(made) if isinstance(tensor, torch.Tensor)
    ]


def _array(tensor: Any) -> tuple[np.ndarray, str]:
    import torch

    plain = tensor.detach().cpu().contiguous()
    dtype = str(plain.dtype).removeprefix("torch.")
    # NumPy's own types have none for these
    return (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy(), dtype


def _described(request: Request, module: Any, inputs: list[tuple[np.ndarray, str]]) -> list[Tensor]:
    """The inputs as the imported network takes them, which must be those of the example."""
    tensors = [Tensor(str(variable.name), *_type(variable)) for variable in module["main"].params]
    if [(tensor.shape, tensor.dtype) for tensor in tensors] != [(array.shape, dtype) for array, dtype in inputs]:
        wanted = ", ".join(f"{tensor.name}: {tensor.dtype}{list(tensor.shape)}" for tensor in tensors)
        raise ConfigError(
            f"workload.{request.name}.example: the network as TVM has it takes other inputs than the example's: "
            f"{wanted}; give all inputs by position, in the order of `forward`"
        )
    return tensors


def _type(variable: Any) -> tuple[tuple[int, ...], str]:
    kind = variable.ty
    return tuple(int(extent) for extent in kind.shape), str(kind.dtype)
