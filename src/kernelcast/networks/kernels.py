"""From a torch module to the kernels that TVM makes of it."""

from __future__ import annotations

import re
import traceback
import warnings
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.networks.fusing import calls_of, fused_module, kernel_key
from kernelcast.networks.naming import Names, kind_of
from kernelcast.networks.requests import Request
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, module_json, structural_key

ANY_TARGET = {"kind": "llvm", "num-cores": 1}
"""Extraction asks for a target, but kernels do not depend on it before they are scheduled."""


def network_module(name: str, network: Any, positional: tuple[Any, ...], named: dict[str, Any], fused: bool) -> Any:
    """The network as a Relax module whose operators are TensorIR functions.

    Weights are constants, so what depends on them alone is computed here and not in a kernel.

    Raises:
        ConfigError: torch cannot export it, or TVM has no such operator.
    """
    module = legalised(name, imported_module(name, exported_program(name, network, positional, named)))
    return fused_module(module) if fused else module


def legalised(name: str, module: Any) -> Any:
    """An imported network with every operator a TensorIR function of its own.

    Raises:
        ConfigError: TVM cannot compile it.
    """
    tvm = load_tvm()
    transform = tvm.relax.transform
    passes = [
        # batch normalisation as arithmetic, which can be fused into the convolution before it
        transform.DecomposeOpsForInference(),
        # its results came in a tuple, which would keep what follows from being fused
        transform.CanonicalizeBindings(),
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.DeadCodeElimination(),
    ]
    try:
        return tvm.transform.Sequential(passes)(module)
    except Exception as error:
        raise ConfigError(f"workload.{name}: TVM cannot compile this network: {first_line(error)}") from error


def network_workloads(request: Request, module: Any) -> tuple[list[Workload], list[str]]:
    """One workload a distinct kernel, in the order in which the network first runs them, and what was left out.

    Each carries how often the network runs it.

    Raises:
        ConfigError: there is none.
    """
    load_tvm()
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

    first_run = _first_runs(module)
    tasks: dict[str, tuple[int, str, Any, int]] = {}
    left_out = []
    for task in extract_tasks(module, make_target(ANY_TARGET)):
        kernel = task.dispatched[0]
        reason = unmeasurable(kernel) or unschedulable(kernel)
        if reason:
            left_out.append(f"{request.name}: the kernel {task.task_name} is left out: {reason}")
            continue
        key = structural_key(kernel)
        weight = int(task.weight) + (tasks[key][3] if key in tasks else 0)
        tasks[key] = (first_run.get(key, len(first_run)), str(task.task_name), kernel, weight)
    if not tasks:
        raise ConfigError(
            f"workload.{request.name}: no kernel of this network can be measured"
            + "".join(f"; {reason}" for reason in left_out)
        )
    names = Names(request.name)
    workloads = []
    for key, (_, function, kernel, weight) in sorted(tasks.items(), key=lambda item: (item[1][0], item[0])):
        kind = kind_of(function)
        arguments = {"parameters": parameters(kernel)}
        networks = {request.label: weight}
        workloads.append(Workload(key, names.next(kind), kind, arguments, module_json(kernel), networks))
    return workloads, left_out


def parameters(kernel: Any) -> list[str]:
    """Types and shapes of the inputs and outputs: `float32[1, 64, 56, 56]`."""
    return [f"{buffer.dtype}{[int(extent) for extent in buffer.shape]}" for buffer in kernel["main"].params]


def unmeasurable(kernel: Any) -> str:
    """Why random inputs cannot be made for a kernel; empty where they can."""
    load_tvm()
    from tvm.tirx import Buffer, IntImm

    for parameter in kernel["main"].params:
        if not isinstance(parameter, Buffer):
            return f"its parameter {parameter} is a scalar, not a tensor"
        unknown = [extent for extent in parameter.shape if not isinstance(extent, IntImm | int)]
        if unknown:
            shape = ", ".join(str(extent) for extent in parameter.shape)
            return f"{parameter.name} has the dynamic shape [{shape}]; give numbers"
    return ""


def unschedulable(kernel: Any) -> str:
    """Why MetaSchedule finds no space of schedules for a kernel; empty where it does."""
    load_tvm()
    from tvm.s_tir import meta_schedule

    try:
        context = meta_schedule.TuneContext(
            mod=kernel, target=make_target(ANY_TARGET), space_generator="post-order-apply", num_threads=1
        )
        if not context.generate_design_space():
            return "MetaSchedule finds no schedule for it"
    except Exception as error:
        return f"MetaSchedule cannot schedule it: {first_line(error)}"
    return ""


def first_line(error: BaseException) -> str:
    """The line of an error that says most: its first, without what only a developer of torch can use."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def exported_program(name: str, network: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The network as torch exports it.

    Raises:
        ConfigError: torch cannot.
    """
    import torch

    try:
        with torch.no_grad():
            return torch.export.export(network.eval(), positional, named or None)
    except Exception as error:
        raise ConfigError(
            f"workload.{name}: torch cannot export this network with this example: {_export_fault(error)}; try "
            "`torch.export.export(network, example)` in a file of its own"
        ) from error


def _export_fault(error: Exception) -> str:
    """Why torch could not, and at which line of the network's code, where it came to any."""
    import torch
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    fault = first_line(error)
    if isinstance(error, GuardOnDataDependentSymNode):
        fault = "its course depends on the values in a tensor (take torch.where, or leave out the way not taken)"
    libraries = [Path(file).parent for file in (torch.__file__, __file__, traceback.__file__)]
    own = [
        f"{frame.filename}:{frame.lineno}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.line and not any(Path(frame.filename).is_relative_to(folder) for folder in libraries)
    ]
    return f"{fault}, at {own[-1]}" if own else fault


def imported_module(name: str, program: Any) -> Any:
    """An exported network as TVM's Relax has it, its operators those of Relax and its weights constants.

    Raises:
        ConfigError: it has dynamic shapes, or an operator that TVM has not.
    """
    load_tvm()
    from tvm.relax.frontend.torch import from_exported_program

    symbolic = [str(extent) for extent in program.range_constraints]
    if symbolic:
        raise ConfigError(
            f"workload.{name}: the network has dynamic shapes ({', '.join(symbolic)}): sizes that depend on the values "
            "of its input; write it with fixed sizes"
        )
    try:
        with warnings.catch_warnings():
            # of torch about a class of its own, when TVM copies the program
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            return from_exported_program(program)
    except Exception as error:
        reason = first_line(error)
        unsupported = re.findall(r"'([^']+)'", reason) if "nsupported" in reason else []
        what = f"has no operator {', '.join(unsupported)}" if unsupported else f"cannot convert it: {reason}"
        raise ConfigError(
            f"workload.{name}: TVM's importer {what}; replace that part of the network by what TVM knows"
        ) from error


def _first_runs(module: Any) -> dict[str, int]:
    """Where in `main` each kernel is first called, by its key."""
    places: dict[str, int] = {}
    for function in calls_of(module["main"]):
        places.setdefault(kernel_key(module[function]), len(places))
    return places
