import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies

from kernelcast.errors import ConfigError
from kernelcast.graphs.programs import Machine
from kernelcast.graphs.views import FlatFeatures
from kernelcast.machine import Calibration, MemoryLevel
from kernelcast.models.roofline import RooflineModel
from kernelcast.models.speeds import LEAST_SECONDS

MACHINE = Machine(cores=4, vector_lanes=8, peak_flops_per_second=4e9, bytes_per_second=1e9, cache_bytes=2**20)
CALIBRATION = Calibration(
    levels=(MemoryLevel(2**15, 1, 4e9, 16e9), MemoryLevel(2**20, 1, 1e9, 4e9), MemoryLevel(None, 4, 0.5e9, 1e9)),
    vector_flops_per_second=1e9,
    scalar_flops_per_second=0.25e9,
    chained_flops_per_second=0.1e9,
    call_seconds=0.0,
    parallel_start_seconds=0.0,
)
CALIBRATED = dataclasses.replace(MACHINE, calibration=CALIBRATION)
PAST = tuple(f"moved_past_{size}kib_bytes" for size in (8, 32, 128, 512, 2048, 8192))
NAMES = ("flops", "moved_bytes", "unique_bytes", "vector_share", "parallel_share", "parallel_extent", *PAST)


def seconds(programs, metric_log, machine=MACHINE, **columns):
    """What the model predicts for one program with these counts."""
    values = {
        "flops": 0,
        "moved_bytes": 0,
        "unique_bytes": 0,
        "vector_share": 1,
        "parallel_share": 1,
        "parallel_extent": 4,
    }
    values = {**values, **dict.fromkeys(PAST, columns.get("moved_bytes", 0)), **columns}
    row = np.log1p(np.array([[values[name] for name in NAMES]])).astype(np.float32)
    one = programs.select(np.array([0]))
    views = {"features": FlatFeatures(NAMES, row)}
    one = dataclasses.replace(one, machines=(machine,), sources=views, rows=np.zeros(1, dtype=np.int64))
    model = RooflineModel(None, None, 0)
    model.fit(one, one, metric_log)
    return float(np.exp(model.predict(one)[0]))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        # 4e9 operations at 4e9 a second
        ({"flops": 4e9}, 1.0),
        # one core has a quarter of the peak
        ({"flops": 4e9, "parallel_extent": 1}, 4.0),
        ({"flops": 4e9, "parallel_share": 0}, 4.0),
        # half of the work on four cores, half on one
        ({"flops": 4e9, "parallel_share": 0.5}, 2.5),
        # 5 iterations on 4 cores take two rounds
        ({"flops": 4e9, "parallel_extent": 5}, 4 * 2 / 5),
        # more iterations than cores, no remainder
        ({"flops": 4e9, "parallel_extent": 400}, 1.0),
        # scalar operations use one lane of 8
        ({"flops": 4e9, "vector_share": 0}, 8.0),
        ({"flops": 4e9, "vector_share": 0.5}, 4.5),
        # memory decides where it takes longer, by the larger of the two counts
        ({"flops": 4e9, "moved_bytes": 3e9, "unique_bytes": 1e8}, 3.0),
        ({"flops": 4e9, "moved_bytes": 1e3, "unique_bytes": 2e9}, 2.0),
        # the caches of the four cores hold it
        ({"flops": 4e9, "moved_bytes": 3e9, "unique_bytes": 4e6}, 1.0),
        ({"flops": 4e9, "moved_bytes": 1e6}, 1.0),
        ({}, LEAST_SECONDS),
    ],
)
def test_seconds_by_hand(programs, metric_log, columns, expected):
    assert seconds(programs, metric_log, **columns) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        # 4 cores make 4e9 a second in vectors, a quarter of it one by one
        ({"flops": 4e9}, 1.0),
        ({"flops": 4e9, "vector_share": 0}, 4.0),
        ({"flops": 4e9, "vector_share": 0.5}, 2.5),
        # the slowest level decides: 4e9 bytes a second past the first cache, 1e9 past the second
        ({"unique_bytes": 1e8, PAST[1]: 40e9, "moved_bytes": 1e9}, 10.0),
        ({"unique_bytes": 1e8, PAST[1]: 4e9, "moved_bytes": 3e9}, 3.0),
        # the second caches hold it, the first do not
        ({"unique_bytes": 4e6, PAST[1]: 4e9, "moved_bytes": 3e9}, 1.0),
        ({"unique_bytes": 1e5, PAST[1]: 4e9, "moved_bytes": 3e9}, LEAST_SECONDS),
    ],
)
def test_seconds_by_hand_with_measured_caches(programs, metric_log, columns, expected):
    assert seconds(programs, metric_log, CALIBRATED, **columns) == pytest.approx(expected, rel=1e-4)


amounts = strategies.floats(1, 1e9)
shares = strategies.floats(0, 1)


@given(amounts, amounts, amounts, shares, shares, strategies.integers(1, 64), strategies.floats(1, 10), shares)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_more_work_is_never_faster_and_more_vectors_never_slower(
    programs, metric_log, flops, moved, unique, vector, parallel, extent, more, further
):
    columns = {
        "flops": flops,
        "moved_bytes": moved,
        "unique_bytes": unique,
        "vector_share": vector,
        "parallel_share": parallel,
        "parallel_extent": extent,
    }
    for machine in (MACHINE, CALIBRATED):

        def changed(machine=machine, **changes):
            return seconds(programs, metric_log, machine, **{**columns, **changes}) * (1 + 1e-5)

        now = seconds(programs, metric_log, machine, **columns)
        for name in ("flops", "moved_bytes", "unique_bytes"):
            assert changed(**{name: columns[name] * more}) >= now
        assert now * (1 + 1e-5) >= seconds(
            programs, metric_log, machine, **{**columns, "vector_share": vector + (1 - vector) * further}
        )
        assert now * (1 + 1e-5) >= seconds(
            programs, metric_log, machine, **{**columns, "parallel_share": parallel + (1 - parallel) * further}
        )


def test_an_unknown_machine_is_refused_with_the_next_step(programs, metric_log):
    model = RooflineModel(None, None, 0)
    model.fit(programs, programs, metric_log)
    unknown = dataclasses.replace(programs, machines=(None,))
    for use in (lambda: model.fit(unknown, unknown, metric_log), lambda: model.predict(unknown)):
        with pytest.raises(ConfigError, match=r"model=roofline.*host=this"):
            use()


def test_each_program_is_judged_by_the_machine_of_its_target(programs, metric_log):
    fast = dataclasses.replace(MACHINE, peak_flops_per_second=1e12, bytes_per_second=1e12)
    target = np.arange(len(programs), dtype=np.int16) % 2
    mixed = dataclasses.replace(programs, target=target, targets=("a", "b"), machines=(MACHINE, fast))
    model = RooflineModel(None, None, 0)
    model.fit(mixed, mixed, metric_log)
    found = model.predict(mixed)
    for number, machine in enumerate((MACHINE, fast)):
        alone = dataclasses.replace(programs, machines=(machine,))
        np.testing.assert_array_equal(found[target == number], model.predict(alone)[target == number])
    # a machine that no program needs may be unknown
    only = dataclasses.replace(mixed, machines=(MACHINE, None)).select(np.flatnonzero(target == 0))
    assert len(model.predict(only)) == len(only)
