"""Curves and statistics of tunings, on trials that are small enough to reckon with."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.evaluation.bootstrap import Bootstrap
from kernelcast.evaluation.experiment_record import rounded
from kernelcast.evaluation.tuning_comparison import censored_quantile, compare_tunings, reach
from kernelcast.evaluation.tuning_curves import Tunings, runs_of
from kernelcast.evaluation.tuning_page import tuning_section
from kernelcast.evaluation.tuning_plots import svg_of, tuning_charts, tuning_figure
from kernelcast.evaluation.tuning_record import (
    LatencyRow,
    SubjectCell,
    TuningRecord,
    read_tuning_records,
    tuning_record,
    write_tuning_record,
)
from kernelcast.evaluation.tuning_table import comparison_rows, comparison_table, curve_rows, write_comparison
from kernelcast.trials import trials_table

BOOTSTRAP = Bootstrap(samples=200, confidence=0.95, seed=0)
NAN = math.nan


def tuning(
    method: str,
    seconds: list[float],
    seed: int = 0,
    workload: str = "w0",
    network: str = "",
    batch: int = 2,
    cost: float = 10.0,
    first_trial: int = 0,
    first_round: int = 0,
    weight: int = 1,
) -> list[dict]:
    """The rows of one workload; each batch takes `cost` seconds to measure and 1 to search, half of it the model's."""
    return [
        {
            "method": method,
            "seed": seed,
            "network": network,
            "workload_key": workload,
            "workload_name": f"name of {workload}",
            "weight": weight,
            "trial": first_trial + number,
            "round": first_round + number // batch,
            "program_key": f"{number}",
            "outcome": "run_timeout" if math.isnan(time) else "measured",
            "score": None,
            "run_seconds": None if math.isnan(time) else time,
            "search_seconds": 1.0,
            "model_seconds": 0.5,
            "measure_seconds": cost,
            # of the whole table, which says nothing about one workload
            "elapsed_seconds": 1e6,
        }
        for number, time in enumerate(seconds)
    ]


def table(*tunings: list[dict]) -> pa.Table:
    return trials_table([row for rows in tunings for row in rows])


@pytest.fixture
def compared() -> pa.Table:
    """Five seeds of three methods on two workloads: ours is at the best after 2 trials, TVM's after 6, chance never."""
    rows = []
    for seed in range(5):
        for number, workload in enumerate(("w0", "w1")):
            scale = 1 + number
            place = {"workload": workload, "seed": seed, "first_trial": 8 * number, "first_round": 4 * number}
            rows += tuning("ours", [scale * time for time in (3, 1, 2, 2, 2, 2, 2, 2)], **place)
            rows += tuning("tvm_xgb", [scale * time for time in (NAN, 4, 4, 3, 3, 1 + 0.1 * seed, 2, 4)], **place)
            rows += tuning("random", [scale * (8 - 0.1 * seed)] * 8, **place)
    return trials_table(rows)


def test_a_curve_is_the_best_so_far_over_trials_and_over_the_batches_that_ended() -> None:
    (run,) = runs_of(table(tuning("ours", [NAN, 3.0, 4.0, 2.0, NAN], first_trial=7, first_round=3)))
    assert (run.method, run.seed, run.subject, run.name, len(run)) == ("ours", 0, "w0", "name of w0", 5)
    np.testing.assert_array_equal(run.best_seconds, [np.inf, 3, 3, 2, 2])
    np.testing.assert_array_equal(run.wall_seconds, [11, 11, 22, 22, 33])
    assert run.model_seconds == 1.5
    np.testing.assert_array_equal(run.after_trials(np.array([1, 2, 5, 9])), [np.inf, 3, 2, 2])
    np.testing.assert_array_equal(run.after_seconds(np.array([0.0, 10.9, 11.0, 22.0, 1e9])), [np.inf, np.inf, 3, 2, 2])
    assert (run.first_at(3.0), run.first_at(2.5), run.first_at(1.9)) == (1, 3, None)


def test_rows_may_come_in_any_order_and_from_several_tables() -> None:
    rows = tuning("ours", [3.0, 2.0, 1.0], workload="w0") + tuning("ours", [5.0, 4.0], workload="w1")
    shuffled = [rows[place] for place in (4, 2, 0, 3, 1)]
    by_subject = {run.subject: run for run in runs_of(trials_table(shuffled))}
    np.testing.assert_array_equal(by_subject["w0"].best_seconds, [3, 2, 1])
    np.testing.assert_array_equal(by_subject["w1"].best_seconds, [5, 4])
    np.testing.assert_array_equal(by_subject["w1"].wall_seconds, [11, 11])


def test_a_network_has_a_time_when_each_workload_has_one_and_counts_it_as_often_as_it_runs() -> None:
    def of(method: str, *parts: tuple[str, list[float], int]) -> list[dict]:
        rows: list[dict] = []
        for number, (workload, seconds, weight) in enumerate(parts):
            place = {"first_trial": len(rows), "first_round": number, "weight": weight, "network": "net"}
            rows += tuning(method, seconds, workload=workload, **place)
        return rows

    whole = of("ours", ("a", [3.0, 2.0], 2), ("b", [NAN, 10.0], 1), ("a", [1.0, 5.0], 2))
    lacking = of("random", ("a", [0.1, 0.1], 2))
    ours, other = runs_of(table(whole, lacking))
    assert (ours.subject, ours.name) == ("net", "net")
    np.testing.assert_array_equal(ours.best_seconds, [np.inf, np.inf, np.inf, 14, 12, 12])
    np.testing.assert_array_equal(ours.wall_seconds, [11, 11, 22, 22, 33, 33])
    # it never tried b
    assert np.isinf(other.best_seconds).all()


def test_curves_are_speeds_relative_to_the_best_that_anyone_found(compared: pa.Table) -> None:
    tunings = Tunings.of(compared)
    assert tunings.methods == ("ours", "tvm_xgb", "random")
    assert tunings.best_known == {"w0": 1.0, "w1": 2.0}
    assert tunings.speeds("ours").shape == (5, 2, 8)
    np.testing.assert_allclose(tunings.speeds("ours")[3, 1], [1 / 3, 1, 1, 1, 1, 1, 1, 1])
    np.testing.assert_allclose(tunings.speeds("tvm_xgb")[0, 0], [0, 1 / 4, 1 / 4, 1 / 3, 1 / 3, 1, 1, 1])


def test_tun_06_five_seeds_give_a_median_and_a_quartile_band_over_trials_and_over_wall_time(
    compared: pa.Table, tmp_path: Path
) -> None:
    # case TUN-06
    tunings = Tunings.of(compared)
    band = tunings.trials_band("tvm_xgb")
    # the best of the five seeds after 6 trials are 1, 1.1, 1.2, 1.3 and 1.4
    np.testing.assert_allclose([band.low[5], band.median[5], band.high[5]], [1 / 1.3, 1 / 1.2, 1 / 1.1])
    assert (band.low <= band.median).all()
    assert (band.median <= band.high).all()
    wall = tunings.wall_band("ours")
    assert (wall.x[0], wall.x[-1]) == (11.0, 44.0)
    np.testing.assert_array_equal(wall.median, np.ones(len(wall.x)))
    slow = tunings.wall_band("tvm_xgb")
    # its third batch ends after 33 seconds
    np.testing.assert_allclose(slow.median[slow.x < 33 - 1e-9].max(), 1 / 3)
    np.testing.assert_allclose(slow.median[-1], 1 / 1.2)

    comparison = compare_tunings(tunings, BOOTSTRAP)
    write_comparison(tmp_path, tunings, comparison)
    with (tmp_path / "curves.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["against"] for row in rows} == {"trials", "seconds"}
    assert {row["workload"] for row in rows} == {"all", "name of w0", "name of w1"}
    (point,) = (
        row
        for row in rows
        if (row["workload"], row["method"], row["against"], row["x"]) == ("all", "tvm_xgb", "trials", "6.0")
    )
    assert [float(point[name]) for name in ("low", "median", "high")] == pytest.approx([1 / 1.3, 1 / 1.2, 1 / 1.1])
    assert point["seeds"] == "5"
    with (tmp_path / "comparison.csv").open(newline="") as stream:
        assert [row["method"] for row in csv.DictReader(stream)] == ["ours", "tvm_xgb", "random"]

    charts = tuning_charts(tunings)
    assert len(charts) == 2
    for options in charts.values():
        assert [name for name, _ in options] == ["geometric mean of all", "name of w0", "name of w1"]
        for _, chart in options:
            named = [trace["name"] for trace in json.loads(chart.to_json())["data"] if trace.get("name")]
            assert named == ["ours", "tvm_xgb", "random"]
            # told apart without colours
            assert len({trace.marker.symbol for trace in chart.data if trace.name}) == 3
    figure = tuning_figure(tunings, title="made up")
    over_trials, over_time = figure.axes
    assert [line.get_label() for line in over_trials.lines] == ["ours", "tvm_xgb", "random"]
    assert len(over_trials.collections) == 3
    assert len({line.get_marker() for line in over_trials.lines}) == 3
    np.testing.assert_array_equal(over_trials.lines[1].get_xydata().T, [band.corners().x, band.corners().median])
    assert over_time.get_xscale() == "log"
    drawn = svg_of(figure)
    assert drawn.startswith("<svg")
    assert drawn == svg_of(tuning_figure(tunings, title="made up"))


def test_trials_to_reach_what_tvm_reaches_at_the_end(compared: pa.Table) -> None:
    tunings = Tunings.of(compared)
    # the median of TVM's five ends is 1.2, and 2.4
    ours, theirs, chance = (reach(tunings, method) for method in tunings.methods)
    np.testing.assert_array_equal(ours.trials, np.full((5, 2), 2))
    np.testing.assert_array_equal(ours.seconds, np.full((5, 2), 11.0))
    np.testing.assert_allclose(ours.ratio, np.full((5, 2), 11 / 44))
    np.testing.assert_array_equal(theirs.reached, np.array([[seed <= 2] * 2 for seed in range(5)]))
    np.testing.assert_array_equal(theirs.trials, np.array([[6] * 2] * 3 + [[8] * 2] * 2))
    assert not chance.reached.any()

    comparison = compare_tunings(tunings, BOOTSTRAP)
    assert (comparison.budget, comparison.reference_trials) == (8, 8)
    found = comparison.of_method("ours").reach
    assert found is not None
    assert (found.trials.value, found.trials.low, found.trials.high) == (2, 2, 2)
    assert found.share.value == 1
    assert found.ratio.value == pytest.approx(0.25)
    theirs = comparison.of_method("tvm_xgb").reach
    assert (theirs.trials.value, theirs.seconds.value, theirs.share.value) == (6, 33.0, 0.6)
    # with other seeds drawn fewer than half of them reach it
    assert math.isinf(theirs.trials.high)
    chance = comparison.of_method("random").reach
    assert (chance.trials.value, chance.share.value) == (math.inf, 0.0)
    # a tenth more is reached by TVM's own sixth trial with four of the five seeds
    near = compare_tunings(tunings, BOOTSTRAP, within=0.1).of_method("tvm_xgb").reach
    assert near.share.value == pytest.approx(0.8)


def test_area_and_end_have_intervals_over_workloads_and_pairs_are_compared(compared: pa.Table) -> None:
    comparison = compare_tunings(compared, BOOTSTRAP)
    ours, theirs = comparison.of_method("ours"), comparison.of_method("tvm_xgb")
    assert ours.area.value == pytest.approx((1 / 3 + 7) / 8)
    # both workloads are alike, and so are the seeds
    assert (ours.area.low, ours.area.high) == pytest.approx((ours.area.value, ours.area.value))
    assert theirs.final_speed.value == pytest.approx(np.mean([1 / (1 + 0.1 * seed) for seed in range(5)]))
    assert theirs.final_speed.low < theirs.final_speed.value < theirs.final_speed.high
    assert ours.seconds == 44
    assert ours.model_share == pytest.approx(2 / 44)
    pairs = {(pair.model, pair.other, pair.metric): pair for pair in comparison.pairs}
    assert len(pairs) == 6
    pair = pairs["ours", "tvm_xgb", "area_under_curve"]
    assert pair.difference == pytest.approx(ours.area.value - theirs.area.value)
    assert 0 < pair.low <= pair.difference <= pair.high
    assert pair.workloads == 2


def test_a_method_that_finds_nothing_is_compared_all_the_same() -> None:
    rows = [tuning("ours", [2.0, 1.0], workload=name) for name in ("w0", "w1")]
    rows += [tuning("tvm_xgb", [NAN, NAN], workload="w0"), tuning("tvm_xgb", [NAN, 2.0], workload="w1")]
    comparison = compare_tunings(table(*rows), BOOTSTRAP)
    theirs = comparison.of_method("tvm_xgb")
    assert theirs.final_speed.value == 0
    assert theirs.final_speed.high == pytest.approx(0.5)
    assert theirs.area.value == pytest.approx((0 + 0.25) / 2)
    # TVM's end on w0 is no time at all: the first program that runs is better
    ours = comparison.of_method("ours").reach
    assert (ours.trials.value, ours.share.value) == (1, 1.0)


def test_what_only_some_tuned_is_left_out_and_named(compared: pa.Table) -> None:
    more = pa.concat_tables([compared, table(tuning("ours", [1.0], workload="w2"))])
    comparison = compare_tunings(more, BOOTSTRAP)
    assert comparison.subjects == ("name of w0", "name of w1")
    assert comparison.left_out == ("name of w2",)
    with pytest.raises(MalformedDataError, match="every method tuned with each of its seeds"):
        Tunings.of(table(tuning("ours", [1.0], workload="w0"), tuning("random", [1.0], workload="w1")))
    with pytest.raises(ConfigError, match="'gcn'; choose from ours, tvm_xgb, random"):
        comparison.of_method("gcn")


def test_without_the_reference_there_are_curves_and_nothing_to_reach() -> None:
    comparison = compare_tunings(table(tuning("ours", [2.0, 1.0])), BOOTSTRAP)
    (result,) = comparison.methods
    assert result.reach is None
    assert comparison.reference_trials is None
    (row,) = comparison_rows(comparison)
    assert row["trials_to_reach"] is None
    assert row["reference"] is None
    assert row["area_under_curve"] == pytest.approx(0.75)
    assert "reach" not in printed(comparison)


def test_the_terminal_shows_what_is_not_reached_as_more_than_the_budget(compared: pa.Table) -> None:
    text = printed(compare_tunings(compared, BOOTSTRAP))
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert lines["ours"][1:] == [
        "0.92", "[0.92,", "0.92]", "1.00", "2", "[2,", "2]", "100%", "0.25", "44", "s", "4.5%",
    ]  # fmt: skip
    assert lines["random"][5:10] == [">8", "[>8,", ">8]", "0%", "-"]
    assert "2 workloads, 5 seeds a method, at most 8 trials" in " ".join(text.split())
    assert "to reach: trials to the best of tvm_xgb at the end of its 8, median" in " ".join(text.split())


def printed(comparison) -> str:
    console = Console(width=80, file=io.StringIO())
    console.print(comparison_table(comparison))
    return console.file.getvalue()


def test_a_flat_curve_is_a_few_rows(compared: pa.Table) -> None:
    rows = curve_rows(Tunings.of(compared))
    chance = [row for row in rows if (row["method"], row["against"], row["workload"]) == ("random", "trials", "all")]
    assert [row["x"] for row in chance] == [1.0, 8.0]


def test_corners_are_the_same_steps(compared: pa.Table) -> None:
    whole = Tunings.of(compared).trials_band("tvm_xgb")
    few = whole.corners()
    assert 2 < len(few.x) < len(whole.x)
    assert (few.x[0], few.x[-1]) == (whole.x[0], whole.x[-1])
    # each point of the curve has the values of the last corner before it
    last = np.searchsorted(few.x, whole.x, side="right") - 1
    for part in ("low", "median", "high"):
        np.testing.assert_array_equal(getattr(few, part)[last], getattr(whole, part))


def test_censored_runs_count_until_they_end() -> None:
    # Kaplan and Meier by hand: 1 of 5 reaches at 2; at 4 one ends without; 1 of 3 at 5: 0.8 * 2/3 = 0.53; at 7 0.27
    values = np.array([2.0, 4.0, 5.0, 7.0, 9.0])
    reached = np.array([True, False, True, True, False])
    once = np.ones((1, 5))
    assert censored_quantile(values, reached, once, 0.2) == [2]
    assert censored_quantile(values, reached, once, 0.45) == [5]
    assert censored_quantile(values, reached, once, 0.5) == [7]
    assert censored_quantile(values, reached, once, 0.8) == [np.inf]
    # without censoring it is the plain quantile, with ties too, and a weight is a run as often
    plain = censored_quantile(
        np.array([3.0, 1.0, 1.0]), np.ones(3, dtype=bool), np.array([[1, 1, 1.0], [3, 1, 1]]), 0.5
    )
    assert plain.tolist() == [1, 3]
    # a run that ends where others reach it was still there: 1 of 2
    tied = censored_quantile(np.array([2.0, 2.0]), np.array([False, True]), np.ones((1, 2)), 0.5)
    assert tied.tolist() == [2]
    assert censored_quantile(values, np.zeros(5, dtype=bool), once, 0.5) == [np.inf]


def recorded(compared: pa.Table) -> TuningRecord:
    tunings = Tunings.of(compared)
    latency = {"name of w1": [LatencyRow("ours@0", 0.002, 0.003), LatencyRow("torch | eager", 0.003, 0.004)]}
    made = {"measured_on": "a processor", "date": "2026-11-30", "revision": "abc", "versions": {"python": "3.11"}}
    return tuning_record(
        "small", "Small", tunings, compare_tunings(tunings, BOOTSTRAP, within=0.02), 0.02, latency, made
    )


def test_a_published_comparison_is_read_as_it_was_written(tmp_path: Path, compared: pa.Table) -> None:
    record = recorded(compared)
    path = write_tuning_record(tmp_path / "tuning", record)
    assert (path,) == tuple((tmp_path / "tuning").iterdir())
    (read,) = read_tuning_records(tmp_path / "tuning")
    assert rounded(dataclasses.asdict(read)) == rounded(dataclasses.asdict(record))
    ours, _, random = read.methods
    # chance never gets there: no number stands for that
    assert (ours.trials.value, ours.reached, random.trials.value, random.reached) == (2, 1.0, None, 0.0)
    assert read.subjects["name of w0"]["ours"] == SubjectCell(1.0, 8.0, 2.0)
    assert read.subjects["name of w1"]["random"].trials is None


def test_its_section_shows_every_method_subject_and_latency(compared: pa.Table) -> None:
    section = tuning_section(recorded(compared))
    assert section.startswith("## Small\n\n2 workloads, 5 seeds a method")
    assert "| ours | 8 | " in section
    assert "| 2 [2, 2] | 100% |" in section
    assert "∞ [∞, ∞] | 0% |" in section
    assert "| name of w0 | 1000 (8) [2] |" in section
    assert "[never]" in section
    assert "Latency of name of w1" in section
    assert "torch \\| eager | 3 | 4 | 1.50 |" in section
    assert "abc; python 3.11. measured on a processor" in section


def test_without_the_reference_nothing_is_said_of_reaching_it(compared: pa.Table) -> None:
    alone = compared.filter(pc.not_equal(compared["method"], "tvm_xgb"))
    section = tuning_section(recorded(alone))
    assert "| name of w0 | 1000 (8) |" in section
    assert "reach" not in section.partition("Milliseconds")[2]


@pytest.mark.parametrize("text", ["[]", "{}", '{"version": 1}', '{"version": 1, "methods": [3]}'])
def test_what_is_no_record_of_tunings_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "one.json").write_text(text)
    with pytest.raises(MalformedDataError, match=r"one.json: not a record of tunings .*publish the comparison again"):
        read_tuning_records(tmp_path)
