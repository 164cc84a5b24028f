"""What is to be predicted: programs one by one, whatever they came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.measurement.workloads import from_module
from kernelcast.records import Workload
from kernelcast.tvm_compat import (
    is_scheduled,
    load_tvm,
    parse_module,
    replayed_schedule,
    structural_key,
    trace_fault,
)


class Origin(StrEnum):
    """Where a program comes from."""

    GIVEN = "given"
    """The module or the schedule that was given."""

    DRAWN = "drawn"
    """A random schedule of a workload that was given without one."""

    RECORDED = "recorded"
    """A record of a tuning database, or a row of measurements or graphs."""


@dataclass(frozen=True)
class Subject:
    """One program.

    Attributes:
        workload: what it computes.
        trace: the schedule trace as JSON; empty where the module of the workload is the program itself.
        program_key: structural hash of the program, where it is known.
        measured_seconds: where it is known.
        origin: see `Origin`.
        target: what it was measured on; None for what the question says.
        live: TVM's schedule of it, where it is at hand.
        signature: types of its parameters, where nobody says what workload it is a schedule of.
    """

    workload: Workload
    trace: str = ""
    program_key: str = ""
    measured_seconds: float | None = None
    origin: Origin = Origin.GIVEN
    target: Mapping[str, Any] | None = None
    live: Any = None
    signature: str = ""

    @cached_property
    def unscheduled(self) -> bool:
        """Whether it is a workload without a schedule."""
        return not self.has_trace and self.workload.loadable and not is_scheduled(self.workload.module)

    @property
    def group(self) -> str:
        """What programs have in common that are compared with each other: the workload.

        Scheduled modules alone do not tell theirs; those with equal parameters count as programs of one.
        """
        return self.signature or self.workload.key

    @property
    def has_trace(self) -> bool:
        """Whether it is known how the program came of its workload."""
        return bool(self.trace) or self.live is not None

    def schedule(self) -> Any:
        """The program as a TVM schedule.

        Raises:
            MalformedDataError: another TVM wrote the workload, the trace does not apply to it, or it makes another
                program than the one that is known.
        """
        if self.live is not None:
            return self.live
        if not self.workload.loadable:
            raise MalformedDataError(
                f"workload {self.workload.name} was written by TVM {self.workload.written_by}, which this one cannot "
                "load; only a model that looks at nothing but the trace can predict its programs"
            )
        if not self.trace:
            load_tvm()
            from tvm.s_tir import Schedule

            return Schedule(parse_module(self.workload.module), seed=1, error_render_level="fast")
        schedule = replayed_schedule(self.workload, self.trace)
        if self.program_key and structural_key(schedule.mod) != self.program_key:
            raise MalformedDataError(f"the trace makes another program of workload {self.workload.name} than it did")
        return schedule


def subjects_of_module(module: Any, name: str = "") -> list[Subject]:
    """One program a TensorIR function of a TVM module or function.

    Args:
        module: an `IRModule` or a `PrimFunc`.
        name: of the workload; by default that of the function, unless it is `main`.

    Raises:
        MalformedDataError: it holds no TensorIR function.
    """
    tvm = load_tvm()
    functions = (
        {"main": module}
        if isinstance(module, tvm.tirx.PrimFunc)
        else {variable.name_hint: function for variable, function in module.functions.items()}
    )
    kept = {known: one for known, one in sorted(functions.items()) if isinstance(one, tvm.tirx.PrimFunc)}
    if not kept:
        found = ", ".join(f"{known} ({type(one).__name__})" for known, one in functions.items()) or "no function"
        raise MalformedDataError(
            f"{name or 'the module'} holds no TensorIR function but {found}; a whole network is predicted from its "
            "torch.nn.Module or by name"
        )
    subjects = []
    for known, function in kept.items():
        called = name if len(kept) == 1 or not name else f"{name}.{known}"
        alone = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        workload = from_module(called or (known if known != "main" else "module"), "program", {}, alone)
        subjects.append(Subject(workload, signature=_signature(function) if is_scheduled(workload.module) else ""))
    return subjects


def subject_of_pair(module: Any, trace: Any, name: str = "") -> Subject:
    """A schedule trace of a workload.

    Args:
        module: the unscheduled workload: a TVM module or function, or a `Workload`.
        trace: TVM's `Trace`, its JSON, or that as text.
        name: of the workload.

    Raises:
        ConfigError: the trace is none.
        MalformedDataError: the module has not exactly one TensorIR function.
    """
    workload = module if isinstance(module, Workload) else _only_workload(module, name)
    if hasattr(trace, "as_json"):
        return Subject(workload, json.dumps(trace.as_json(), default=lambda boxed: boxed.value))
    try:
        parsed = json.loads(trace) if isinstance(trace, str) else trace
    except ValueError as error:
        raise ConfigError(f"the schedule trace of {workload.name} is not JSON: {error}") from error
    fault = trace_fault(parsed)
    if fault:
        raise ConfigError(f"the schedule trace of {workload.name} is none: {fault}")
    return Subject(workload, json.dumps(parsed))


def subject_of_schedule(schedule: Any, name: str = "") -> Subject:
    """The program that a TVM schedule is now.

    Raises:
        MalformedDataError: its module has not exactly one TensorIR function.
    """
    program = _only(subjects_of_module(schedule.mod, name))
    traced = schedule.trace is not None and len(schedule.trace.insts)
    return replace(program, live=schedule) if traced else program


def _signature(function: Any) -> str:
    return "; ".join(f"{getattr(one, 'dtype', '')}{getattr(one, 'shape', '')}" for one in function.params)


def _only_workload(module: Any, name: str) -> Workload:
    return _only(subjects_of_module(module, name)).workload


def _only(subjects: Sequence[Subject]) -> Subject:
    if len(subjects) != 1:
        raise MalformedDataError(
            f"a schedule trace belongs to a module with one TensorIR function, this one has {len(subjects)}"
        )
    return subjects[0]
