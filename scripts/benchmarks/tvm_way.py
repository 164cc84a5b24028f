"""TVM's own LocalBuilder and LocalRunner, as they are and with their slow import repaired."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, scheduled_module

logger = logging.getLogger(__name__)

LIMIT_SECONDS = 600.0
"""Limit of a build: under TVM's own of 30 s every candidate may time out for the import alone."""


@dataclass(frozen=True)
class Pass:
    """One pass over some candidates.

    Attributes:
        measured: candidates that got a time.
        wall_seconds: builds and runs, the start of builder and runner included.
    """

    measured: int
    wall_seconds: float

    @property
    def rate(self) -> float:
        """Candidates a second; that of one candidate where none was measured, an upper bound."""
        return max(self.measured, 1) / self.wall_seconds


def measure(
    workloads: Sequence[Workload], target: dict[str, Any], candidates: Sequence[Candidate], repaired: bool
) -> Pass:
    """Builds and runs candidates as MetaSchedule does by default: one batch, evaluator and pools as they come."""
    load_tvm()
    from tvm.s_tir.meta_schedule.builder import LocalBuilder
    from tvm.s_tir.meta_schedule.runner import LocalRunner, RunnerInput

    inputs, infos = _inputs(workloads, target, candidates)
    # registers the intrinsics of this machine's processor alone; TVM's workers import it by its name
    initializer = load_tvm if repaired else None
    started = time.perf_counter()
    builder = LocalBuilder(timeout_sec=LIMIT_SECONDS, initializer=initializer)
    runner = LocalRunner(timeout_sec=LIMIT_SECONDS, initializer=initializer)
    built = builder.build(inputs)
    runs = [
        RunnerInput(result.artifact_path, "cpu", info)
        for result, info in zip(built, infos, strict=True)
        if result.error_msg is None
    ]
    results = [future.result() for future in runner.run(runs)]
    wall = time.perf_counter() - started
    runner.pool.shutdown()
    return _pass([*(result for result in built if result.error_msg), *results], wall)


def build_one(
    workloads: Sequence[Workload], target: dict[str, Any], candidate: Candidate, limit_seconds: float
) -> Pass:
    """Has TVM's builder as it is build one candidate, for so long: a lower bound of what it needs."""
    load_tvm()
    from tvm.s_tir.meta_schedule.builder import LocalBuilder

    inputs, _ = _inputs(workloads, target, [candidate])
    builder = LocalBuilder(max_workers=1, initializer=load_tvm)
    builder.initializer, builder.timeout_sec = None, limit_seconds
    started = time.perf_counter()
    built = builder.build(inputs)
    return _pass(built, time.perf_counter() - started)


def _inputs(
    workloads: Sequence[Workload], target: dict[str, Any], candidates: Sequence[Candidate]
) -> tuple[list[Any], list[Any]]:
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.builder import BuilderInput

    by_key = {workload.key: workload for workload in workloads}
    modules = [scheduled_module(by_key[one.workload_key], one.trace) for one in candidates]
    inputs = [BuilderInput(module, make_target(target)) for module in modules]
    return inputs, [ArgInfo.from_entry_func(module, remove_preproc=True) for module in modules]


def _pass(results: Sequence[Any], wall_seconds: float) -> Pass:
    errors = [str(result.error_msg) for result in results if result.error_msg is not None]
    if errors:
        logger.info("TVM: %d candidates failed, the first: %s", len(errors), " ".join(errors[0].split())[-300:])
    return Pass(len(results) - len(errors), wall_seconds)
