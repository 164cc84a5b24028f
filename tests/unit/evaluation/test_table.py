import csv
import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from kernelcast.evaluation.results import Results
from kernelcast.evaluation.table import (
    long_rows,
    nested_metrics,
    noise_sentence,
    number,
    per_workload_rows,
    percentage,
    short,
    split_caption,
    terminal_tables,
    wide_rows,
    write_csv,
)


def printed(results: Results, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO())
    for table in terminal_tables(results):
        console.print(table)
    return console.file.getvalue()


def test_the_terminal_shows_every_model_with_its_interval_and_what_is_missing(results: Results) -> None:
    text = printed(results)
    for expected in (
        "random split: workloads seen in training",
        "workload split: workloads never seen in training",
        "0.500 [0.300, 0.600]",
        "measured again",
        "40.0%",
        "13 test programs of 3 workloads",
        "bootstrap intervals over programs",
        "lonely",
        "not evaluated",
        "model.json does not exist",
    ):
        assert expected in " ".join(text.split()), expected


def test_what_looks_like_markup_is_shown_as_it_is(results: Results) -> None:
    missing = [dataclasses.replace(results.missing[0], reason="features.views=[trace] has [/] no ast")]
    assert "features.views=[trace] has [/] no ast" in printed(dataclasses.replace(results, missing=missing), 200)


def test_a_model_of_ranks_shows_a_dash_for_errors_of_time(results: Results) -> None:
    line = next(line for line in printed(results).splitlines() if "gcn" in line)
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["gcn", "0.500 [0.300, 0.600]", "0.750", "-", "-", "-", "-", "1.5 s", "4.2 µs"]


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


def test_long_rows_put_the_noise_ceiling_beside_each_value(results: Results) -> None:
    rows = {(row["split"], row["model"], row["metric"]): row for row in long_rows(results)}
    row = rows["random", "xgboost", "mape"]
    assert (row["value"], row["low"], row["high"], row["noise_ceiling"]) == pytest.approx((0.4, 0.2, 0.5, 0.02))
    assert ("random", "gcn", "mape") not in rows


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


def test_absurd_values_stay_short() -> None:
    assert percentage(1e217) == "1e+219%"
    assert number(1e9) == "1e+09"
    assert [short(value) for value in (0.173, 8.8, 1240.3)] == ["0.17", "8.8", "1240"]
