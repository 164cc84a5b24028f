"""From whatever a user gives to the programs that are meant."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError, MissingInputError
from kernelcast.prediction.files import KINDS, Check, is_graphs, subjects_of_path
from kernelcast.prediction.names import (
    InPython,
    meant,
    named_workloads,
    network_names,
    operator_names,
    python_workloads,
    torch_workloads,
)
from kernelcast.prediction.subjects import Subject, subject_of_pair, subject_of_schedule, subjects_of_module
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm


def asked(what: Any, shape: Mapping[str, Any], example: Any, code: InPython, check: Check) -> list[Subject] | Path:
    """The programs of what `Predictor.predict` takes; a path where it is a folder of graphs.

    Args:
        what: see there.
        shape: sizes of an operator or network by name.
        example: the input of a `torch.nn.Module`.
        code: what to take from a Python file.
        check: raises where the model does not know a target.

    Raises:
        ConfigError: it is nothing that can be predicted.
        MissingInputError: there is no such file.
        MalformedDataError: a file cannot be read.
    """
    if isinstance(what, str | Path):
        return asked_by_text(what, shape, code, check)
    if isinstance(what, list) or (isinstance(what, tuple) and not _is_pair(what)):
        subjects: list[Subject] = []
        for one in what:
            more = asked(one, shape, example, code, check)
            if isinstance(more, Path):
                raise ConfigError(f"{more} is a folder of graphs: predict it by itself, not in a list")
            subjects += more
        return subjects
    if isinstance(what, tuple):
        return [subject_of_pair(*what)]
    if isinstance(what, Workload):
        return [Subject(what)]
    tvm = load_tvm()
    if isinstance(what, tvm.IRModule | tvm.tirx.PrimFunc):
        return subjects_of_module(what)
    if isinstance(what, tvm.s_tir.Schedule):
        return [subject_of_schedule(what)]
    if _is_torch_module(what):
        return [Subject(one) for one in torch_workloads(what, example, type(what).__name__)]
    raise ConfigError(
        f"a {type(what).__module__}.{type(what).__qualname__} cannot be predicted; give a TVM IRModule, PrimFunc or "
        "Schedule, a pair of a module and a trace, a torch.nn.Module with example=, a path, a name, or a list of those"
    )


def asked_by_text(text: str | Path, shape: Mapping[str, Any], code: InPython, check: Check) -> list[Subject] | Path:
    """The programs of a path, or of an operator or a network by name; see `asked`."""
    path = Path(text).expanduser()
    if path.exists():
        if is_python(path):
            return [Subject(one) for one in python_workloads(path, code)]
        return path if is_graphs(path) else subjects_of_path(path, check)
    workloads = named_workloads(str(text), shape) if isinstance(text, str) else None
    if workloads is None:
        names = list(operator_names()), list(network_names())
        # what is written as a file was meant as one
        near = "" if path.suffix or len(path.parts) > 1 else meant(str(text), [*names[0], *names[1]])
        raise MissingInputError(
            f"input={text}: there is no such file or folder, and no operator or network of this name"
            f"{near}. A path can be {KINDS}. Operators: {', '.join(names[0])}. "
            f"Networks: {', '.join(names[1])}"
        )
    return [Subject(one) for one in workloads]


def is_python(path: Path) -> bool:
    """Whether this is a Python file."""
    return path.is_file() and path.suffix == ".py"


def _is_pair(what: tuple[Any, ...]) -> bool:
    """Whether this is a module with a trace: a pair of modules is a list of two."""
    if len(what) != 2:
        return False
    module, trace = what
    if isinstance(module, str | Path):
        return False
    return hasattr(trace, "as_json") or isinstance(trace, str | list)


def _is_torch_module(what: Any) -> bool:
    # of whoever has made one, torch is loaded
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(what, torch.nn.Module)
