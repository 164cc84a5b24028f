"""The page of results: made of records alone, equal records make an equal page."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.experiment_record import (
    RECORD_VERSION,
    Record,
    best_of,
    read_records,
    recorded_split,
    told_apart,
    write_record,
)
from kernelcast.evaluation.leaderboard_excerpt import BEGIN, END, with_leaderboard
from kernelcast.evaluation.results import ModelResult, Role, SplitResult
from kernelcast.evaluation.results_page import render_page
from kernelcast.evaluation.summary import WorkloadScores

ROOT = Path(__file__).resolve().parents[3]


def model(name: str, values: list[float], metric: str = "kendall_tau", role: Role = Role.LEARNED) -> ModelResult:
    """A model with one value a workload."""
    value = float(np.mean(values))
    scores = tuple(WorkloadScores(f"w{number}", 10, {metric: each}) for number, each in enumerate(values))
    return ModelResult(
        name, role, "rank", "rank", 10, {metric: Estimate(value, value - 0.1, value + 0.1)}, scores, 2.0, 5.0
    )


def split(*models: ModelResult, name: str = "network") -> SplitResult:
    fields = {field.name: () for field in dataclasses.fields(SplitResult)}
    known = {
        "split": name, "known_workloads": False, "train_programs": 100, "test_programs": 40,
        "test_workloads": ("w0", "w1", "w2", "w3"), "resampling": "workloads and programs", "models": models,
    }  # fmt: skip
    return SplitResult(**{**fields, **known})


def record(**changed: object) -> Record:
    better, alike = [0.9, 0.8, 0.85, 0.9], [0.88, 0.83, 0.86, 0.86]
    parts = [split(model("odd rounds", [1.0] * 4, role=Role.CEILING), model("gcn", better), model("tree", alike))]
    parts.append(split(model("random", [0.1, -0.1, 0.0, 0.04], role=Role.BASELINE)))
    labels = ["random", "tree", "gcn", "gone"]
    joined = recorded_split(parts, labels, {"gcn": 2, "tree": 1, "random": 2}, ["kendall_tau", "mape"])
    made = Record(
        version=RECORD_VERSION, name="one", title="A | title", question="Which?", source="a paper",
        command="python scripts/experiment.py experiment=one", date="2026-01-02", measured_on=("a cpu (llvm)",),
        trained_on="a cpu", programs=140, workloads=9, data={"default": "0123"}, seeds=(0, 1), confidence=0.95,
        label="minimum", versions={"torch": "2.13.0"}, revision="abc", metrics=("kendall_tau", "mape"),
        columns="metrics", splits=(joined,), failed=("gone on network, seed 0: no | memory",),
    )  # fmt: skip
    return dataclasses.replace(made, **changed)


def test_the_best_is_bold_and_what_is_not_told_from_it_is_marked() -> None:
    page = render_page([record()])
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert rows == [
        "| model | Kendall's tau ↑ | train, s | predict, µs |",
        "| --- | ---: | ---: | ---: |",
        "| *odd rounds* (noise ceiling) | 1.000 [0.900, 1.100] | 2 | 5 |",
        "| random | 0.010 [-0.090, 0.110] | 2 | 5 |",
        "| tree (1 of 2 seeds) | ≈ 0.857 [0.757, 0.957] | 2 | 5 |",
        "| gcn | **0.863 [0.763, 0.963]** | 2 | 5 |",
    ]
    for text in ("Stands for: a paper", "no \\| memory", "140 programs of 9 workloads", "torch 2.13.0", "seeds 0, 1"):
        assert text in page


def test_columns_may_be_splits() -> None:
    one = record()
    other = dataclasses.replace(one.splits[0], split="random")
    page = render_page([dataclasses.replace(one, columns="splits", splits=(*one.splits, other))])
    assert "| model | network | random |" in page
    assert "| gcn | **0.863 [0.763, 0.963]** | **0.863 [0.763, 0.963]** |" in page
    assert "MAPE" not in page


def test_equal_records_make_an_equal_page(tmp_path: Path) -> None:
    records = [record(), record(name="networks"), record(name="another")]
    for each in records:
        write_record(tmp_path, each)
    page = render_page(read_records(tmp_path), ("networks",))
    assert page == render_page(read_records(tmp_path)[::-1], ("networks",))
    assert [line for line in page.splitlines() if "Again" in line] != []
    first = (tmp_path / "one.json").read_bytes()
    write_record(tmp_path, read_records(tmp_path)[2])
    assert (tmp_path / "one.json").read_bytes() == first


def test_a_paired_test_tells_more_than_intervals() -> None:
    hard = np.array([0.1, 0.9, 0.3, 0.7, 0.5])
    better = model("a", (hard + 0.05).tolist())
    assert told_apart(better, model("b", hard.tolist()), "kendall_tau")
    assert not told_apart(better, model("c", (hard + np.array([0.2, -0.1, 0.1, -0.2, 0.2])).tolist()), "kendall_tau")
    assert not told_apart(model("a", [0.9]), model("b", [0.1]), "kendall_tau"), "one workload tells nothing"


def test_less_is_better_for_errors() -> None:
    low, high = (model(name, values, "mape") for name, values in (("a", [0.1, 0.2]), ("b", [0.3, 0.4])))
    assert best_of([high, low], "mape") is low
    assert best_of([high, low], "kendall_tau") is None


@pytest.mark.parametrize("text", ["{}", "[]", '{"version": 0}'])
def test_what_no_experiment_wrote_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "one.json").write_text(text)
    with pytest.raises(MalformedDataError, match=r"one.json is not what an experiment writes .*experiment=one"):
        read_records(tmp_path)


def test_the_page_in_the_repository_is_made_of_its_records() -> None:
    page, records = ROOT / "docs/results.md", read_records(ROOT / "docs/results")
    assert page.exists() == bool(records)
    if records:
        from kernelcast.evaluation.tuning_record import read_tuning_records
        from kernelcast.stages.results import FIRST

        tunings = read_tuning_records(ROOT / "docs/results/tuning")
        curves = {path.stem: f"results/tuning/{path.name}" for path in (ROOT / "docs/results/tuning").glob("*.svg")}
        assert page.read_text() == render_page(records, FIRST, tunings, curves)


def test_the_leaderboard_in_the_readme_is_that_of_the_record() -> None:
    page, records = (ROOT / "README.md").read_text(), read_records(ROOT / "docs/results")
    assert BEGIN in page
    assert END in page
    assert with_leaderboard(page, records) == page, "run `python scripts/results.py`"
    assert "`ensemble` |" in page
    # a page without marks, or without the experiment, stays as it is
    assert with_leaderboard("no marks", records) == "no marks"
    assert with_leaderboard(page, []) == page
