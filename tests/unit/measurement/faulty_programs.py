"""Workloads whose programs really go wrong: real TVM modules, built and run like any other."""

import json

from kernelcast.measurement.sampling import Candidate, candidate_of
from kernelcast.measurement.workloads import from_module
from kernelcast.records import Origin, Workload
from kernelcast.tvm_compat import load_tvm, parse_module

SCHEDULES_NOTHING = "[[],[]]"


def unscheduled(workload: Workload) -> Candidate:
    """The candidate that leaves the workload as it is."""
    return Candidate(workload.key, workload.key, SCHEDULES_NOTHING)


def _module(name: str, source: str, **arguments: int) -> Workload:
    load_tvm()
    from tvm.script import from_source

    return from_module(name, name, dict(arguments), from_source(source))


def _program(name: str, statement: str, length: int = 8) -> Workload:
    """A copy of `length` numbers whose every element needs `statement`, a source line of TVM script."""
    return _module(
        name,
        f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(source: T.Buffer(({length},), "float32"), result: T.Buffer(({length},), "float32")):
        T.func_attr({{"tirx.noalias": True}})
        for i in T.serial({length}):
            with T.sblock("copy"):
                vi = T.axis.spatial({length}, i)
                T.reads(source[vi])
                T.writes(result[vi])
                {statement}
""",
        length=length,
    )


def calling(name: str, function: str) -> Workload:
    """Calls a function of the C library in place of computing: `abort`, or `pause`, which never returns."""
    return _program(name, f'result[vi] = T.Cast("float32", T.call_extern("int32", "{function}"))')


def sleeping(name: str, microseconds: int) -> Workload:
    """Sleeps so long in one call."""
    return _program(name, f'result[vi] = T.Cast("float32", T.call_extern("int32", "usleep", {microseconds}))', 1)


def reading_far_outside(name: str) -> Workload:
    """Reads gigabytes before its input, where no memory is."""
    return _program(name, "result[vi] = source[vi - 1073741824]")


def needing_what_is_not_there(name: str) -> Workload:
    """Calls a function that TVM looks for when the program runs, and does not find."""
    return _program(name, 'result[vi] = T.call_packed("kernelcast.no_such_function", vi)')


def not_a_number(name: str) -> Workload:
    """Computes the square root of a negative number."""
    return _program(name, "result[vi] = T.sqrt(T.float32(-1.0) - source[vi] * source[vi])")


def unknown_function(name: str) -> Workload:
    """Cannot be linked."""
    return calling(name, "kernelcast_no_such_function")


def large(name: str, length: int) -> Workload:
    """A harmless copy of many numbers."""
    return _program(name, "result[vi] = source[vi]", length)


def hidden_order(name: str, rows: int = 8, columns: int = 64) -> Workload:
    """Each element needs two that must be computed before it, but the module does not say so.

    TVM takes its loops for independent: a schedule that vectorizes or reorders them is accepted and computes something
    else.
    """
    return _module(
        name,
        f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(
        source: T.Buffer(({rows}, {columns}), "float32"), result: T.Buffer(({rows + 1}, {columns + 2}), "float32")
    ):
        T.func_attr({{"tirx.noalias": True}})
        for i, j in T.grid({rows}, {columns}):
            with T.sblock("sum"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(source[vi, vj])
                T.writes(result[vi + 1, vj + 1])
                result[vi + 1, vj + 1] = (
                    source[vi, vj] + T.float32(0.5) * result[vi + 1, vj] + T.float32(0.5) * result[vi, vj + 2]
                )
""",
        rows=rows,
        columns=columns,
    )


def reordered(workload: Workload) -> Candidate:
    """The schedule of `hidden_order` that goes through columns first: TVM accepts it and it computes something else."""
    from tvm.s_tir import Schedule

    schedule = Schedule(parse_module(workload.module), seed=1)
    row, column = schedule.get_loops(schedule.get_sblock("sum"))
    schedule.reorder(column, row)
    return candidate_of(workload, schedule, Origin.RANDOM)


def large_inside(name: str, length: int) -> Workload:
    """A sum over `length` numbers that are first all written down; schedules that MetaSchedule draws do not do that."""
    return _module(
        name,
        f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(source: T.Buffer((8,), "float32"), result: T.Buffer((8,), "float32")):
        T.func_attr({{"tirx.noalias": True}})
        between = T.sblock_alloc_buffer((8, {length}), "float32")
        for i, j in T.grid(8, {length}):
            with T.sblock("between"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(source[vi])
                T.writes(between[vi, vj])
                between[vi, vj] = source[vi] * T.float32(0.5)
        for i, j in T.grid(8, {length}):
            with T.sblock("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                T.reads(between[vi, vj])
                T.writes(result[vi])
                with T.init():
                    result[vi] = T.float32(0)
                result[vi] = result[vi] + between[vi, vj]
""",
        length=length,
    )


def without_blocks(name: str) -> Workload:
    """Builds and runs, but has no block: MetaSchedule has nothing to schedule."""
    return _module(
        name,
        """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(source: T.Buffer((8,), "float32"), result: T.Buffer((8,), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in T.serial(8):
            result[i] = source[i]
""",
    )


def inlined(workload: Workload) -> Candidate:
    """The schedule of `large_inside` that writes nothing down."""
    from tvm.s_tir import Schedule

    schedule = Schedule(parse_module(workload.module), seed=1)
    schedule.compute_inline(schedule.get_sblock("between"))
    return candidate_of(workload, schedule, Origin.RANDOM)


def with_trace(workload: Workload, instructions: list[object]) -> Candidate:
    """A candidate from instructions of a trace as JSON."""
    return Candidate(workload.key, "0" * 16, json.dumps([instructions, []]))
