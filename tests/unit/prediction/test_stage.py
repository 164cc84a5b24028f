"""The stage as its script runs it: what is asked on the command line, what is printed and written."""

import csv
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from kernelcast.errors import ConfigError, KernelcastError, MissingInputError, StorageError
from kernelcast.stages.config import register_schemas
from kernelcast.stages.predict import predict
from tests.unit.prediction.conftest import CONF, PROGRAMS, Trained

MATMUL = ("input=matmul", "shape={rows: 16, columns: 16, depth: 16}")


def run(trained: Trained, *overrides: str, model: str = "lightgbm") -> None:
    register_schemas()
    folder = trained.folder(model).relative_to(trained.root)
    asked = [f"model_name={folder}", f"paths.root={trained.root}", *overrides]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("predict", overrides=asked)
    OmegaConf.resolve(config)
    predict(config)


def test_an_operator_is_drawn_printed_and_written(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, schedules = tmp_path / "all.csv", tmp_path / "best"
    for _ in range(2):
        # again it replaces what it wrote
        run(trained, *MATMUL, "samples=6", "top=2", f"output={output}", f"schedules={schedules}")
    printed = capsys.readouterr().out
    assert "matmul: 6 random schedules, the 2 that are predicted to be fastest" in printed
    assert "predicted us" in printed
    with output.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    for row in rows:
        assert (row["program_key"] in printed) == (row["rank"] in ("1", "2"))
    assert len((schedules / "database_tuning_record.json").read_text().splitlines()) == 2


def test_a_file_of_workloads_by_its_name(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    run(trained, "input=tiny", "samples=2")
    by_input = capsys.readouterr().out
    assert "4 workloads: 8 random schedules" in by_input
    run(trained, "workload=tiny", "samples=2")
    assert capsys.readouterr().out == by_input


def test_measured_times_stand_beside_those_of_a_model_of_order(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    run(trained, f"input={trained.measurements}", model="trees_of_rank")
    printed = capsys.readouterr().out
    assert f"2 workloads: {2 * PROGRAMS} recorded programs" in printed
    assert "This model predicts an order, no times" in printed
    assert "measured us" in printed
    assert "Kendall's tau" in printed
    assert "mean error" not in printed


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        ([], ConfigError, "name what to predict: input=FILE or input=NAME"),
        (["input=matmul", "workload=tiny"], ConfigError, "one thing to predict, not input and workload"),
        ([*MATMUL, "top=0"], ConfigError, "top must be a positive integer"),
        ([*MATMUL, "samples=-1"], ConfigError, "samples must be a positive integer"),
        ([*MATMUL, "output=all.txt"], ConfigError, r"must be \.csv or \.parquet"),
        ([*MATMUL, "output=''"], ConfigError, "output is empty"),
        (["input=matmul", "shape=3"], ConfigError, "shape=3: write names and values"),
        (["input=tiny", "shape={rows: 3}"], ConfigError, "rows"),
        (["input=matmull"], MissingInputError, "no operator or network of this name \\(did you mean matmul"),
        # like `attention`, and yet no mistyped operator
        (["input=absent.json"], MissingInputError, r"no operator or network of this name\. A path can be"),
        (["input=matmul", "shape={row: 8}"], ConfigError, "it has no row \\(did you mean rows"),
        # before any work
        ([*MATMUL, "output=/dev/null/all.csv"], StorageError, "cannot write /dev/null/all.csv"),
        ([*MATMUL, "output=/proc/all.csv"], StorageError, "cannot write /proc/all.csv"),
        ([*MATMUL, "schedules=/proc/best"], StorageError, "cannot write /proc/best"),
        ([*MATMUL, "model_name=abcdef12"], MissingInputError, "the id of a run has all its 32 digits"),
        (["input=nowhere.json"], MissingInputError, r"input=nowhere\.json: there is no such file"),
        ([*MATMUL, "target={num-cores: 99}"], ConfigError, "the model was trained for"),
        ([*MATMUL, "model_name=nothing"], MissingInputError, "model=nothing is no folder"),
    ],
)
def test_what_cannot_be_is_one_message(
    trained: Trained, overrides: list[str], error: type[KernelcastError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(trained, *overrides)


def test_a_file_that_may_not_run_is_told_before_the_model_is_loaded(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit\n")
    with pytest.raises(ConfigError, match="trust_python=true"):
        run(trained, f"input={tmp_path / 'mine.py'}", "model_name=nothing")


def test_nothing_else_is_replaced(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"it has no predicted\.json"):
        run(trained, *MATMUL, f"schedules={tmp_path / 'mine'}")
    (tmp_path / "mine.csv").write_text("a,b\n")
    with pytest.raises(StorageError, match="holds no predictions"):
        run(trained, *MATMUL, f"output={tmp_path / 'mine.csv'}")
    assert (tmp_path / "mine/notes.txt").read_text() == "mine"
