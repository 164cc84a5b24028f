"""What the measuring machine is and how fast it can be at best."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kernelcast.errors import ConfigError
from kernelcast.machine import Host
from kernelcast.measurement.calibration import calibrate
from kernelcast.tvm_compat import GpuDescription, available_cores, describe_gpu, vector_bits

REPEATS = 7
MATRIX_SIZE = 1024
"""Rows, columns and depth of the product that shows the peak."""

COPY_BYTES = 128 * 1024**2
"""More than the caches of common processors hold."""

INSTRUCTION_SETS = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "asimd",
    "sve",
)

CPU = Path("/sys/devices/system/cpu/cpu0")
"""What Linux tells of the first processor."""

PRIVATE_CACHE_BYTES = 512 * 1024
"""Taken where the system does not tell: what most processors of the last ten years have at least."""


def probe_host(target: dict[str, Any]) -> Host:
    """Describes what runs programs of a target here, with its best speeds, in two or three seconds.

    Args:
        target: the complete TVM target: this processor, whose vectors it may leave unused, or the first GPU.

    Raises:
        ConfigError: a target of a GPU, and there is none.
    """
    if target["kind"] == "cuda":
        return _gpu_host()
    return Host(
        cpu=cpu_identity(),
        cores=available_cores(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        system=f"{platform.system()} {platform.release()}",
        peak_flops_per_second=peak_flops_per_second(),
        bytes_per_second=copy_bytes_per_second(),
        vector_lanes=max(1, vector_bits(target) // 32),
        cache_bytes=private_cache_bytes(CPU),
        calibration=calibrate(target, cores_of_machine(), caches_of(CPU)),
    )


def identity(target: dict[str, Any]) -> str:
    """What decides the run times of programs of a target here, in one line."""
    if target["kind"] != "cuda":
        return cpu_identity()
    gpu = _gpu()
    return f"{gpu.name}, {gpu.arch}, {gpu.multiprocessors} multiprocessors"


def _gpu_host() -> Host:
    gpu = _gpu()
    return Host(
        cpu=identity({"kind": "cuda"}),
        cores=gpu.multiprocessors,
        memory_bytes=gpu.memory_bytes,
        system=f"{platform.system()} {platform.release()}",
        peak_flops_per_second=gpu.peak_flops_per_second,
        bytes_per_second=gpu.bytes_per_second,
        vector_lanes=gpu.thread_warp_size,
        cache_bytes=gpu.cache_bytes,
    )


def _gpu() -> GpuDescription:
    gpu = describe_gpu()
    if isinstance(gpu, str):
        raise ConfigError(f"target.kind: there is no GPU that programs could run on: {gpu}")
    return gpu


def cpu_identity() -> str:
    """Model name, family and model numbers and instruction sets of the processor, in one line.

    Virtual machines often give names such as "AMD EPYC" to several generations, hence the numbers.
    """
    fields = _cpu_fields()
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key} {fields[key]}" for key in ("cpu family", "model") if key in fields]
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return ", ".join([name, platform.machine(), *numbers, " ".join(flag for flag in INSTRUCTION_SETS if flag in flags)])


def peak_flops_per_second() -> float:
    """Float32 operations a second of NumPy's matrix product on all cores, the best of a few; 2 flops a multiply-add."""
    generator = np.random.default_rng(0)
    left, right = generator.random((2, MATRIX_SIZE, MATRIX_SIZE), dtype=np.float32)
    product = np.empty_like(left)
    # whatever OMP_NUM_THREADS and the like say: the peak is the machine's, not the environment's
    with threadpool_limits(available_cores(), user_api="blas"):
        return 2.0 * MATRIX_SIZE**3 / _best_seconds(lambda: np.matmul(left, right, out=product))


def copy_bytes_per_second() -> float:
    """Bytes read plus bytes written a second in one large copy, the best of a few."""
    source = np.ones(COPY_BYTES, dtype=np.uint8)
    destination = np.zeros_like(source)
    return 2.0 * COPY_BYTES / _best_seconds(lambda: np.copyto(destination, source))


def cores_of_machine() -> list[list[int]]:
    """The physical cores that this process may use, each with its hardware threads, in ascending order."""
    if not hasattr(os, "sched_getaffinity"):
        return [[number] for number in range(available_cores())]
    allowed = os.sched_getaffinity(0)
    groups: dict[str, list[int]] = {}
    for cpu in sorted(allowed):
        try:
            siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(cpu)
        groups.setdefault(siblings, []).append(cpu)
    return sorted(groups.values())


def flush_bytes(target: dict[str, Any]) -> int:
    """Bytes to write so that no cache that programs of a target use holds anything else: twice the largest cache."""
    if target["kind"] == "cuda":
        return 2 * _gpu().cache_bytes
    largest = PRIVATE_CACHE_BYTES
    for size in (CPU / "cache").glob("index*/size"):
        try:
            largest = max(largest, _size(size.read_text().strip()))
        except (OSError, ValueError):
            continue
    return 2 * largest


def private_cache_bytes(cpu: Path) -> int:
    """Size of the last cache level that one core does not share with another one.

    Args:
        cpu: the folder of one processor in Linux' `/sys`.
    """
    private = [size for size, cores in caches_of(cpu) if cores == 1]
    return private[-1] if private else PRIVATE_CACHE_BYTES


def caches_of(cpu: Path) -> list[tuple[int, int]]:
    """Size of each cache for data that one core uses, and how many cores share it, from the innermost on.

    Args:
        cpu: the folder of one processor in Linux' `/sys`.
    """
    try:
        threads = len(_numbers((cpu / "topology" / "thread_siblings_list").read_text()))
        found = {}
        for cache in (cpu / "cache").glob("index*"):
            if (cache / "type").read_text().strip() == "Instruction":
                continue
            shared = len(_numbers((cache / "shared_cpu_list").read_text()))
            size = _size((cache / "size").read_text().strip())
            found[int((cache / "level").read_text())] = (size, max(1, shared // threads))
        return [found[level] for level in sorted(found)]
    except (OSError, ValueError):
        return []


def _numbers(text: str) -> list[int]:
    """What a list of processors in Linux' `/sys` names: `0-3,8`."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _size(text: str) -> int:
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def _cpu_fields() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    first = text.split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _best_seconds(work: Callable[[], object]) -> float:
    work()
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best
