import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from kernelcast.errors import ConfigError
from kernelcast.graphs.flat_columns import PROGRAM_FEATURES, STATEMENT_FEATURES
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import FlatFeatures, StatementRows
from kernelcast.machine import Calibration, MemoryLevel
from kernelcast.models.analytical import AnalyticalModel, estimate
from kernelcast.models.compiled_nest import COMPILER_INSTRUCTIONS, natural_columns
from kernelcast.models.statement_seconds import (
    GATHERED_SLOTS,
    MOVED_SLOTS,
    REORDERED_STEPS,
    TRANSCENDENTAL_SLOTS,
    overlapped,
)

# a nanosecond for a vector multiply-add, or to load a vector of 8 lanes; half of it one by one; 4 for a chain's step
CALIBRATION = Calibration(
    levels=(MemoryLevel(2**15, 1, 32e9, 64e9), MemoryLevel(2**20, 1, 8e9, 16e9), MemoryLevel(None, 2, 2e9, 4e9)),
    vector_flops_per_second=16e9,
    scalar_flops_per_second=4e9,
    chained_flops_per_second=0.25e9,
    call_seconds=1e-8,
    parallel_start_seconds=1e-6,
)
MACHINE = Machine(2, 8, 32e9, 4e9, 2**20, CALIBRATION)
FLAGS = {feature.name for feature in STATEMENT_FEATURES if feature.unit == "flag"}
NS = 1e-9

# adds a constant to 8192 elements: one access that is listed, in vectors, in a loop that stays a loop
ADD = {
    "executions": 8192,
    "flops": 1,
    "lanes": 8,
    "parallel_extent": 1,
    "reduction_extent": 1,
    "accesses": 1,
    "inner1_extent": 8,
    "inner2_extent": 1024,
    "target_stride_1": 1,
    "target_stride_2": 8,
    "target_buffer_bytes": 32768,
    "target_touched_bytes": 32768,
    "target_reuse_trips": 1,
}
# a tile of eight sums, a vector each, in registers over 128 steps: a row of vectors and a column that stays
PRODUCT = {
    "executions": 16 * 8 * 128 * 32,
    "flops": 2,
    "lanes": 8,
    "parallel_extent": 1,
    "reduction_extent": 128,
    "accesses": 4,
    "inner1_extent": 8,
    "inner2_extent": 8,
    "inner2_is_straight": 1,
    "inner3_extent": 128,
    "inner3_is_reduction": 1,
    "inner4_extent": 64,
    "target_stride_1": 1,
    "target_stride_2": 64,
    "target_buffer_bytes": 65536,
    "target_touched_bytes": 65536,
    "target_reuse_trips": 128,
    "target_reuse_distance": 64,
    "load1_stride_1": 1,
    "load1_stride_2": 64,
    "load1_buffer_bytes": 65536,
    "load1_touched_bytes": 65536,
    "load2_stride_1": 1,
    "load2_stride_2": 0,
    "load2_buffer_bytes": 8192,
    "load2_touched_bytes": 8192,
    "load2_reuse_trips": 8,
    "load2_reuse_distance": 8,
    "load3_stride_1": 0,
    "load3_stride_2": 128,
    "load3_buffer_bytes": 4096,
    "load3_touched_bytes": 4096,
    "load3_reuse_trips": 8,
    "load3_reuse_distance": 1,
}


def rows_of(*programs, scaled=True):
    """The `statements` view of programs, each a list of statements."""
    names = tuple(feature.name for feature in STATEMENT_FEATURES)
    values = np.array([[statement.get(name, 0) for name in names] for program in programs for statement in program])
    values = values.reshape(-1, len(names)).astype(np.float32)
    if scaled:
        counted = [name not in FLAGS for name in names]
        values[:, counted] = np.log1p(values[:, counted])
    offset = np.concatenate([[0], np.cumsum([len(program) for program in programs])]).astype(np.int64)
    return StatementRows(names, offset, values)


def features_of(count, **columns):
    names = tuple(feature.name for feature in PROGRAM_FEATURES)
    row = np.log1p(np.array([[columns.get(name, 0) for name in names]])).astype(np.float32)
    return FlatFeatures(names, np.repeat(row, count, axis=0))


def seconds(*statements, machine=MACHINE, features=None):
    """Of one program of these statements, which moves nothing unless `features` say so."""
    return float(estimate(rows_of(statements), features_of(1, **(features or {})), machine).seconds[0])


def test_a_vector_loop_by_hand():
    # 1024 vectors: an addition and a store of a nanosecond each, and half a nanosecond an iteration
    expected = 1024 * NS * np.sqrt(2) + 1024 * 0.5 * NS + 1e-8
    assert seconds(ADD) == pytest.approx(expected, rel=1e-4)
    # two statements follow each other
    assert seconds(ADD, ADD) == pytest.approx(2 * expected - 1e-8, rel=1e-4)


def test_one_by_one_takes_the_scalar_rates():
    plain = {**ADD, "lanes": 1, "inner1_extent": 8192, "inner2_extent": 0, "target_stride_1": 2}
    assert seconds(plain) == pytest.approx(8192 * 0.5 * NS * (np.sqrt(2) + 1) + 1e-8, rel=1e-4)
    # side by side the compiler makes vectors of them by itself
    assert seconds({**plain, "target_stride_1": 1}) == pytest.approx(seconds(ADD), rel=1e-4)


def test_a_tile_of_sums_stays_in_registers():
    vectors = PRODUCT["executions"] / 8
    compute = vectors * NS
    # the row once for the eight sums that it goes into, the column for each; sums leave after all their steps
    access = vectors * NS / 8 + vectors * 0.5 * NS + 2 * vectors * NS / 128
    waiting = vectors * 4 * NS / 8
    loops = PRODUCT["executions"] / 64 * 0.5 * NS
    expected = overlapped(np.array([compute]), np.array([access]), np.array([waiting]))[0] + loops + 1e-8
    assert seconds(PRODUCT) == pytest.approx(expected, rel=1e-4)


def test_sums_that_do_not_fit_into_registers_are_loaded_and_stored_at_every_step():
    tile = {**PRODUCT, "inner2_extent": 16, "target_reuse_distance": 128, "load2_reuse_trips": 16}
    vectors = PRODUCT["executions"] / 8
    compute, waiting = vectors * NS, vectors * 4 * NS / 16
    access = vectors * NS / 16 + vectors * 0.5 * NS + 2 * vectors * NS
    loops = PRODUCT["executions"] / 128 * 0.5 * NS
    expected = overlapped(np.array([compute]), np.array([access]), np.array([waiting]))[0] + loops + 1e-8
    assert seconds(tile) == pytest.approx(expected, rel=1e-4)


def test_a_single_chain_waits_for_each_step_unless_it_is_short():
    chain = {**ADD, "lanes": 1, "executions": 8192, "reduction_extent": 4096, "inner1_extent": 4096}
    chain |= {"inner1_is_reduction": 1, "inner2_extent": 2, "target_stride_1": 0, "target_reuse_trips": 4096}
    long = seconds(chain)
    assert long == pytest.approx(8192 * 4 * NS, rel=0.2)
    short = {**chain, "reduction_extent": 16, "inner1_extent": 16, "inner2_extent": 512, "target_reuse_trips": 16}
    # as many as are under way at once do not wait for each other
    assert seconds(short) < long / (REORDERED_STEPS / 16) * 2


def test_functions_take_many_instructions():
    function = {**ADD, "transcendental_flops": 1}
    compute = 1024 * NS * (1 + TRANSCENDENTAL_SLOTS)
    access = 1024 * NS
    expected = overlapped(np.array([compute]), np.array([access]))[0] + 1024 * 0.5 * NS + 1e-8
    assert seconds(function) == pytest.approx(expected, rel=1e-4)


def test_what_the_compiler_does_once_is_counted_once():
    again = {**ADD, "executions": 8 * 8192, "repeated_iterations": 8}
    assert seconds({**again, "removable_iterations": 8}) == pytest.approx(seconds(ADD), rel=1e-4)
    assert seconds(again) == pytest.approx(8 * seconds(ADD), rel=1e-2)


def test_a_loop_around_straight_code_becomes_vectors():
    # two steps of a sum, side by side for all 64 of the loop that stays: eight of them are one vector
    straight = {**ADD, "executions": 2 * 64 * 100, "lanes": 1, "reduction_extent": 200, "accesses": 2}
    straight |= {"inner1_extent": 2, "inner1_is_straight": 1, "inner1_is_reduction": 1, "inner2_extent": 64}
    straight |= {"inner3_extent": 100, "inner3_is_reduction": 1, "target_stride_1": 0, "target_stride_2": 1}
    straight |= {"target_reuse_trips": 2, "load1_buffer_bytes": 4096, "load1_stride_1": 64, "load1_stride_2": 1}
    apart = {**straight, "target_stride_2": 9, "load1_stride_2": 9}
    assert seconds(apart) > 3 * seconds(straight)
    # what is left of 63 is no 7 single ones, but 4, 2 and 1
    assert seconds({**straight, "inner2_extent": 63}) < 1.5 * seconds(straight)
    # a sum over the loop that stays has an order that is kept
    assert seconds({**straight, "inner2_is_reduction": 1}) > 3 * seconds(straight)


def test_lanes_that_are_not_evenly_spaced_are_loaded_one_by_one():
    even, uneven = ({**ADD, "accesses": 2, "load1_buffer_bytes": 4096, "load1_runs": runs} for runs in (1, 2))
    assert seconds(uneven) - seconds(even) > 0.5 * 8192 * GATHERED_SLOTS * 0.5 * NS


def test_sums_longer_than_a_vector_and_no_power_of_two_are_taken_apart():
    tile = {**PRODUCT, "inner2_extent": 2, "target_reuse_distance": 48, "load2_reuse_trips": 2}
    whole, ragged = ({**tile, "lanes": lanes, "inner1_extent": lanes} for lanes in (16, 24))
    ragged["lane_parts"] = 2
    # both sums, lane by lane, each time around
    moved = PRODUCT["executions"] / 48 * 48 * MOVED_SLOTS * 0.5 * NS
    assert seconds(ragged) - seconds({**ragged, "lane_parts": 1}) == pytest.approx(moved, rel=1e-3)
    assert seconds(ragged) > 1.5 * seconds(whole)
    # one vector that is not full stays in its register
    short = {**tile, "lanes": 6, "inner1_extent": 6, "lane_parts": 2}
    assert seconds(short) < 2.5 * seconds({**tile, "lanes": 8, "inner1_extent": 8})


def test_short_loops_are_unrolled_by_the_compiler_and_long_ones_are_not():
    def of(steps):
        loop = {"inner2_extent": steps, "inner3_extent": 4096 // steps, "executions": 8 * 4096}
        return seconds({**ADD, **loop})

    limit = COMPILER_INSTRUCTIONS // (ADD["accesses"] + ADD["flops"])
    assert of(limit) < of(2 * limit)


@pytest.mark.parametrize(("extent", "helping"), [(1, 1), (2, 2), (3, 1.5), (4, 2), (1000, 2)])
def test_threads_help_as_far_as_iterations_go_round(extent, helping):
    one, many = seconds(PRODUCT) - 1e-8, seconds({**PRODUCT, "parallel_extent": extent}) - 1e-8
    assert one / many == pytest.approx(helping, rel=1e-3)
    # of the machine's threads, not of the loop's
    alone = dataclasses.replace(MACHINE, cores=1)
    assert seconds({**PRODUCT, "parallel_extent": extent}, machine=alone) - 1e-8 == pytest.approx(one, rel=1e-3)


def test_starts_of_parallel_loops_are_paid_for():
    many = seconds({**ADD, "parallel_extent": 2}, features={"parallel_starts": 100})
    assert many - seconds({**ADD, "parallel_extent": 2}) == pytest.approx(100e-6, rel=1e-3)


def test_levels_of_the_memory_follow_each_other():
    moved = {f"moved_past_{size}kib_bytes": 1e8 for size in (8, 32, 128, 512, 2048, 8192)}
    features = {"unique_bytes": 1e8, "moved_bytes": 1e8, **moved}
    # both cores together: 16e9 bytes a second past the first caches, 4e9 past the second
    assert seconds(ADD, features=features) == pytest.approx(1e8 / 16e9 + 1e8 / 4e9, rel=0.01)
    # what the caches hold is there from the last run
    small = {**features, "unique_bytes": 1e4}
    assert seconds(ADD, features=small) == pytest.approx(seconds(ADD), rel=1e-6)


def test_unscaled_columns_are_read_as_they_are():
    scaled, plain = (natural_columns(rows_of([ADD, PRODUCT], scaled=how)) for how in (True, False))
    for name, values in scaled.items():
        np.testing.assert_allclose(plain[name], values, rtol=1e-5, err_msg=name)


@given(
    base=strategies.sampled_from([ADD, PRODUCT]),
    more=strategies.integers(2, 50),
    changes=strategies.fixed_dictionaries(
        {
            "executions": strategies.integers(1, 10**9),
            "flops": strategies.integers(0, 20),
            "lanes": strategies.sampled_from([1, 2, 8, 24]),
            "inner2_extent": strategies.integers(1, 300),
            "inner2_is_straight": strategies.integers(0, 1),
            "is_guarded": strategies.integers(0, 1),
            "parallel_extent": strategies.integers(1, 9),
            "target_stride_1": strategies.integers(0, 3),
        }
    ),
)
@settings(deadline=None, max_examples=40)
def test_more_work_is_never_faster(base, more, changes):
    statement = {**base, **changes}
    moved = {f"moved_past_{size}kib_bytes": 4e6 for size in (8, 32, 128, 512, 2048, 8192)}
    features = {"unique_bytes": 4e6, "moved_bytes": 4e6, **moved}
    now = seconds(statement, features=features) * (1 - 1e-5)
    assert np.isfinite(now)
    assert now > 0
    for name in ("executions", "flops", "transcendental_flops", "accesses"):
        heavier = {**statement, name: statement.get(name, 0) * more + (name != "executions")}
        assert seconds(heavier, features=features) >= now
    assert seconds(statement, statement, features=features) >= now
    for name in features:
        assert seconds(statement, features={**features, name: features[name] * more}) >= now
    # one core alone is never faster than two
    assert seconds(statement, features=features, machine=dataclasses.replace(MACHINE, cores=1)) >= now


@given(
    statement=strategies.sampled_from([ADD, PRODUCT]),
    fewer=strategies.sampled_from([1, 2, 4]),
    stride=strategies.sampled_from([1, 4]),
)
@settings(deadline=None, max_examples=20)
def test_wider_vectors_are_never_slower(statement, fewer, stride):
    narrow = {**statement, "target_stride_1": stride, "lanes": fewer, "inner1_extent": fewer}
    wide = {**statement, "target_stride_1": stride}
    assert seconds(wide) <= seconds(narrow) * (1 + 1e-5)


def programs_of(machines=(MACHINE,), target=(0, 0)):
    count = len(target)
    views = {
        "statements": rows_of(*([[ADD], [ADD, PRODUCT]] * count)[:count]),
        "features": features_of(count, parallel_starts=1),
    }
    return Programs.in_memory(
        views,
        log_seconds=np.zeros(count),
        workload=np.zeros(count, dtype=np.int32),
        workload_names=("one",),
        target=np.array(target, dtype=np.int16),
        targets=tuple(f'{{"kind": "{number}"}}' for number in range(len(machines))),
        machines=machines,
        program_key=np.array([f"{number:016x}" for number in range(count)]),
        feature_version="made up",
    )


def test_each_program_is_judged_by_the_machine_of_its_target_and_by_itself(metric_log, tmp_path):
    slow = dataclasses.replace(MACHINE, calibration=None, peak_flops_per_second=1e9)
    mixed = programs_of((MACHINE, slow, None), (0, 1, 1, 0))
    model = AnalyticalModel(None, None, 0)
    model.fit(mixed, mixed, metric_log)
    found = model.predict(mixed)
    for row in range(4):
        assert model.predict(mixed.select(np.array([row])))[0] == pytest.approx(found[row], abs=1e-12)
    assert found[2] > found[0]
    assert len(model.predict(mixed.select(np.zeros(0, dtype=np.int64)))) == 0
    model.save(tmp_path)
    np.testing.assert_array_equal(AnalyticalModel.load(tmp_path).predict(mixed), found)


def test_an_unknown_machine_is_refused_with_the_next_step(metric_log):
    unknown = programs_of((None,))
    with pytest.raises(ConfigError, match=r"model=analytical.*host=this"):
        AnalyticalModel(None, None, 0).fit(unknown, unknown, metric_log)


def test_missing_columns_and_views_are_refused_with_the_next_step(metric_log):
    programs = programs_of()
    model = AnalyticalModel(None, None, 0)
    model.fit(programs, programs, metric_log)
    rows = programs.view("statements")
    kept = StatementRows(rows.names[:-9], rows.row_offset, np.ascontiguousarray(rows.values[:, :-9]))
    with pytest.raises(ConfigError, match=r"load3_runs and 8 more.*leave_out"):
        model.predict(dataclasses.replace(programs, sources={**programs.sources, "statements": kept}))
    with pytest.raises(ConfigError, match=r"no view `statements`.*dvc repro graphs"):
        model.predict(dataclasses.replace(programs, sources={"features": programs.view("features")}))


def test_made_up_programs_get_finite_numbers(programs, metric_log):
    model = AnalyticalModel(None, None, 0)
    model.fit(programs, programs, metric_log)
    together = model.predict(programs)
    assert together.dtype == np.float64
    assert np.isfinite(together).all()
    np.testing.assert_allclose(model.predict(programs.select(np.array([40])))[0], together[40], atol=1e-9)


def test_overlapped_is_between_the_longest_and_the_sum():
    left, right = np.array([3.0, 0.0, 1.0, 0.0]), np.array([4.0, 0.0, 0.0, 2.0])
    np.testing.assert_allclose(overlapped(left, right), [5, 0, 1, 2], atol=1e-300)
