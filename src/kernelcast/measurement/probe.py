"""Measures one program in this process, step by step, and says which step fails: for when nothing can be measured.

A campaign runs programs in workers with limits of time and memory, which is safe but hides where it goes wrong. Here
nothing is isolated: what crashes, crashes here, after its step was announced.
"""

from __future__ import annotations

import faulthandler
import logging
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from kernelcast.errors import MeasurementError
from kernelcast.measurement.devices import LoadedProgram
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.messages import Build, Failed, Prepare, Repeat
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.worker import BuiltProgram, calls_per_repeat
from kernelcast.tvm_compat import load_tvm, prepare_for, tvm_versions

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


def probe(plan: Plan) -> None:
    """Samples, builds, runs and times one program of the plan's first workload in this process, then as campaigns do.

    Every step is announced before it begins and logged with its seconds. A step that takes longer than the limit that
    campaigns set for it is reported with the key to raise. Programs for other devices are not run in this process.

    Raises:
        MeasurementError: a step failed, or would have run into its limit; names the step and what to do.
    """
    faulthandler.enable()
    workload = plan.workloads[0]
    logger.info("probing %s on %s with %s", workload.name, plan.target, tvm_versions())
    _step("import: TVM and the intrinsics of the target", lambda: _load(plan.target))
    if isinstance(plan.runner, LocalRunner):
        _in_this_process(plan)
    loading = _step(
        "worker: a program in a forked worker or on a device, under its limits", lambda: _load_in_worker(plan)
    )
    if isinstance(loading, Failed):
        raise MeasurementError(
            f"probe: in a worker the program ends as {loading.outcome.value}: {' '.join(loading.message.split())}; "
            "compare the limits, runner.memory_limit_bytes and those of time, with the steps above"
        )
    logger.info("every step works: %s can be measured here", workload.name)


def _in_this_process(plan: Plan) -> None:
    settings, workload = plan.settings, plan.workloads[0]
    candidates = _step("sample: one schedule", lambda: sample_candidates(workload, plan.target, 1, plan.seed))
    program = _step(
        "build: the program, LLVM included",
        lambda: BuiltProgram(Build(workload, candidates[0].trace, plan.target)),
        settings.build_timeout_seconds,
        "runner.build_timeout_seconds",
    )
    prepared = _step(
        "run: random inputs and a first call",
        lambda: _or_raise(program.prepare(Prepare(plan.seed))),
        settings.run_timeout_seconds,
        "runner.run_timeout_seconds",
    )
    calls = calls_per_repeat(prepared.call_seconds, settings.timing.repeat_seconds)
    repeated = _step(
        f"time: one repeat of {calls} calls",
        lambda: program.repeat(Repeat(calls)),
        settings.run_timeout_seconds,
        "runner.run_timeout_seconds",
    )
    logger.info("one call takes %.4g ms", 1e3 * repeated.run_seconds)


def _step(name: str, work: Callable[[], Value], limit_seconds: float | None = None, key: str = "") -> Value:
    logger.info("%s ...", name)
    started = time.perf_counter()
    try:
        value = work()
    except Exception as error:
        reason = " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split())
        raise MeasurementError(f"probe: the step `{name}` fails: {type(error).__name__}: {reason}") from error
    seconds = time.perf_counter() - started
    logger.info("%s: %.2f s", name.partition(":")[0], seconds)
    if limit_seconds is not None and seconds > limit_seconds:
        raise MeasurementError(
            f"probe: the step `{name}` takes {seconds:.2f} s, its limit is {limit_seconds:g} s, which programs "
            f"would run into; raise {key}"
        )
    return value


def _load(target: dict[str, Any]) -> None:
    load_tvm()
    prepare_for(target)


def _or_raise(reply: Value | Failed) -> Value:
    if isinstance(reply, Failed):
        raise MeasurementError(reply.message)
    return reply


def _load_in_worker(plan: Plan) -> LoadedProgram | Failed:
    workload = plan.workloads[0]
    with (
        TemporaryDirectory(prefix="kernelcast-") as folder,
        plan.runner.open(plan.target, plan.settings, plan.seed, Path(folder)) as runner,
    ):
        (candidate,) = runner.sample(workload, 1, plan.seed, ())
        program = runner.devices[0].load(workload, candidate, runner.expected(workload)).program
        if not isinstance(program, Failed):
            program.close()
        return program
