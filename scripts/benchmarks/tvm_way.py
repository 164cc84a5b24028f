"""TVM's own LocalBuilder and LocalRunner, as they are and with their slow import repaired."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import Any

from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, scheduled_module

logger = logging.getLogger(__name__)

SANITY_SECONDS = 600.0
"""Limit of a build for TVM as it is: under its own limit of 30 s every candidate may time out."""


@dataclass(frozen=True)
class Pass:
    """One pass over some candidates.

    Attributes:
        measured: candidates that got a time.
        wall_seconds: builds and runs, the start of the workers included.
    """

    measured: int
    wall_seconds: float


def measure(
    workloads: dict[str, Workload],
    target: dict[str, Any],
    candidates: list[Candidate],
    repaired: bool,
    limit_seconds: float = SANITY_SECONDS,
) -> Pass:
    """Builds and runs candidates as MetaSchedule does by default: one batch, evaluator and pools as they come."""
    load_tvm()
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.builder import BuilderInput, LocalBuilder
    from tvm.s_tir.meta_schedule.runner import LocalRunner, RunnerInput

    modules = [scheduled_module(workloads[one.workload_key], one.trace) for one in candidates]
    infos = [ArgInfo.from_entry_func(module, remove_preproc=True) for module in modules]
    # registers the intrinsics of this machine's processor alone; TVM's workers import it by its name
    initializer = load_tvm if repaired else None
    started = time.perf_counter()
    builder = LocalBuilder(timeout_sec=limit_seconds, initializer=initializer)
    runner = LocalRunner(timeout_sec=limit_seconds, initializer=initializer)
    built = builder.build([BuilderInput(module, make_target(target)) for module in modules])
    inputs = [
        RunnerInput(result.artifact_path, "cpu", info)
        for result, info in zip(built, infos, strict=True)
        if result.error_msg is None
    ]
    results = [future.result() for future in runner.run(inputs)]
    wall = time.perf_counter() - started
    with contextlib.suppress(Exception):  # its workers end with this process at the latest
        runner.pool.shutdown()
    errors = [result.error_msg for result in (*built, *results) if result.error_msg is not None]
    if errors:
        logger.info("TVM: %d candidates failed, the first: %s", len(errors), " ".join(str(errors[0]).split())[-400:])
    return Pass(sum(result.error_msg is None for result in results), wall)
