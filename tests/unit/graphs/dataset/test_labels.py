import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.graphs.dataset.labels import LABELS, Labelling, labels_of
from kernelcast.records import measurement_table

NAN = float("nan")
times = st.lists(st.floats(1e-7, 1.0), min_size=1, max_size=9)


def table_of(*rows: dict[str, Any] | list[float]) -> pa.Table:
    """One row each, measured ones given by their repeats alone or by some columns."""
    given_rows = [row if isinstance(row, dict) else {"run_seconds": row} for row in rows]
    plain = {"workload_key": "k", "workload_name": "w", "workload_kind": "matmul", "trace": "", "target": "{}"}
    return measurement_table(
        [{**plain, "program_key": str(n), "outcome": "measured", **row} for n, row in enumerate(given_rows)]
    )


def seconds(table: pa.Table, label: str = "minimum", **choices: Any) -> list[float]:
    return np.exp(labels_of(table, Labelling(label, **choices)).log_seconds).tolist()


def test_impossible_times_are_dropped_with_their_reason() -> None:
    labels = labels_of(table_of([1e-5], [0.0], [1e10], [NAN], [np.inf], [-np.inf], []), Labelling())
    assert labels.reasons.tolist() == [
        "", "not_positive", "failure_value", "not_a_number", "infinite", "infinite", "no_times",
    ]  # fmt: skip
    assert labels.log_seconds[0] == np.log(1e-5)
    assert np.isnan(labels.log_seconds[1:]).all()


def test_what_was_not_measured_has_its_outcome_as_reason() -> None:
    table = table_of({"outcome": "crash"}, [2.0], {"outcome": "run_timeout", "run_seconds": [3.0]})
    labels = labels_of(table, Labelling("median"))
    assert labels.reasons.tolist() == ["crash", "", "run_timeout"]
    assert labels.log_seconds[1] == np.log(2.0)
    assert np.isnan(labels.log_seconds[[0, 2]]).all()


def test_one_bad_repeat_makes_all_doubtful() -> None:
    assert labels_of(table_of([1e-3, -1.0]), Labelling("median")).reasons.tolist() == ["not_positive"]


@pytest.mark.parametrize(("label", "expected"), [("minimum", 1.0), ("median", 3.0), ("low_quantile", 1.4)])
def test_labels(label: str, expected: float) -> None:
    assert seconds(table_of([5.0, 1.0, 3.0, 2.0, 4.0], [], [7.0]), label)[::2] == pytest.approx([expected, 7.0])


@given(st.lists(times, min_size=1, max_size=5), st.sampled_from(sorted(LABELS)))
def test_a_label_is_the_quantile_of_the_programs_own_repeats(rows: list[list[float]], label: str) -> None:
    expected = [np.quantile(row, LABELS[label]) for row in rows]
    np.testing.assert_allclose(seconds(table_of(*rows), label), expected, rtol=1e-12)


@given(times, st.randoms(use_true_random=False), st.sampled_from(sorted(LABELS)))
def test_the_order_of_repeats_does_not_count(row: list[float], random: Any, label: str) -> None:
    shuffled = random.sample(row, len(row))
    first, second = labels_of(table_of(row, shuffled), Labelling(label)).log_seconds
    assert first == second


def test_only_the_first_visit_counts() -> None:
    again = {"run_seconds": [4.0, 2.0, 3.0, 1.0], "visit": [0, 1, 0, 1], "round_index": [0, 0, 1, 1]}
    later_only = {"run_seconds": [4.0], "visit": [1]}
    bad_later = {"run_seconds": [4.0, NAN], "visit": [0, 1]}
    labels = labels_of(table_of(again, later_only, bad_later), Labelling())
    assert labels.reasons.tolist() == ["", "no_times", ""]
    assert np.exp(labels.log_seconds[[0, 2]]).tolist() == pytest.approx([3.0, 4.0])


def test_a_program_that_was_cut_short_keeps_its_label() -> None:
    labels = labels_of(table_of({"run_seconds": [0.5], "cut_short": True}), Labelling())
    assert (labels.reasons.tolist(), labels.log_seconds.tolist()) == ([""], [np.log(0.5)])


def test_the_correction_undoes_a_slow_state_of_the_machine() -> None:
    # the second program met the machine at 1.37 of its best time, in both rounds
    table = table_of(
        {"run_seconds": [2.0, 2.74], "reference_seconds": [1e-3, 1.37e-3]},
        {"run_seconds": [4.11, 4.11], "reference_seconds": [1.37e-3, 1.37e-3]},
    )
    assert seconds(table, "median") == pytest.approx([2.37, 4.11])
    assert seconds(table, "median", reference_correction="divide") == pytest.approx([2.0, 3.0])


def test_the_best_reference_is_that_of_the_whole_campaign() -> None:
    table = table_of(
        {"run_seconds": [2.0], "reference_seconds": [2e-3]},
        # the best one lies in a later visit of a program that failed afterwards
        {"run_seconds": [1.0], "visit": [1], "reference_seconds": [1e-3], "outcome": "crash"},
    )
    assert seconds(table, reference_correction="divide")[0] == pytest.approx(1.0)


@given(times, st.floats(1e-6, 1.0), st.sampled_from(sorted(LABELS)))
def test_equal_references_correct_nothing(row: list[float], reference: float, label: str) -> None:
    table = table_of({"run_seconds": row, "reference_seconds": [reference] * len(row)})
    assert seconds(table, label, reference_correction="divide") == seconds(table, label)


@given(st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)), min_size=1, max_size=8))
def test_a_correction_never_makes_a_program_slower(repeats: list[tuple[float, float]]) -> None:
    run, reference = (list(column) for column in zip(*repeats, strict=True))
    table = table_of({"run_seconds": run, "reference_seconds": reference})
    for label in LABELS:
        assert seconds(table, label, reference_correction="divide")[0] <= seconds(table, label)[0] * (1 + 1e-12)


@pytest.mark.parametrize("unknown", [NAN, 0.0, -1.0, np.inf])
def test_a_row_without_a_reference_is_left_as_it_is_and_told(unknown: float) -> None:
    table = table_of(
        {"run_seconds": [2.0, 4.0], "reference_seconds": [2e-3, unknown]},
        {"run_seconds": [2.0, 4.0], "reference_seconds": [2e-3, 1e-3]},
    )
    labels = labels_of(table, Labelling("minimum", "divide"))
    assert labels.uncorrected.tolist() == [True, False]
    assert np.exp(labels.log_seconds).tolist() == pytest.approx([2.0, 1.0])
    assert not labels_of(table, Labelling()).uncorrected.any()


def test_a_campaign_without_references_cannot_be_corrected() -> None:
    with pytest.raises(ConfigError, match=r"reference_correction=divide .* set reference_correction=none"):
        labels_of(table_of([1.0, 2.0]), Labelling("minimum", "divide"))


def test_a_wide_spread_is_flagged_and_dropped_only_on_request() -> None:
    # TVM-12: the spread of a row is recorded, and flagged above a limit
    # interquartile range over median: 0, 2 / 3 by its repeats; as recorded; failed ones are no matter of spread
    table = table_of(
        [3.0, 3.0, 3.0],
        [1.0, 2.0, 3.0, 4.0, 5.0],
        {"run_seconds": [3.0, 3.0], "spread": 0.9},
        {"outcome": "crash", "spread": 0.9},
        [NAN],
        [],
    )
    flagging = Labelling(spread_limit=0.6)
    labels = labels_of(table, flagging)
    assert labels.flagged.tolist() == [False, True, True, False, False, False]
    assert labels.reasons.tolist() == ["", "", "", "crash", "not_a_number", "no_times"]
    dropped = labels_of(table, dataclasses.replace(flagging, drop_flagged=True))
    assert dropped.reasons.tolist()[:3] == ["", "spread_above_limit", "spread_above_limit"]
    assert np.isnan(dropped.log_seconds).tolist() == [False, True, True, True, True, True]
    assert not labels_of(table, Labelling(spread_limit=0.95)).flagged.any()
    assert not labels_of(table, Labelling()).flagged.any()


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"label": "mean"}, "label: 'mean' is unknown; choose one of minimum, low_quantile, median"),
        (
            {"reference_correction": "subtract"},
            "reference_correction: 'subtract' is unknown; choose one of none, divide",
        ),
        ({"spread_limit": 0.0}, "spread_limit=0.0 must be above 0"),
        ({"spread_limit": NAN}, "spread_limit=nan"),
        ({"drop_flagged": True}, "drop_flagged=true needs a spread_limit"),
    ],
)
def test_a_choice_that_cannot_work_names_its_key(choices: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Labelling(**choices)
