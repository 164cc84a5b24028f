"""Workloads whose programs really go wrong: real TVM modules, built and run like any other."""

from kernelcast.measurement.workloads import from_module
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm


def _program(name: str, statement: str, length: int = 8) -> Workload:
    """A copy of `length` numbers whose every element needs `statement`, a source line of TVM script."""
    load_tvm()
    from tvm.script import from_source

    source = f"""
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
"""
    return from_module(name, name, {"length": length}, from_source(source))


def calling(name: str, function: str) -> Workload:
    """Calls a function of the C library in place of computing: `abort`, or `pause`, which never returns."""
    return _program(name, f'result[vi] = T.Cast("float32", T.call_extern("int32", "{function}"))')


def not_a_number(name: str) -> Workload:
    """Computes the square root of a negative number."""
    return _program(name, "result[vi] = T.sqrt(T.float32(-1.0) - source[vi] * source[vi])")


def unknown_function(name: str) -> Workload:
    """Cannot be linked."""
    return calling(name, "kernelcast_no_such_function")


def large(name: str, length: int) -> Workload:
    """A harmless copy of many numbers."""
    return _program(name, "result[vi] = source[vi]", length)
