import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.evaluation.bootstrap import Bootstrap, Resampling
from kernelcast.evaluation.noise import PairedLabels, Source, joined, noise_of, paired_labels
from kernelcast.evaluation.results import Role
from kernelcast.evaluation.scoring import ceiling
from kernelcast.graphs.dataset.labels import Labelling, labels_of
from kernelcast.records import measurement_table

SETTINGS = Bootstrap(samples=50, confidence=0.95, seed=0)
NAN = float("nan")


def measured(rows: dict[tuple[str, str], list[tuple[int, int, float]]], **columns: Any) -> pa.Table:
    """Rows of (workload, program) to repeats of (visit, round, seconds)."""
    return measurement_table(
        [
            {
                "workload_key": name,
                "workload_name": name,
                "workload_kind": "matmul",
                "program_key": key,
                "trace": "",
                "target": "",
                "outcome": "measured",
                "visit": [visit for visit, _, _ in repeats],
                "round_index": [number for _, number, _ in repeats],
                "run_seconds": [seconds for _, _, seconds in repeats],
                **columns,
            }
            for (name, key), repeats in rows.items()
        ]
    )


def seconds_of(labels: PairedLabels) -> dict[tuple[str, str], tuple[float, float]]:
    both = np.exp([labels.first_log_seconds, labels.second_log_seconds]).T
    return {key: (pytest.approx(both[pair][0]), pytest.approx(both[pair][1])) for key, pair in labels.row.items()}


def visits(first: Sequence[float], second: Sequence[float] = (), number: int = 1) -> list[tuple[int, int, float]]:
    return [(0, at, value) for at, value in enumerate(first)] + [(number, at, value) for at, value in enumerate(second)]


def test_the_first_visit_stands_against_the_next_one() -> None:
    rows = {
        ("w0", "a"): [*visits([4.0, 2.0, 9.0], [3.0, 5.0]), (2, 0, 1.0)],
        # measured again in a later sweep of the campaign
        ("w0", "b"): visits([7.0], [8.0], number=3),
        ("w0", "once"): visits([1.0, 1.0]),
        ("w0", "torn"): visits([1.0], [NAN, 1.0]),
        ("w0", "never"): visits([]),
    }
    labels = paired_labels(measured(rows), Labelling())
    assert labels.source == Source.VISITS
    assert seconds_of(labels) == {("w0", "a"): (2.0, 3.0), ("w0", "b"): (7.0, 8.0)}
    assert seconds_of(paired_labels(measured(rows), Labelling("median")))["w0", "a"] == (4.0, 4.0)


def test_without_later_visits_even_rounds_stand_against_odd_ones() -> None:
    rows = {
        ("w0", "a"): [(0, 0, 4e-6), (0, 1, 9e-6), (0, 2, 2e-6), (0, 3, 3e-6), (0, 5, 8e-6)],
        ("w0", "b"): [(0, 0, 1e-6), (0, 2, 1e-6)],
        ("w0", "c"): [(0, 0, 1e-6), (0, 1, NAN)],
    }
    labels = paired_labels(measured(rows), Labelling())
    assert labels.source == Source.HALVES
    assert seconds_of(labels) == {("w0", "a"): (2e-6, 3e-6)}


def test_both_labels_are_corrected_alike_or_left_out() -> None:
    repeats = visits([2.0], [3.0])
    known = measured({("w0", "a"): repeats}, reference_seconds=[1e-3, 1.5e-3])
    unknown = measured({("w0", "b"): repeats}, reference_seconds=[1e-3, NAN])
    table = pa.concat_tables([known, unknown])
    assert seconds_of(paired_labels(table, Labelling("minimum", "divide"))) == {("w0", "a"): (2.0, 2.0)}
    assert set(paired_labels(table, Labelling()).row) == {("w0", "a"), ("w0", "b")}


@pytest.mark.parametrize("label", ["minimum", "low_quantile", "median"])
def test_the_first_of_both_labels_is_the_one_that_models_learn_from(label: str) -> None:
    random = np.random.default_rng(0)
    rows = {("w0", str(n)): visits(random.random(7) + 1, random.random(7) + 1) for n in range(5)}
    table = measured(rows, reference_seconds=(1 + random.random(14)).tolist())
    for correction in ("none", "divide"):
        labelling = Labelling(label, correction)
        labels = paired_labels(table, labelling)
        np.testing.assert_array_equal(labels.first_log_seconds, labels_of(table, labelling).log_seconds)


def agreement(make_programs, rows: dict[tuple[str, str], list[tuple[int, int, float]]]):
    """Noise over the programs that `rows` names, in order."""
    names = sorted({name for name, _ in rows})
    programs = make_programs([-9.0] * len(rows), [names.index(name) for name, _ in rows], names)
    programs = dataclasses.replace(programs, program_key=np.array([key for _, key in rows], dtype=object))
    return noise_of(programs, paired_labels(measured(rows), Labelling()), SETTINGS)


def test_the_noise_is_a_ratio_of_the_larger_over_the_smaller_and_an_order_within_workloads(make_programs) -> None:
    noise = agreement(
        make_programs,
        {
            ("w0", "a"): visits([1.0], [2.0]),
            ("w0", "b"): visits([2.0], [1.0]),
            ("w0", "c"): visits([8.0], [8.0]),
            ("w1", "d"): visits([1.0], [1.0]),
            # of another workload: in the other order than `d`, which says nothing
            ("w2", "e"): visits([0.5], [3.0]),
            ("w2", "once"): visits([0.5]),
        },
    )
    assert (noise.source, noise.programs, noise.unpaired) == ("visits", 5, 1)
    assert noise.ratio_median.value == pytest.approx(2.0)
    assert noise.ratio_p90.value == pytest.approx(np.percentile([2, 2, 1, 1, 6], 90))
    assert noise.ratio_median.low <= 2.0 <= noise.ratio_median.high
    # two of three pairs agree
    assert noise.comparisons == 3
    assert noise.kendall_tau.value == pytest.approx(1 / 3)
    by_name = {entry.workload: entry for entry in noise.workloads}
    assert [by_name[name].programs for name in ("w0", "w1", "w2")] == [3, 1, 1]
    assert by_name["w0"].kendall_tau == pytest.approx(1 / 3)
    assert by_name["w1"].kendall_tau is None
    assert by_name["w2"].ratio_median == pytest.approx(6.0)


times = st.floats(1e-6, 1.0)


def test_which_measurement_came_first_does_not_matter(make_programs) -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(["w0", "w1"]), times, times), min_size=1, max_size=8))
    def symmetric(pairs: list[tuple[str, float, float]]) -> None:
        one = {(name, str(n)): visits([first], [second]) for n, (name, first, second) in enumerate(pairs)}
        other = {(name, str(n)): visits([second], [first]) for n, (name, first, second) in enumerate(pairs)}
        this, that = agreement(make_programs, one), agreement(make_programs, other)
        assert this.ratio_median == that.ratio_median
        assert this.ratio_p90 == that.ratio_p90
        assert this.ratio_median.low >= 1.0
        if this.kendall_tau and that.kendall_tau:
            assert this.kendall_tau.value == pytest.approx(that.kendall_tau.value)

    symmetric()


def test_nothing_measured_twice_has_no_noise(make_programs) -> None:
    assert agreement(make_programs, {("w0", "a"): visits([1.0]), ("w0", "b"): visits([])}) is None


def test_the_ceiling_takes_all_programs_of_the_tested_workloads_that_were_measured_again(make_programs) -> None:
    programs = make_programs([-9.0] * 9, [0] * 4 + [1] * 4 + [2], ["w0", "w1", "w2"])
    keys, test = programs.program_key, np.array([0, 1, 4, 5])
    rows = {
        # neither is a test program
        ("w0", keys[2]): visits([1.0], [1.0]),
        ("w0", keys[3]): visits([2.0], [3.0]),
        ("w1", keys[6]): visits([2.0], [1.0]),
        ("w1", keys[4]): visits([1.0], [2.0]),
        # of a workload that is not tested
        ("w2", keys[8]): visits([1.0], [9.0]),
    }
    labels = paired_labels(measured(rows), Labelling())
    result = ceiling(programs, test, labels, Resampling.PROGRAMS, SETTINGS)
    assert (result.model, result.role, result.programs) == ("measured again", Role.CEILING, 4)
    # pooled: one of two pairs agrees
    assert result.metrics["kendall_tau"].value == pytest.approx(0.0)
    assert result.metrics["mape"].value == pytest.approx((0.25 + 0.75) / 2)
    assert result.metrics["top_1"].value == pytest.approx(0.75)
    fewer = paired_labels(measured(dict(list(rows.items())[:3])), Labelling())
    assert "top_1" not in ceiling(programs, test, fewer, Resampling.PROGRAMS, SETTINGS).metrics
    elsewhere = paired_labels(measured(dict(list(rows.items())[4:])), Labelling())
    assert ceiling(programs, test, elsewhere, Resampling.PROGRAMS, SETTINGS) is None


def test_halves_are_scored_on_the_test_programs_and_have_another_name(make_programs) -> None:
    programs = make_programs([-9.0, -8.0, -7.0, -6.0, -5.0], [0, 0, 0, 1, 0])
    keys = [str(key) for key in programs.program_key]
    rows = {
        ("w0", keys[0]): [(0, 0, 1e-6), (0, 1, 3e-6)],
        ("w0", keys[1]): [(0, 0, 2e-6), (0, 1, 2e-6)],
        ("w0", keys[2]): [(0, 0, 4e-6), (0, 1, 4e-6)],
        # another workload's program of the same key is another program
        ("w7", keys[3]): [(0, 0, 4e-6), (0, 1, 4e-6)],
        # no test program
        ("w0", keys[4]): [(0, 0, 4e-6), (0, 1, 1e-6)],
    }
    labels = paired_labels(measured(rows), Labelling())
    result = ceiling(programs, np.arange(4), labels, Resampling.PROGRAMS, SETTINGS)
    assert (result.model, result.role, result.programs) == ("odd rounds", Role.CEILING, 3)
    # one of three pairs is in the other order
    assert result.metrics["kendall_tau"].value == pytest.approx(1 / 3)
    assert result.metrics["mape"].value == pytest.approx(2 / 3)


def test_pairs_of_several_folders_are_joined_and_later_visits_come_first() -> None:
    visits = PairedLabels(Source.VISITS, {("w0", "a"): 0}, np.array([1.0]), np.array([2.0]))
    others = PairedLabels(Source.VISITS, {("w1", "a"): 1, ("w1", "b"): 0}, np.array([3.0, 4.0]), np.array([5.0, 6.0]))
    halves = PairedLabels(Source.HALVES, {("w2", "c"): 0}, np.array([7.0]), np.array([8.0]))
    both = joined([visits, others])
    assert {key: (both.first_log_seconds[pair], both.second_log_seconds[pair]) for key, pair in both.row.items()} == {
        ("w0", "a"): (1.0, 2.0),
        ("w1", "a"): (4.0, 6.0),
        ("w1", "b"): (3.0, 5.0),
    }
    assert joined([halves, visits]).row == visits.row
    assert joined([halves]).source is Source.HALVES
