"""From tensor expressions to a workload."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernelcast.measurement.workloads.sizes import check_elements, plain
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, module_json, structural_key


def from_module(name: str, kind: str, arguments: dict[str, Any], module: Any) -> Workload:
    """A workload from any TVM module that holds one function `main`."""
    return Workload(structural_key(module), name, kind, arguments, module_json(module))


def from_tensors(
    operator: Callable[..., Workload], name: str, sizes: Mapping[str, Any], tensors: Sequence[Any], **choices: Any
) -> Workload:
    """The workload that computes the last of `tensors` from the others.

    Args:
        operator: the function that is called; its name is the workload's kind.
        name: of the workload.
        sizes: what it is made from; recorded as arguments.
        tensors: the inputs and the output, in the order of the program's parameters.
        choices: further arguments of `operator`; recorded where they are not its default.

    Raises:
        ConfigError: a tensor, of those in between also, has more elements than schedules can count.
    """
    tvm = load_tvm()
    for tensor in _all_tensors(tensors[-1]):
        check_elements(name, tensor.op.name, [int(extent) for extent in tensor.shape])
    function = te().create_prim_func(list(tensors)).with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    defaults = inspect.signature(operator).parameters
    unusual = {key: value for key, value in choices.items() if value != defaults[key].default}
    arguments = {key: plain(value) for key, value in {**sizes, **unusual}.items()}
    return from_module(name, operator.__name__, arguments, tvm.IRModule({"main": function}))


def placeholder(workload: str, name: str, shape: Sequence[int], dtype: str = "float32") -> Any:
    """An input of the workload; refused if it is too large."""
    check_elements(workload, name, shape)
    return te().placeholder(tuple(shape), dtype, name)


def accumulator(dtype: str) -> str:
    """The type in which products are added up: that of the data, but int32 for int8."""
    return "int32" if dtype == "int8" else dtype


def constant(value: float, dtype: str) -> Any:
    """A number within an expression of type `dtype`."""
    load_tvm()
    from tvm import tirx

    return tirx.const(value, dtype)


def te() -> Any:
    """TVM's tensor expressions."""
    load_tvm()
    from tvm import te

    return te


def topi() -> Any:
    """TVM's collection of operators."""
    load_tvm()
    from tvm import topi

    return topi


def _all_tensors(output: Any) -> Iterator[Any]:
    """The tensor and all that it is computed from, each once."""
    waiting, seen = [output], {output}
    while waiting:
        tensor = waiting.pop()
        yield tensor
        new = {each for each in tensor.op.input_tensors if each not in seen}
        seen |= new
        waiting += new
