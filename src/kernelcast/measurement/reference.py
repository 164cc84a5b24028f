"""A small kernel that is always the same: its time tells the state the machine is in."""

from __future__ import annotations

from typing import Any

from kernelcast.errors import MeasurementError
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.messages import Build, Built, Failed, Prepare, Prepared, Repeat, Repeated, Sample, Sampled
from kernelcast.measurement.pool import ProgramProcess
from kernelcast.measurement.worker import calls_per_repeat
from kernelcast.measurement.workloads import from_module, matmul
from kernelcast.records import Outcome, Workload
from kernelcast.tvm_compat import load_tvm, parse_module

SIZE = 128
"""Rows, columns and depth of the reference matrix product; its operands fit into the second cache level."""

LIMIT_SECONDS = 120.0
"""For its build and its first run. Not the programs' limits: those may be set so low that nothing passes, and then the
programs shall say so."""

REPEAT_SECONDS = 0.002
"""Long enough to be timed well, short beside the repeats it stands next to."""


def reference_workload() -> Workload:
    """The reference matrix product, already scheduled: rows in parallel, columns in vectors."""
    load_tvm()
    from tvm.s_tir import Schedule

    plain = matmul("reference", SIZE, SIZE, SIZE)
    schedule = Schedule(parse_module(plain.module), seed=1)
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    row, column, depth = schedule.get_loops(block)
    outer, inner = schedule.split(column, [None, 16])
    schedule.reorder(row, outer, depth, inner)
    schedule.parallel(row)
    schedule.vectorize(inner)
    schedule.decompose_reduction(block, depth)
    return from_module("reference", "reference", plain.arguments, schedule.mod)


class ReferenceKernel:
    """The reference kernel in its own worker, timed beside every program."""

    def __init__(
        self, server: ForkServer, target: dict[str, Any], memory_limit_bytes: int, cores: tuple[int, ...] = ()
    ) -> None:
        self.program = ProgramProcess(server, memory_limit_bytes)
        self._cores = cores
        self._ask(self._build_request(target), Built)
        prepared: Prepared = self._ask(Prepare(seed=0), Prepared)
        self._calls = calls_per_repeat(prepared.call_seconds, REPEAT_SECONDS)

    def _build_request(self, target: dict[str, Any]) -> Build:
        if target["kind"] == "llvm":
            return Build(reference_workload(), None, target)
        # a GPU needs a schedule with threads: the first that is drawn, always the same one
        plain = matmul("reference", SIZE, SIZE, SIZE)
        sampled: Sampled = self._ask(Sample(plain, target, count=1, seed=0), Sampled)
        return Build(plain, sampled.candidates[0].trace, target)

    def seconds(self) -> float:
        """One repeat, now."""
        repeated: Repeated = self._ask(Repeat(self._calls, self._cores), Repeated)
        return repeated.run_seconds

    def _ask(self, request: Any, expected: type) -> Any:
        reply = self.program.ask(request, LIMIT_SECONDS, Outcome.RUN_TIMEOUT)
        if isinstance(reply, Failed):
            raise MeasurementError(
                f"the reference kernel, a matrix product of {SIZE} x {SIZE}, cannot be measured "
                f"({reply.outcome}: {reply.message}); check `target` and runner.memory_limit_bytes"
            )
        assert isinstance(reply, expected), reply
        return reply
