"""Comparisons of tunings that are published, gone on with later, and taken apart again."""

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from kernelcast.errors import ConfigError, KernelcastError, MissingInputError
from kernelcast.files import write_json
from kernelcast.stages.compare import compare
from kernelcast.stages.config import register_schemas
from kernelcast.trials import LATENCY_FILE, TRIALS_FILE, TUNING_FILE, read_trials, trials_table, write_trials

CONF = Path(__file__).resolve().parents[3] / "conf"
PROCESSOR = "AMD EPYC, x86_64, cpu family 25, model 17"
RECORDS = "docs/results/tuning"


def tuned(tuning: Path, method: str, seed: int, best: float, workload: str = "w0", cpu: str = PROCESSOR) -> None:
    """A finished tuning of four trials, the third of which is the best."""
    folder = tuning / workload / f"{method}@{seed}"
    folder.mkdir(parents=True)
    write_json(folder / TUNING_FILE, {"host.cpu": f"{cpu}, sse4_2 avx2"})
    rows = [
        {
            "method": method,
            "seed": seed,
            "network": "",
            "workload_key": f"key of {workload}",
            "workload_name": workload,
            "weight": 1,
            "trial": trial,
            "round": trial // 2,
            "program_key": f"{method} {seed} {trial}",
            "outcome": "measured",
            "score": None,
            "run_seconds": best * factor,
            "search_seconds": 1.0,
            "model_seconds": 0.5,
            "measure_seconds": 2.0,
            "elapsed_seconds": 3.0 * (1 + trial // 2),
        }
        for trial, factor in enumerate((3, 2, 1, 4))
    ]
    write_trials(folder / TRIALS_FILE, trials_table(rows))


def config_of(root: Path, tuning: str, *overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(
            "compare",
            overrides=[f"paths.root={root}", f"paths.tuning={root / tuning}", "bootstrap_samples=50", *overrides],
        )


def published(root: Path, name: str) -> dict:
    found: dict = json.loads((root / RECORDS / f"{name}.json").read_text())
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two methods with one seed each on two workloads, published as `two`; their folder is gone since."""
    for workload in ("w0", "w1"):
        tuned(tmp_path / "first", "ours", 0, 1.0, workload)
        tuned(tmp_path / "first", "tvm_xgb", 0, 2.0, workload)
    rows = [{"contender": "ours@0", "minimum_seconds": 1.0, "median_seconds": 1.1}]
    write_json(tmp_path / "first/w0/ours@0" / LATENCY_FILE, rows)
    compare(config_of(tmp_path, "first", "publish=two", "title=Two"))
    (tmp_path / "first").rename(tmp_path / "gone")
    return tmp_path


def test_what_is_published_has_its_trials_and_curves_with_it(root: Path) -> None:
    assert sorted(path.name for path in (root / RECORDS).iterdir()) == ["two.json", "two.parquet", "two.svg"]
    page = (root / "docs/results.md").read_text()
    assert "](results/tuning/two.svg)" in page
    trials = read_trials(root / RECORDS / "two.parquet")
    assert len(trials) == 2 * 2 * 4
    # no other file is needed to reckon again
    before = published(root, "two")
    compare(config_of(root, "nothing_here", "published=two", "publish=again"))
    again = published(root, "again")
    assert again["methods"] == before["methods"]
    assert again["subjects"] == before["subjects"]
    assert (again["title"], again["latency"]) == ("Two", before["latency"])
    assert before["latency"]["w0"][0]["contender"] == "ours@0"


def test_more_seeds_join_what_was_published(root: Path) -> None:
    for workload in ("w0", "w1"):
        tuned(root / "second", "ours", 1, 0.5, workload)
        tuned(root / "second", "tvm_xgb", 1, 3.0, workload)
        # once more: what is in the folder counts
        tuned(root / "second", "tvm_xgb", 0, 8.0, workload)
    compare(config_of(root, "second", "published=two", "publish=two"))
    record = published(root, "two")
    assert {row["method"]: row["seeds"] for row in record["methods"]} == {"ours": 2, "tvm_xgb": 2}
    cells = record["subjects"]["w0"]
    assert cells["ours"]["best_seconds"] == pytest.approx(0.75)
    assert cells["tvm_xgb"]["best_seconds"] == pytest.approx(5.5)
    assert record["measured_on"] == PROCESSOR
    assert len(read_trials(root / RECORDS / "two.parquet")) == 2 * 4 * 4


def test_times_of_two_machines_are_not_compared(root: Path) -> None:
    tuned(root / "second", "ours", 1, 0.5, cpu="another one")
    with pytest.raises(ConfigError, match=r"published=two: was measured on AMD EPYC.*second on another one"):
        compare(config_of(root, "second", "published=two", "publish=two"))
    assert {row["seeds"] for row in published(root, "two")["methods"]} == {1}


def test_seeds_and_names_are_chosen(root: Path) -> None:
    tuned(root / "second", "ours", 1, 0.5)
    # only one workload was tuned with seed 1, so the other one would be left out
    compare(config_of(root, "second", "published=two", "publish=chosen", "seeds=[0]"))
    assert set(published(root, "chosen")["subjects"]) == {"w0", "w1"}
    compare(config_of(root, "second", "published=two", "publish=chosen", "only=[w1]"))
    assert set(published(root, "chosen")["subjects"]) == {"w1"}


@pytest.mark.parametrize(
    ("overrides", "kind", "message"),
    [
        (["published=two", "seeds=[0,7]"], ConfigError, r"seeds=0,7: there is no finished tuning of 7, only of 0"),
        (["published=two", "only=[w0,w9]"], ConfigError, r"only=w0,w9: .* no finished tuning of w9, only of w0, w1"),
        (["published=three"], MissingInputError, r"published=three: there is no .*three.json; published are: two"),
        (["published=../two"], ConfigError, r"published='../two': a name for a file"),
        ([], MissingInputError, r"no finished tuning in .*second; run"),
        (["published=two", "publish=a/b"], ConfigError, r"publish='a/b': a name for a file"),
    ],
)
def test_what_cannot_be_compared_is_said(
    root: Path, overrides: list[str], kind: type[KernelcastError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        compare(config_of(root, "second", *overrides))


def test_trials_that_were_not_published_are_missed(root: Path) -> None:
    (root / RECORDS / "two.parquet").unlink()
    with pytest.raises(MissingInputError, match=r"two\.parquet is not there; publish its tunings again"):
        compare(config_of(root, "second", "published=two"))
