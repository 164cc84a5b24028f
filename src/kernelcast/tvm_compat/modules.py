"""TVM modules: from and to JSON, what a trace makes of them, what of them runs."""

from __future__ import annotations

import importlib
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernelcast.errors import MalformedDataError
from kernelcast.records import Workload
from kernelcast.tvm_compat.loading import load_tvm

if TYPE_CHECKING:
    import tvm

LAYOUT_CHANGE = "meta_schedule.layout_rewrite_preproc"
"""Marks the block that changes the layout of a weight."""

PLAIN_BINDINGS = ("ir.Var", "ir.IntImm")
"""What the axes of an unscheduled block are bound to: a loop, or a constant where the axis has one step."""


def runnable_module(module: Any) -> tvm.IRModule:
    """The part of a scheduled program that is built and timed, as by MetaSchedule's own builder.

    A schedule may change the layout of weights. The block that does so (`layout_changes`) belongs to the compilation of
    a network, so here it is emptied, and the program takes weights of the new shape.
    """
    load_tvm()
    transform = importlib.import_module("tvm.s_tir.transform")
    return transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)


def layout_changes(module: Any) -> dict[int, tvm.IRModule]:
    """What a scheduled program does to the layout of its weights before it computes, and `runnable_module` leaves out.

    Args:
        module: the whole scheduled program.

    Returns:
        By position among the program's arguments: a program of two arguments, which writes the first one in the layout
        of the second one.
    """
    tvm = load_tvm()
    s_tir = importlib.import_module("tvm.s_tir")
    main = module["main"]
    body = main.body.block.body
    changes = {}
    for nest in body.seq if isinstance(body, tvm.tirx.SeqStmt) else [body]:
        inner = nest
        while isinstance(inner, tvm.tirx.For):
            inner = inner.body
        if isinstance(inner, s_tir.SBlockRealize) and LAYOUT_CHANGE in inner.block.annotations:
            before, after = inner.block.reads[0].source, inner.block.writes[0].source
            position = next(index for index, argument in enumerate(main.params) if argument.same_as(before))
            root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", nest))
            attributes = {"global_symbol": "main", "s_tir": True}
            function = tvm.tirx.PrimFunc([before, after], root).with_attr(attributes)
            changes[position] = tvm.IRModule({"main": function})
    return changes


def structural_key(module: Any) -> str:
    """Structural hash of a TVM module, 16 hexadecimal digits; equal modules have equal keys, in every process."""
    load_tvm()
    value = importlib.import_module("tvm_ffi").structural_hash(module)
    return f"{value & 0xFFFF_FFFF_FFFF_FFFF:016x}"


@lru_cache(maxsize=256)
def parse_module(text: str) -> tvm.IRModule:
    """A TVM module from its JSON, or from that of its one function; the last few are remembered.

    Raises:
        MalformedDataError: it is not a module.
    """
    tvm = load_tvm()
    try:
        module = tvm.ir.load_json(text)
    except AttributeError as error:  # TVM's Python looks into it before it is known to be an object
        raise MalformedDataError("not a TVM module in JSON but some other JSON") from error
    except Exception as error:  # whatever TVM's parser throws: json, tvm.error, ValueError
        raise MalformedDataError(f"not a TVM module in JSON: {str(error).strip().splitlines()[0]}") from error
    if isinstance(module, tvm.tirx.PrimFunc):
        return tvm.IRModule({"main": module})
    if not isinstance(module, tvm.IRModule):
        raise MalformedDataError(f"not a TVM module in JSON but a {type(module).__name__}")
    return module


def module_json(module: Any) -> str:
    """A TVM module as JSON, which `parse_module` reads."""
    return str(load_tvm().ir.save_json(module))


def is_scheduled(text: str) -> bool:
    """Whether a module in JSON has a schedule already: a loop that is not plain, or a block that is not bound to loops.

    A module without one has serial loops alone, and each axis of a block is one of them.
    """
    nodes = json.loads(text)["nodes"]
    for node in nodes:
        if node["type"] == "tirx.For":
            data = node["data"]
            if data["kind"] != 0 or nodes[data["annotations"]]["data"]:
                return True
        if node["type"] == "s_tir.SBlockRealize":
            bound = nodes[node["data"]["iter_values"]]["data"]
            if any(nodes[value]["type"] not in PLAIN_BINDINGS for value in bound):
                return True
    return False


def scheduled_module(workload: Workload, trace: str) -> tvm.IRModule:
    """The program that a schedule trace makes of a workload, postprocessing included.

    Its structural hash is the `program_key` that `measure` recorded.

    Args:
        workload: the unscheduled module.
        trace: the schedule trace as JSON.

    Raises:
        MalformedDataError: the trace is not JSON, or does not apply to this workload.
    """
    return replayed_schedule(workload, trace).mod


def replayed_schedule(workload: Workload, trace: str) -> tvm.s_tir.Schedule:
    """The schedule that a trace makes of a workload, as `scheduled_module`."""
    load_tvm()
    schedules = importlib.import_module("tvm.s_tir.schedule")
    # the seed only matters for decisions that the trace leaves open: none
    schedule = schedules.Schedule(parse_module(workload.module), seed=1, error_render_level="fast")
    try:
        schedules.Trace.apply_json_to_schedule(json.loads(trace), schedule)
    except Exception as error:
        # json, tvm.error.*, ScheduleError: all mean that this trace is no trace of this workload
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MalformedDataError(f"the trace does not apply to workload {workload.name}: {reason}") from error
    return schedule
