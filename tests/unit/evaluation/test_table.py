import csv
import dataclasses
import json
from pathlib import Path

import pytest

from kernelcast.evaluation.results import Results
from kernelcast.evaluation.table import (
    COMPARISON_COLUMNS,
    NETWORK_COLUMNS,
    comparison_rows,
    long_rows,
    nested_metrics,
    noise_sentence,
    number,
    per_network_rows,
    per_workload_rows,
    percentage,
    short,
    split_caption,
    wide_rows,
    write_csv,
)


def test_metrics_nest_by_split_and_model_and_hold_finite_numbers_only(results: Results) -> None:
    nested = nested_metrics(results)
    json.dumps(nested, allow_nan=False)
    assert set(nested) == {"random", "workload"}
    assert nested["random"]["gcn"] == pytest.approx(
        {
            "kendall_tau": 0.5,
            "kendall_tau_low": 0.3,
            "kendall_tau_high": 0.6,
            "pairwise_accuracy": 0.75,
            "train_seconds": 1.5,
            "predict_microseconds": 4.25,
        }
    )
    assert "mape" not in nested["random"]["gcn"]
    assert nested["random"]["xgboost"]["mape"] == 0.4


def test_wide_rows_have_one_row_a_split_and_model_and_equal_columns(results: Results) -> None:
    rows = wide_rows(results)
    assert [(row["split"], row["model"]) for row in rows][:2] == [("random", "measured again"), ("random", "gcn")]
    assert len(rows) == 6
    assert all(list(row) == list(rows[0]) for row in rows)
    assert rows[1]["mape"] is None


def test_long_rows_put_the_noise_ceiling_and_the_share_of_it_beside_each_value(results: Results) -> None:
    rows = {(row["split"], row["model"], row["metric"], row["aggregation"]): row for row in long_rows(results)}
    assert len(rows) == len(long_rows(results))
    row = rows["random", "xgboost", "mape", "workloads"]
    assert (row["value"], row["low"], row["high"], row["noise_ceiling"]) == pytest.approx((0.4, 0.2, 0.5, 0.02))
    # the noise makes a twentieth of the error
    assert row["share_of_ceiling"] == pytest.approx(0.05)
    assert ("random", "gcn", "mape", "workloads") not in rows
    pairs = rows["random", "gcn", "pairwise_accuracy", "workloads"]
    assert pairs["share_of_ceiling"] == pytest.approx((0.75 - 0.5) / (0.975 - 0.5))
    assert rows["random", "measured again", "kendall_tau", "workloads"]["share_of_ceiling"] is None
    assert all(list(row) == list(rows["random", "gcn", "train_seconds", ""]) for row in rows.values())


def test_long_rows_count_workloads_in_three_ways_and_have_seeds_and_costs(results: Results) -> None:
    rows = {(row["split"], row["model"], row["metric"], row["aggregation"]): row for row in long_rows(results)}
    of_gcn = [rows["random", "gcn", "kendall_tau", each] for each in ("workloads", "task weight", "networks")]
    assert [row["value"] for row in of_gcn] == [0.5, 0.25, 0.125]
    assert [row["share_of_ceiling"] for row in of_gcn] == pytest.approx([0.5 / 0.95] * 3)
    assert [(row["seeds"], row["seed_deviation"]) for row in of_gcn] == [(2, 0.04)] * 3
    assert rows["random", "xgboost", "kendall_tau", "workloads"]["seed_deviation"] is None
    seconds = rows["random", "gcn", "train_seconds", ""]
    assert (seconds["value"], seconds["seed_deviation"], seconds["low"]) == (1.5, 0.5, None)
    assert rows["random", "random", "predict_microseconds", ""]["value"] == 4.25
    assert ("random", "random", "train_seconds", "") not in rows


def test_network_and_comparison_rows_have_the_columns_that_an_empty_file_has(results: Results) -> None:
    networks, comparisons = per_network_rows(results), comparison_rows(results)
    assert {tuple(row) for row in networks} == {NETWORK_COLUMNS}
    first = networks[0]
    assert (first["model"], first["network"], first["test_workloads"], first["kendall_tau_low"]) == (
        "gcn", "resnet18", 2, 0.3,
    )  # fmt: skip
    assert {tuple(sorted(row)) for row in comparisons} == {tuple(sorted(COMPARISON_COLUMNS))}
    assert [(row["model"], row["other"]) for row in comparisons] == [
        ("gcn", "xgboost"), ("gcn", "random"), ("xgboost", "random"),
    ]  # fmt: skip


def test_workload_rows_leave_undefined_cells_empty(tmp_path: Path, results: Results) -> None:
    write_csv(tmp_path / "per_workload.csv", per_workload_rows(results))
    with (tmp_path / "per_workload.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    lonely = next(row for row in rows if row["workload"] == "lonely")
    assert (lonely["test_programs"], lonely["kendall_tau"]) == ("1", "")


def test_a_csv_without_rows_still_has_its_head(tmp_path: Path) -> None:
    write_csv(tmp_path / "learning.csv", [], ["step", "value"])
    assert (tmp_path / "learning.csv").read_text().strip() == "step,value"


def test_noise_in_words(results: Results) -> None:
    sentence = noise_sentence(results)
    assert "1.020 [1.010, 1.030] at the median and 1.070 [1.050, 1.200] at the 90th percentile" in sentence
    assert "built and measured again" in sentence
    assert "over 5 programs of 2 workloads (95% intervals)" in sentence
    assert "Kendall's tau between both is 0.900 [0.700, 1.000], over the 4 pairs" in sentence


def test_halves_of_one_visit_are_not_called_measured_again(results: Results) -> None:
    halves = dataclasses.replace(results, noise=dataclasses.replace(results.noise, source="halves"))
    assert "no program was measured again, so even rounds stand against odd rounds" in noise_sentence(halves)


def test_no_ceiling_is_said_so(results: Results) -> None:
    assert noise_sentence(dataclasses.replace(results, noise=None)).startswith("No noise ceiling: ")
    lonely = dataclasses.replace(results.noise, kendall_tau=None, comparisons=0)
    assert "nothing can be said about their order" in noise_sentence(dataclasses.replace(results, noise=lonely))


def test_the_ceiling_tells_how_few_programs_it_has(results: Results) -> None:
    assert "measured again: 12 programs of 3 of these workloads" in split_caption(results.splits[0], 0.95)


def test_the_caption_tells_how_many_seeds_there_are(results: Results) -> None:
    assert "intervals over programs and seeds (1 to 2 a model)." in split_caption(results.splits[0], 0.95)


def test_absurd_values_stay_short() -> None:
    assert percentage(1e217) == "1e+219%"
    assert number(1e9) == "1e+09"
    assert [short(value) for value in (0.173, 8.8, 1240.3)] == ["0.17", "8.8", "1240"]
