import dataclasses

import numpy as np
import pytest

from kernelcast.graphs.programs import Machine
from kernelcast.graphs.views import FlatFeatures
from kernelcast.machine import Calibration, MemoryLevel
from kernelcast.models.speeds import calibration_of, memory_seconds, traffic

KIB = 1024
CALIBRATION = Calibration(
    levels=(
        MemoryLevel(32 * KIB, 1, 100e9, 200e9),
        MemoryLevel(1024 * KIB, 1, 50e9, 100e9),
        MemoryLevel(None, 2, 10e9, 10e9),
    ),
    vector_flops_per_second=32e9,
    scalar_flops_per_second=4e9,
    chained_flops_per_second=0.5e9,
    call_seconds=1e-8,
    parallel_start_seconds=1e-6,
)
MACHINE = Machine(2, 8, 64e9, 10e9, 1024 * KIB, CALIBRATION)


def features(unique, moved, by_size):
    """One program that touches `unique` bytes and moves so many past its private cache, and past each size in KiB."""
    names = ("unique_bytes", "moved_bytes", *(f"moved_past_{size}kib_bytes" for size in by_size))
    return FlatFeatures(names, np.log1p(np.array([[unique, moved, *by_size.values()]])).astype(np.float32))


def test_traffic_is_that_of_the_column_of_the_size_or_between_its_neighbours():
    view = features(1e6, 7e6, {8: 64e6, 32: 16e6, 128: 4e6, 512: 4e6, 2048: 1e6, 8192: 1e6})
    assert traffic(view, MACHINE, 32 * KIB)[0] == pytest.approx(16e6, rel=1e-4)
    # half way in the logarithm of the size
    assert traffic(view, MACHINE, 64 * KIB)[0] == pytest.approx(8e6, rel=1e-4)
    assert traffic(view, MACHINE, 4 * KIB)[0] == pytest.approx(64e6, rel=1e-4)
    assert traffic(view, MACHINE, 2**30)[0] == pytest.approx(1e6, rel=1e-4)
    # there is a column for the cache of this very machine
    assert traffic(view, MACHINE, MACHINE.cache_bytes)[0] == pytest.approx(7e6, rel=1e-4)


def test_seconds_of_each_level_are_its_traffic_over_the_bandwidth_of_the_next():
    columns = {8: 4e6, 32: 4e6, 128: 4e6, 512: 3e6, 2048: 3e6, 8192: 3e6}
    seconds = memory_seconds(features(3e6, 3e6, columns), MACHINE, CALIBRATION)
    np.testing.assert_allclose(seconds, [[4e6 / 100e9, 3e6 / 10e9]], rtol=1e-4)
    # both cores' second caches hold it together: it is still there from the last run
    seconds = memory_seconds(features(2e6, 2e6, columns), MACHINE, CALIBRATION)
    np.testing.assert_allclose(seconds, [[4e6 / 100e9, 0]], rtol=1e-4)
    # the first caches as well
    seconds = memory_seconds(features(60e3, 2e6, columns), MACHINE, CALIBRATION)
    np.testing.assert_allclose(seconds, [[0, 0]])
    # a program moves no less than what it touches
    seconds = memory_seconds(features(9e6, 3e6, columns), MACHINE, CALIBRATION)
    np.testing.assert_allclose(seconds, [[9e6 / 100e9, 9e6 / 10e9]], rtol=1e-4)


def test_cores_that_share_a_cache_have_a_part_of_it_each():
    columns = {8: 64e6, 32: 16e6, 128: 4e6, 512: 4e6, 2048: 4e6, 8192: 4e6}
    levels = (MemoryLevel(64 * KIB, 2, 1e9, 1e9), MemoryLevel(None, 2, 1e9, 1e9))
    shared = dataclasses.replace(CALIBRATION, levels=levels)
    seconds = memory_seconds(features(1e6, 4e6, columns), MACHINE, shared)
    np.testing.assert_allclose(seconds, [[16e6 / 1e9]], rtol=1e-4)
    # one core alone has all of it
    alone = dataclasses.replace(MACHINE, cores=1)
    np.testing.assert_allclose(memory_seconds(features(1e6, 4e6, columns), alone, shared), [[8e6 / 1e9]], rtol=1e-4)


def test_what_was_not_measured_follows_from_the_peaks():
    assert calibration_of(MACHINE) is CALIBRATION
    assumed = calibration_of(dataclasses.replace(MACHINE, calibration=None))
    assert [level.size_bytes for level in assumed.levels] == [MACHINE.cache_bytes, None]
    assert assumed.levels[-1].bytes_per_second == MACHINE.bytes_per_second
    assert assumed.vector_flops_per_second == MACHINE.peak_flops_per_second / 2
    assert assumed.vector_flops_per_second > assumed.scalar_flops_per_second > assumed.chained_flops_per_second > 0
