"""Predictions as files and on the terminal; what is shown and written is computed here by hand."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from kernelcast.errors import ConfigError, StorageError
from kernelcast.models.protocol import PredictionKind
from kernelcast.prediction.answer import CSV_COLUMNS, SCHEMA, Answer, check_output, write_output
from kernelcast.prediction.subjects import Origin, Subject
from kernelcast.prediction.terminal import heading, notes, number, table
from kernelcast.records import Workload
from kernelcast.stages.predict import show

TARGET = {"kind": "llvm", "mcpu": "znver4", "num-cores": 1}


def workload(name: str, **networks: int) -> Workload:
    return Workload(f"{name}-key", name, name, {}, "", networks)


def answer(predicted: list[float], kind: PredictionKind = PredictionKind.LOG_SECONDS) -> Answer:
    """Two programs of a matmul that a network runs twice, two of a softmax, one of which cannot be predicted."""
    matmul, softmax = workload("matmul", net=2), workload("softmax", net=1)
    subjects = (
        Subject(matmul, "[[],[]]", "a", 2e-3, Origin.RECORDED),
        Subject(softmax, "[[],[]]", "b", None, Origin.RECORDED),
        Subject(matmul, "[[],[]]", "c", 1e-3, Origin.RECORDED),
        Subject(softmax, "[[],[]]", "d", None, Origin.RECORDED),
    )
    faults = tuple("" if np.isfinite(value) else "torn" for value in predicted)
    return Answer(subjects, np.array(predicted), faults, kind, 0.5, TARGET)


TIMES = [np.log(3e-3), np.log(1e-5), np.log(1.5e-3), np.inf]


def printed(shown: Answer, top: int = 10, width: int = 80) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(heading(shown, top))
    console.print(table(shown, top))
    for line in notes(shown):
        console.print(line, soft_wrap=True)
    return console.export_text()


def test_columns(tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    write_output(answer(TIMES), path)
    rows = pq.read_table(path).to_pylist()
    assert pq.read_schema(path).names == SCHEMA.names
    # workload by workload, the fastest first, what cannot be predicted last
    assert [row["program_key"] for row in rows] == ["c", "a", "b", "d"]
    assert [row["rank"] for row in rows] == [1, 2, 1, None]
    assert [row["ratio_to_best"] for row in rows] == pytest.approx([1, 2, 1, None])
    assert [row["predicted_microseconds"] for row in rows] == pytest.approx([1500, 3000, 10, None])
    assert [row["measured_microseconds"] for row in rows] == pytest.approx([1000, 2000, None, None])
    assert [row["weight"] for row in rows] == [2, 2, 1, 1]
    assert [row["fault"] for row in rows] == ["", "", "", "torn"]


def test_csv_has_the_same_without_the_traces(tmp_path: Path) -> None:
    path = tmp_path / "predictions.csv"
    write_output(answer(TIMES), path)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == CSV_COLUMNS
    assert "trace" not in CSV_COLUMNS
    assert float(rows[0]["predicted_microseconds"]) == pytest.approx(1500)
    assert (rows[3]["predicted_microseconds"], rows[3]["rank"]) == ("", "")


def test_only_earlier_predictions_are_replaced(tmp_path: Path) -> None:
    for name in ("a.csv", "a.parquet"):
        path = tmp_path / name
        check_output(path)
        write_output(answer(TIMES), path)
        check_output(path)
        path.write_text("something else")
        with pytest.raises(StorageError, match="holds no predictions"):
            check_output(path)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(StorageError, match="holds no predictions"):
        check_output(tmp_path / "folder.csv")
    with pytest.raises(ConfigError, match=r"must be \.csv or \.parquet"):
        check_output(tmp_path / "a.txt")


def test_terminal_of_several_workloads() -> None:
    text = printed(answer(TIMES))
    assert "2 workloads: 4 recorded programs" in text
    [matmul] = [line.split() for line in text.splitlines() if line.strip().startswith("matmul")]
    # programs, best predicted, its measured time, the least measured one, runs
    assert matmul == ["matmul", "2", "1500", "1000", "1000", "2"]
    # 2 times 1500 and once 10
    assert "net: 3010 us in 2 kernels, each as often as it runs" in text
    assert "Kendall's tau 1.00 within workloads (mean of 1), mean error of the times 50%" in text
    assert all(len(line) <= 80 for line in text.splitlines() if line.startswith(" "))


def test_a_name_is_whole_in_a_file_and_folded_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "network.fused_conv2d_batch_norm_add_relu_max_pool2d_transpose_reshape_17"
    several = answer(TIMES)
    shown = replace(several, subjects=(replace(several.subjects[0], workload=workload(name)), *several.subjects[1:]))
    show(shown, top=10)
    assert name in capsys.readouterr().out
    on_terminal = printed(shown)
    assert name not in on_terminal
    assert max(map(len, on_terminal.split("Of each")[0].splitlines())) <= 80


def test_terminal_of_a_model_of_order() -> None:
    text = printed(answer([2.0, 0.0, 1.0, 3.0], PredictionKind.RANK))
    assert "us in" not in text
    assert "This model predicts an order, no times" in text
    assert "net: times of kernels cannot be added up by a model of order" in text


def test_terminal_of_one_workload_shows_the_best() -> None:
    full = answer(TIMES)
    matmul = Answer(full.subjects[::2], full.predicted[::2], ("", ""), full.kind, 1.0, TARGET)
    text = printed(matmul, top=1)
    assert "matmul: 2 recorded programs, the 1 that are predicted to be fastest" in text
    [row] = [line.split() for line in text.splitlines() if line.split() and line.split()[0] == "1"]
    assert row == ["1", "c", "1500", "1.00", "1000"]


def test_times_say_how_far_they_are_to_be_believed() -> None:
    unmeasured = tuple(replace(one, measured_seconds=None) for one in answer(TIMES).subjects)
    shown = replace(answer(TIMES), subjects=unmeasured, typical_factor=1.83)
    assert "half of the times were within a factor of 1.83 of the measured ones" in printed(shown)
    assert "factor" not in printed(replace(shown, typical_factor=None))
    assert "factor" not in printed(replace(shown, kind=PredictionKind.RANK))
    # measured times say it of these programs themselves
    assert "factor" not in printed(replace(answer(TIMES), typical_factor=1.83))


def test_equal_predictions_share_a_place() -> None:
    shown = answer([1.0, 1.0, 1.0, 1.0])
    assert shown.ranks == {0: 1, 2: 1, 1: 1, 3: 1}


def test_two_targets_of_a_workload_are_not_compared() -> None:
    one = workload("matmul")
    subjects = tuple(Subject(one, "", key, None, Origin.RECORDED, {"kind": key}) for key in ("a", "b"))
    shown = Answer(subjects, np.array([1.0, 2.0]), ("", ""), PredictionKind.RANK, 1.0, TARGET)
    assert shown.ranks == {0: 1, 1: 1}
    assert [json.loads(target)["kind"] for _, target in shown.groups] == ["a", "b"]
    assert [json.loads(target)["kind"] for target in shown.table()["target"].to_pylist()] == ["a", "b"]
    text = printed(shown)
    assert "1 workload on 2 targets: 2 recorded programs" in text
    assert text.count("matmul (kind=") == 2


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.1235"), (12345.6, "12346"), (np.nan, "-"), (np.inf, "-")])
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text
