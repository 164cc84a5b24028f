"""What models without learning take from the machine: its speeds, and the time that moving bytes takes on them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.errors import ConfigError
from kernelcast.graphs.features import MOVED_BYTES, PARALLEL_STARTS, UNIQUE_BYTES, natural
from kernelcast.graphs.flat_columns import CACHE_KIB
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import FlatFeatures
from kernelcast.machine import Calibration, MemoryLevel

LEAST_SECONDS = 1e-9
"""No prediction is below this: a program that neither computes nor moves anything still takes time."""

CHAIN_SLOTS = 8
"""Taken where nobody measured it: multiply-adds that a core could have made while one addition waits for the last one,
as of two units with a latency of four cycles."""


def known_machine(programs: Programs, target: int, model: str) -> Machine:
    """The machine of one target.

    Raises:
        ConfigError: nobody knows it.
    """
    machine = programs.machines[target]
    if machine is None:
        raise ConfigError(
            f"model={model} needs the peaks of the machine that measured, and of these programs nobody knows it; train "
            "another model or, if they were measured on this machine, import them again with `host=this` and run "
            "`dvc repro graphs`"
        )
    return machine


PIECE = 8192
"""Programs that are looked at together, so that any number of them fits into memory."""


def used_targets(programs: Programs) -> list[int]:
    """The targets that have a program; the machine of another one may be unknown."""
    return [int(target) for target in np.unique(programs.target)]


def pieces_by_machine(programs: Programs, model: str) -> Iterator[tuple[Int64[np.ndarray, "rows"], Machine]]:
    """The rows of all programs in pieces, each with the machine that measured it; raises as `known_machine` does."""
    for target in used_targets(programs):
        machine = known_machine(programs, target, model)
        of_target = np.flatnonzero(programs.target == target)
        for start in range(0, len(of_target), PIECE):
            yield of_target[start : start + PIECE], machine


def calibration_of(machine: Machine) -> Calibration:
    """What was measured of the machine, or else what follows from its peaks with the ratios of common cores.

    That are one cache, which gives a vector a multiply-add, and scalar operations at the rate of those in vectors.
    """
    if machine.calibration is not None:
        return machine.calibration
    vector = machine.peak_flops_per_second / machine.cores
    scalar = vector / machine.vector_lanes
    return Calibration(
        levels=(
            MemoryLevel(machine.cache_bytes, 1, 2.0 * vector, 2.0 * machine.peak_flops_per_second),
            MemoryLevel(None, machine.cores, machine.bytes_per_second, machine.bytes_per_second),
        ),
        vector_flops_per_second=vector,
        scalar_flops_per_second=scalar,
        chained_flops_per_second=scalar / 2 / CHAIN_SLOTS,
        call_seconds=0.0,
        parallel_start_seconds=0.0,
    )


def cores_helping(parallel_extent: Float64[np.ndarray, "rows"], machine: Machine) -> Float64[np.ndarray, "rows"]:
    """Cores that share the iterations of a parallel loop; one without work waits for the last round."""
    extent = np.maximum(np.round(parallel_extent), 1.0)
    helping: Float64[np.ndarray, "rows"] = extent / np.ceil(extent / machine.cores)
    return helping


def starting_seconds(features: FlatFeatures, calibration: Calibration) -> Float64[np.ndarray, " programs"]:
    """The call of each program, and the starts of its parallel loops where they take time."""
    seconds = np.full(len(features), calibration.call_seconds)
    if calibration.parallel_start_seconds > 0:
        seconds += natural(features, PARALLEL_STARTS) * calibration.parallel_start_seconds
    return seconds


def memory_seconds(
    features: FlatFeatures, machine: Machine, calibration: Calibration
) -> Float64[np.ndarray, "programs boundaries"]:
    """Seconds to move what does not fit into each cache from the next level, for each but the main memory.

    A program is run again and again, so that a cache that holds everything is not filled anew. Cores share a cache, and
    reach further levels together.
    """
    unique = natural(features, UNIQUE_BYTES)
    columns = []
    for level, beyond in zip(calibration.levels, calibration.levels[1:], strict=False):
        assert level.size_bytes is not None, "only the last level is the main memory"
        sharing = min(machine.cores, level.sharing_cores)
        moved = traffic(features, machine, level.size_bytes / sharing)
        fits = unique <= level.size_bytes * (machine.cores / sharing)
        columns.append(np.where(fits, 0.0, np.maximum(moved, unique)) / beyond.bytes_per_second)
    return np.stack(columns, axis=1) if columns else np.zeros((len(unique), 1))


def traffic(features: FlatFeatures, machine: Machine, cache_bytes: float) -> Float64[np.ndarray, " programs"]:
    """Bytes past a cache of any size: the column of this size, or between those of its neighbours, both in logarithms.

    Beyond the largest size of a column, that of the largest.
    """
    if cache_bytes == machine.cache_bytes:
        return natural(features, MOVED_BYTES)
    sizes = [size * 1024 for size in CACHE_KIB]
    place = float(np.interp(np.log(cache_bytes), np.log(sizes), np.arange(len(sizes))))
    below = min(int(place), len(sizes) - 2)
    small, large = (
        np.log1p(natural(features, f"moved_past_{CACHE_KIB[number]}kib_bytes")) for number in (below, below + 1)
    )
    return np.expm1(small + (place - below) * (np.minimum(large, small) - small))
