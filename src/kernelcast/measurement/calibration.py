"""How fast one core, and all cores of a target, compute and read from each level of the memory, measured in a second.

The kernels are compiled for the target by TVM as every program is, so what they reach is what programs can reach.
"""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np

from kernelcast.machine import Calibration, MemoryLevel
from kernelcast.measurement.calibration_kernels import ACCUMULATORS, DEPTH, SPREAD, TILE, build_kernels
from kernelcast.tvm_compat import load_tvm, vector_bits

SWEEPS, ROUNDS = 4, 2
"""How often all kernels are run one after the other, and each in a row; the fastest repeat of each counts."""

ROUND_SECONDS = 0.004
"""Long beside the start of a thread, short enough to find a moment in which no one else disturbs."""

CACHES = ((32 * 1024, 1), (512 * 1024, 1))
"""Taken where the system does not tell: what most processors of the last ten years have at least."""

BEYOND = 4
"""The main memory is read in blocks so many times as large as the last cache."""

LARGEST_BYTES = 256 * 1024**2
"""The blocks of all cores together are no larger, whatever the caches."""

CALLS = 500
"""Calls in a repeat of the kernels that do nothing."""

ONE_CORE_A_THREAD = -2
"""How TVM's thread pool is told to use the cores that are named, whatever OMP_NUM_THREADS and the like say."""


def calibrate(target: dict[str, Any], cores: Sequence[Sequence[int]], caches: Sequence[tuple[int, int]]) -> Calibration:
    """Measures this processor by kernels of an `llvm` target that it runs.

    Args:
        target: the complete TVM target.
        cores: the physical cores that may be used, each with its hardware threads.
        caches: size of each cache and the cores that share it, from the innermost on; none where nobody knows.
    """
    lanes = max(1, vector_bits(target) // 32)
    kernels, scalar = build_kernels(target, lanes)
    # one of each physical core before the second of any
    order = [group[place] for place in range(max(map(len, cores))) for group in cores if place < len(group)]
    used = [order[number % len(order)] for number in range(int(target.get("num-cores", 1)))]
    levels = [*(caches or CACHES), (None, len(cores))]
    # all again and again, so that a time in which others disturb spoils none of them
    sweeps = [_sweep(kernels, scalar, lanes, used, caches or CACHES) for _ in range(SWEEPS)]
    best = {name: max(sweep[name] for sweep in sweeps) for name in sweeps[0]}
    call_seconds, parallel_seconds = _start_seconds(kernels, used)
    return Calibration(
        levels=tuple(
            MemoryLevel(
                size, sharing, best[f"{number} alone"], max(best[f"{number} alone"], best[f"{number} together"])
            )
            for number, (size, sharing) in enumerate(levels)
        ),
        vector_flops_per_second=best["vector"],
        scalar_flops_per_second=best["scalar"],
        chained_flops_per_second=best["chained"],
        call_seconds=call_seconds,
        parallel_start_seconds=max(0.0, parallel_seconds - call_seconds),
    )


def block_bytes(caches: Sequence[tuple[int, int]], threads: int) -> list[int]:
    """Bytes that each of `threads` cores reads again and again so that they come from each cache, and from memory.

    In the first cache half of it; in the others, whose share is s and whose predecessor's is p, sqrt(s * p): more than
    the one before holds and less than its own.

    Args:
        caches: as of `calibrate`.
        threads: cores that read at once.
    """
    blocks, before = [], 0.0
    for size, sharing in caches:
        share = size / min(threads, sharing)
        blocks.append(share / 2 if not before else math.sqrt(before * max(share, before)))
        before = share
    largest = max(size for size, _ in caches)
    blocks.append(min(LARGEST_BYTES, BEYOND * largest) / threads)
    return [int(block) for block in blocks]


def _sweep(
    kernels: Any, scalar: Any, lanes: int, cores: list[int], caches: Sequence[tuple[int, int]]
) -> dict[str, float]:
    """Operations a second of one core, and bytes a second of every level, read alone and by all `cores` together."""
    shapes: dict[str, tuple[list[tuple[int, ...]], int]] = {
        "vector": ([(DEPTH, lanes), (DEPTH, ACCUMULATORS), (ACCUMULATORS * lanes,)], 2 * ACCUMULATORS * lanes),
        "scalar": ([(DEPTH + TILE * SPREAD,), (DEPTH + TILE * SPREAD,), (TILE, TILE)], 2 * TILE * TILE),
        "chained": ([(DEPTH,), (1,)], 1),
    }
    rates = {
        name: _flops_per_second((scalar if name == "scalar" else kernels)[name], *of_kernel)
        for name, of_kernel in shapes.items()
    }
    for number, block in enumerate(block_bytes(caches, 1)):
        rates[f"{number} alone"] = rates[f"{number} together"] = _read_bytes_per_second(
            kernels, lanes, cores[:1], block
        )
    if len(cores) > 1:
        for number, block in enumerate(block_bytes(caches, len(cores))):
            together = _read_bytes_per_second(kernels, lanes, cores, block)
            rates[f"{number} together"] = max(together, rates[f"{number} alone"])
            # what one of several did it can do alone
            rates[f"{number} alone"] = max(together / len(cores), rates[f"{number} alone"])
    return rates


def _read_bytes_per_second(kernels: Any, lanes: int, cores: list[int], block: int) -> float:
    """Bytes a second that `cores` read together, each from a block of its own."""
    tvm = load_tvm()
    width = ACCUMULATORS * lanes
    rows = max(1, block // (4 * width))
    read = kernels["read"]
    barrier = Barrier(len(cores))

    def work(core: int) -> list[tuple[float, float]]:
        # of this thread alone; one core by itself is the one that the system finds idle
        if len(cores) > 1 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {core})
        # by the thread that reads it: memory is near the core that writes it first
        values = tvm.runtime.tensor(np.ones((rows, width), dtype=np.float32))
        sums = tvm.runtime.tensor(np.zeros(width, dtype=np.float32))
        passes = _passes(lambda count: read(values, sums, count))
        spans = []
        for _ in range(ROUNDS):
            barrier.wait()
            started = time.perf_counter()
            read(values, sums, passes)
            spans.append((started, passes * rows * width * 4 / (time.perf_counter() - started)))
        return spans

    with ThreadPoolExecutor(len(cores)) as pool:
        rounds = zip(*pool.map(work, cores), strict=True)
        return max(sum(rate for _, rate in spans) for spans in rounds)


def _flops_per_second(kernel: Any, shapes: Sequence[tuple[int, ...]], flops_per_step: int) -> float:
    """Operations a second of a compute kernel with arguments of these shapes, the best of a few rounds."""
    tvm = load_tvm()
    arguments = [tvm.runtime.tensor(np.ones(shape, dtype=np.float32)) for shape in shapes]

    def run(passes: int) -> None:
        kernel(*arguments, passes)

    passes = _passes(run)
    seconds = min(_seconds(run, passes) for _ in range(ROUNDS))
    return flops_per_step * DEPTH * passes / seconds


def _start_seconds(kernels: Any, cores: list[int]) -> tuple[float, float]:
    """Seconds of a call that does nothing, and of one that does nothing on all cores."""
    tvm = load_tvm()

    def measure() -> tuple[float, float]:
        # TVM's threads belong to the thread that first asks for them; this one is not needed any more
        configure = importlib.import_module("tvm_ffi").get_global_func("runtime.config_threadpool")
        configure(ONE_CORE_A_THREAD, len(cores), [str(core) for core in cores])
        sums = tvm.runtime.tensor(np.zeros(len(cores), dtype=np.float32))
        seconds = []
        for name in ("empty", "parallel"):
            evaluator = kernels.time_evaluator(name, tvm.cpu(), number=CALLS, repeat=SWEEPS * ROUNDS)
            seconds.append(float(min(evaluator(sums).results)))
        return seconds[0], seconds[1]

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(measure).result()


def _passes(run: Callable[[int], object]) -> int:
    """How many passes take `ROUND_SECONDS`, at least one."""
    run(1)
    passes = 1
    while (seconds := _seconds(run, passes)) < ROUND_SECONDS / 8:
        passes *= 4
    return max(1, round(passes * ROUND_SECONDS / seconds))


def _seconds(run: Callable[[int], object], passes: int) -> float:
    started = time.perf_counter()
    run(passes)
    return time.perf_counter() - started
