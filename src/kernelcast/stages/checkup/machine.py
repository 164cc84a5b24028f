"""The machine as a campaign would find it: processor, cores, memory, GPU, devices, and how steady its times are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from kernelcast.errors import KernelcastError
from kernelcast.measurement.host import cores_of_machine, cpu_identity
from kernelcast.measurement.remote import RpcRunner
from kernelcast.measurement.steadiness import NEAR_BEST, ROUNDS, Steadiness, steadiness, time_reference
from kernelcast.measurement.tracker import START_SERVER, START_TRACKER, Tracker
from kernelcast.stages.checkup.findings import Finding, Status
from kernelcast.tvm_compat import available_cores, check_runs_here, describe_gpu, resolve_target
from kernelcast.tvm_compat.cuda import choose_compiler

AREA = "machine"
TIMING = "timing"

GIB = 2**30

CGROUP = Path("/sys/fs/cgroup")
"""Where Linux tells the limits of a container."""

LEAST_MEMORY_BYTES = 4 * GIB
"""A tenth of it is enough for one program; torch, TVM and a batch of loaded programs want some."""

GOOD_SPREAD = 1.03
BAD_SPREAD = 1.10
"""Of labels of equal programs: neighbouring schedules differ by some percent, so above it nothing is learned."""

BUSY_SHARE = 0.5
"""Load a core, from which on programs and others share the cores."""

CALM_SHARE = 0.2
"""Of the repeats that are near the best one; with fewer even minima are in doubt."""


def machine_findings(target: Any, runner: Any, memory_limit_bytes: int) -> Iterator[Finding]:
    """What is there to measure on.

    Args:
        target: `config.target`, not complete.
        runner: what `config.runner.devices` makes.
        memory_limit_bytes: of a program.
    """
    yield Finding(AREA, "processor", cpu_identity())
    yield target_finding(target, isinstance(runner, RpcRunner))
    yield from cores_findings(available_cores(), os.cpu_count() or 1, cores_of_machine(), cpu_quota(CGROUP))
    memory = psutil.virtual_memory()
    limit = memory_limit(CGROUP)
    yield memory_finding(memory.available, memory.total, limit, memory_limit_bytes)
    yield load_finding(os.getloadavg()[0], available_cores())
    gpu = describe_gpu()
    compiler = choose_compiler() or "none (pip install cuda-bindings, or put nvcc on PATH)"
    # no GPU is no fault
    yield Finding(
        AREA, "GPU", f"none: {gpu}" if isinstance(gpu, str) else f"{gpu.name}, {gpu.arch}; compiler: {compiler}"
    )
    if isinstance(runner, RpcRunner):
        yield tracker_finding(runner.tracker, runner.key)


def target_finding(target: Any, remote: bool) -> Finding:
    """What the configured target becomes, and whether its programs can be measured here."""
    try:
        complete = resolve_target(target)
        if not remote:
            check_runs_here(complete)
    except KernelcastError as error:
        return Finding(AREA, "target", json.dumps(target), Status.FAULT, str(error))
    return Finding(AREA, "target", f"{json.dumps(target)} becomes {json.dumps(complete)}")


def cores_findings(usable: int, all_of_them: int, physical: list[list[int]], quota: float | None) -> Iterator[Finding]:
    """How many cores a campaign has, and whether they are whole ones.

    Args:
        usable: hardware threads that this process may use.
        all_of_them: that the machine has.
        physical: the cores of the usable ones, each with its hardware threads.
        quota: of processor time, in cores; None: no limit.
    """
    shared = sum(len(threads) > 1 for threads in physical)
    found = f"{usable} of {all_of_them} hardware threads usable, on {len(physical)} cores"
    if shared:
        found += f", {shared} of them with several threads: programs are timed on one thread of each"
    yield Finding(AREA, "cores", found)
    if quota is not None and quota < usable:
        yield Finding(
            AREA, "processor time", f"limited to {quota:g} cores of {usable} (cgroup)", Status.WARNING,
            f"programs are stopped in the middle of a repeat: raise the limit, or pin this process to "
            f"{max(1, int(quota))} cores instead (taskset, --cpuset-cpus)",
        )  # fmt: skip


def cpu_quota(folder: Path) -> float | None:
    """Cores of processor time that a cgroup allows; None: no limit, or not told."""
    try:
        used, period = (folder / "cpu.max").read_text().split()
        return None if used == "max" else int(used) / int(period)
    except (OSError, ValueError):
        pass
    try:
        used, period = ((folder / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return None if int(used) <= 0 else int(used) / int(period)
    except (OSError, ValueError):
        return None


def memory_limit(folder: Path) -> int | None:
    """Bytes that a cgroup allows; None: no limit, or not told."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = int((folder / name).read_text())
        except (OSError, ValueError):
            continue
        # the older form says "no limit" by a number near 2**63
        return limit if limit < 2**60 else None
    return None


def memory_finding(available_bytes: int, total_bytes: int, limit_bytes: int | None, program_bytes: int) -> Finding:
    """Whether there is memory for a program at its limit and what measures it."""
    found = f"{available_bytes / GIB:.1f} GiB of {total_bytes / GIB:.1f} GiB available"
    least = available_bytes
    if limit_bytes is not None and limit_bytes < total_bytes:
        found += f", limited to {limit_bytes / GIB:.1f} GiB (cgroup)"
        least = min(least, limit_bytes)
    found += f"; a program may take {program_bytes / GIB:.1f} GiB"
    if least < max(LEAST_MEMORY_BYTES, program_bytes):
        advice = "lower runner.memory_limit_bytes and runner.timing.batch_size, or give it more"
        return Finding(AREA, "memory", found, Status.WARNING, advice)
    return Finding(AREA, "memory", found)


def load_finding(load: float, cores: int) -> Finding:
    """What else runs: processes that wait for a core, over the last minute."""
    found = f"{load:.1f} processes at work on {cores} cores (last minute)"
    if load > BUSY_SHARE * cores:
        advice = (
            "measure when the machine is idle, or by `nice -n -5` (as root); what it costs the doctor's timing tells"
        )
        return Finding(AREA, "load", found, Status.WARNING, advice)
    return Finding(AREA, "load", found)


def tracker_finding(tracker: Tracker, key: str | None) -> Finding:
    """The RPC tracker and its devices."""
    what = f"tracker {tracker.host}:{tracker.port}"
    try:
        devices: Mapping[str, int] = tracker.devices()
    except KernelcastError as error:
        advice = f"{error}; start one: {START_TRACKER.format(host=tracker.host, port=tracker.port)}"
        return Finding(AREA, what, "does not answer", Status.FAULT, advice)
    found = ", ".join(f"{count} of key {name}" for name, count in sorted(devices.items())) or "no devices"
    if key is None or not devices.get(key):
        wanted = "runner.devices.key is not set" if key is None else f"none of key {key}"
        start = START_SERVER.format(host=tracker.host, port=tracker.port, key=key or "KEY")
        return Finding(AREA, what, f"{found}; {wanted}", Status.FAULT, f"on a device: {start}")
    return Finding(AREA, what, found)


def timing_findings(target: Any, seconds: float) -> Iterator[Finding]:
    """Times the reference kernel for some seconds, as a campaign would, and says what labels can be had.

    Args:
        target: `config.target`, not complete.
        seconds: how long.
    """
    try:
        complete = resolve_target(target)
        check_runs_here(complete)
        repeats = time_reference(complete, seconds)
    except KernelcastError as error:
        yield Finding(TIMING, "reference kernel", "cannot be timed", Status.FAULT, str(error))
        return
    yield from steadiness_findings(steadiness(repeats, seconds))


def steadiness_findings(measured: Steadiness) -> Iterator[Finding]:
    """What the steadiness of the reference kernel means for measuring."""
    calm = f"{measured.near_best:.0%} of {measured.repeats} repeats within {NEAR_BEST - 1:.0%} of the best"
    found = (
        f"{1e3 * measured.best_seconds:.3g} ms at best, median {measured.median:.2f} and 90th percentile "
        f"{measured.p90:.2f} times that; {calm}"
    )
    busy = measured.near_best < CALM_SHARE
    advice = "something else runs on these cores: stop it, choose other cores (taskset) or another hour" if busy else ""
    yield Finding(TIMING, "reference kernel", found, Status.WARNING if busy else Status.OK, advice)
    if measured.speeds:
        fast, slow = measured.speeds
        yield Finding(
            TIMING, "two speeds", f"at times the machine takes {slow / fast:.2f} times as long", Status.WARNING,
            "a neighbour on the same core, or a changing clock: the minimum over rounds (runner=default) copes with "
            "it, repeats in a row (runner=in_a_row) do not",
        )  # fmt: skip
    spread = measured.label_spread
    found = (
        f"labels of equal programs, the minima of {ROUNDS} rounds, differ by {spread - 1:.1%}; medians of repeats in "
        f"a row by {measured.in_a_row_spread - 1:.1%}"
    )
    if spread <= GOOD_SPREAD:
        yield Finding(TIMING, "worth measuring", f"yes: {found}")
    elif spread <= BAD_SPREAD:
        advice = "more rounds (runner.timing.most_rounds, budget_seconds) help, and a calmer machine helps more"
        yield Finding(TIMING, "worth measuring", f"with care: {found}", Status.WARNING, advice)
    else:
        advice = "no model can tell programs apart that differ by less: do not measure now; look again later"
        yield Finding(TIMING, "worth measuring", f"no: {found}", Status.FAULT, advice)
