"""Experiments by their real stages, on a few programs of a real tuning database: from the database to the page."""

import collections
import gzip
import json
import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path

import mlflow
import psutil
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.evaluation.experiment_record import read_records
from kernelcast.evaluation.recorded_predictions import read_recorded
from kernelcast.stages.config import register_schemas
from kernelcast.stages.experiment import experiment
from kernelcast.stages.results import results

# four processes that each import torch and MLflow
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[3]
DATABASE = ROOT / "tests/databases/resnet34_a100"
FILE = """
# @package _global_
name: tiny
title: A tiny experiment
question: Is a tree better than chance?
source: nobody
database: {source: db}
graphs: {default: [features=trace, builder.workers=1]}
splits:
  random: {splitter: random}
metrics: [top_1, kendall_tau]
runs:
  chance: {model: random}
  trees: {model: xgboost, overrides: [model.view=trace, model.settings.rounds=5]}
seeds: [0, 1]
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve records with times of each of four workloads."""
    folder = tmp_path_factory.mktemp("database")
    with gzip.open(DATABASE / "database_workload.json.gz", "rt") as stream:
        (folder / "database_workload.json").write_text(stream.read())
    taken: collections.Counter[int] = collections.Counter()
    with (
        gzip.open(DATABASE / "database_tuning_record.json.gz", "rt") as stream,
        (folder / "database_tuning_record.json").open("w") as few,
    ):
        for line in stream:
            workload, record = json.loads(line)
            if workload < 8 and taken[workload] < 12 and max(record[1]) < 1e9:
                taken[workload] += 1
                few.write(line)
    return folder


def config_of(root: Path, database: Path, *overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("experiment", overrides=[f"paths.root={root}"])
    plain = OmegaConf.to_container(config, enum_to_str=True)
    for key in ("graphs", "splits", "runs", "measurements"):
        del plain[key]
    config = OmegaConf.merge({"measurements": []}, plain, OmegaConf.create(FILE))
    config.database = {"source": str(database), "target": None}
    config.jobs = 1
    config = OmegaConf.merge(config, OmegaConf.from_dotlist(list(overrides)))
    OmegaConf.resolve(config)
    return config


def trainings_of(root: Path) -> dict[str, float]:
    """When each model was written."""
    return {
        str(path.parent.relative_to(root / "data/experiments/tiny")): path.stat().st_mtime
        for path in (root / "data/experiments/tiny").glob("*/models/*/*/training.json")
    }


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, database: Path) -> Path:
    """The folder of an experiment that was killed while it trained, and came to its end when it ran again."""
    root = tmp_path_factory.mktemp("experiment")
    config = config_of(root, database)
    (root / "config.yaml").write_text(OmegaConf.to_yaml(config))
    (root / "go.py").write_text(
        "from omegaconf import OmegaConf\n"
        "from kernelcast.stages.experiment import experiment\n"
        "if __name__ == '__main__':\n"
        f"    experiment(OmegaConf.load({str(root / 'config.yaml')!r}))\n"
    )
    with subprocess.Popen(
        [sys.executable, root / "go.py"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as one:
        try:
            while not trainings_of(root):
                assert one.poll() is None
                time.sleep(0.02)
            children = psutil.Process(one.pid).children(recursive=True)
        finally:
            one.kill()
    # nothing trains on without it
    assert children
    assert not psutil.wait_procs(children, timeout=60)[1]
    before = trainings_of(root)
    assert 0 < len(before) < 4
    experiment(config)
    assert {name: trainings_of(root)[name] for name in before} == before
    return root


def test_every_row_and_seed_is_trained_and_on_the_page(done: Path) -> None:
    assert set(trainings_of(done)) == {
        f"default/models/random/{label}@{seed}" for label in ("chance", "trees") for seed in (0, 1)
    }
    (record,) = read_records(done / "docs/results")
    (split,) = record.splits
    rows = {row.label: row for row in split.rows if row.role != "ceiling"}
    assert list(rows) == ["chance", "trees"]
    assert {row.seeds for row in rows.values()} == {2}
    page = (done / "docs/results.md").read_text()
    for row in rows.values():
        assert f"{row.metrics['kendall_tau'].value:.3f} [{row.metrics['kendall_tau'].low:.3f}" in page
    for text in ("A tiny experiment", record.date, record.data["default"], "seeds 0, 1", "experiment=tiny"):
        assert text in page


def test_its_runs_are_nested_under_one(done: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{done}/runs/mlflow.db")
    runs = client.search_runs(["1"])
    killed, parent = sorted(
        (run for run in runs if run.data.tags["kernelcast.stage"] == "experiment"), key=lambda run: run.info.start_time
    )
    assert (killed.info.status, parent.info.status) == ("KILLED", "FINISHED")
    stages = collections.Counter(
        run.data.tags["kernelcast.stage"]
        for run in runs
        if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id
    )
    assert stages["evaluate"] == 1
    # what the killed one had made is not made again
    assert "import" not in stages
    assert "graphs" not in stages
    assert 0 < stages["train"] < 4


def test_the_page_is_made_of_the_records_alone(done: Path) -> None:
    page = done / "docs/results.md"
    before = page.read_bytes()
    page.unlink()
    results(config_of(done, done))
    assert page.read_bytes() == before


def predictions_of(root: Path) -> dict[str, bytes]:
    folder = root / "docs/results/predictions/tiny"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_published_predictions_stand_for_trainings(
    done: Path, database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = predictions_of(done)
    assert sorted(before) == ["random@0.parquet", "random@1.parquet"]
    # what is published tells nothing of the machine's folders
    for row in read_recorded(done / "docs/results/predictions/tiny/random@0.parquet"):
        assert str(done) not in json.dumps(row.training)
    shutil.copytree(done / "docs", tmp_path / "docs")
    with caplog.at_level(logging.INFO):
        experiment(config_of(tmp_path, database, "published=true"))
    assert "4 trainings have published predictions" in caplog.text
    assert "4 of 4 trainings are there already" in caplog.text
    assert not list(tmp_path.glob("data/experiments/tiny/default/models/*/*/model"))
    assert predictions_of(tmp_path) == before
    was, now = (read_records(root / "docs/results")[0] for root in (done, tmp_path))
    assert now.splits == was.splits
    # other settings are not those that were published
    caplog.clear()
    config = config_of(tmp_path, database, "published=true", "seeds=[1]", "runs.trees.overrides=[model.view=trace]")
    with caplog.at_level(logging.INFO):
        experiment(config)
    assert "0 trainings have published predictions" in caplog.text
    assert "1 of 2 trainings are there already" in caplog.text
    after = predictions_of(tmp_path)
    assert after["random@0.parquet"] == before["random@0.parquet"]
    assert after["random@1.parquet"] != before["random@1.parquet"]
    # a row that is not asked for stays
    del config.runs["trees"]
    experiment(config)
    assert predictions_of(tmp_path) == after
    # they stand for a model only where that is asked for
    config.published = False
    experiment(config)
    (model,) = tmp_path.glob("data/experiments/tiny/default/models/random/chance@1/model")
    assert model.is_dir()


def test_a_first_look_leaves_the_page_and_its_figures_alone(done: Path, database: Path) -> None:
    published = [done / "docs/results/tiny.json", done / "docs/results.md"]
    before = [path.read_bytes() for path in published]
    experiment(config_of(done, database, "page=false", "metrics=[top_1]"))
    assert [path.read_bytes() for path in published] == before
    (record,) = read_records(done / "data/experiments/tiny/results")
    assert record.metrics == ("top_1",)


def test_what_is_trained_is_kept_and_what_fails_costs_itself_alone(
    done: Path, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = trainings_of(done)
    # of one row other settings, and a row that looks for a view that these programs have not
    overrides = ("runs.trees.overrides=[model.view=trace,model.settings.rounds=6]", "runs.blind.model=gcn")
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(KernelcastError, match="2 of 6 trainings of experiment tiny failed: "),
    ):
        experiment(config_of(done, database, *overrides))
    assert "2 of 6 trainings are there already" in caplog.text
    after = trainings_of(done)
    assert {name for name in before if after[name] == before[name]} == {
        f"default/models/random/chance@{seed}" for seed in (0, 1)
    }
    (record,) = read_records(done / "docs/results")
    (failed,) = record.failed
    assert failed.startswith("blind on random, seeds 0, 1: the network looks at the view `ast`")
    assert failed.split(";")[0] in (done / "docs/results.md").read_text()
    assert "looks at the view `ast`" in (done / "data/experiments/tiny/logs/default-random-blind@0.log").read_text()


def test_an_experiment_needs_measurements(tmp_path: Path, database: Path) -> None:
    config = config_of(tmp_path, database)
    config.database = None
    with pytest.raises(ConfigError, match="name its measurements, or a database"):
        experiment(config)
    config.jobs = 0
    with pytest.raises(ConfigError, match="jobs=0"):
        experiment(config)
