"""The pipeline as DVC runs it: what it runs again and what it shows."""

import json
import re

import mlflow
import pytest
import yaml

from kernelcast.evaluation.results import CEILINGS
from tests.pipeline.conftest import ROOT, Project

# the first test waits for the whole pipeline, thirty processes long
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

RUNS = [
    (run["model"], run["loss"])
    for variables in yaml.safe_load((ROOT / "dvc.yaml").read_text())["vars"]
    for run in variables.get("RUNS", [])
]
LEARNED = {f"{model}-{loss}" for model, loss in RUNS} | {"ensemble-rank"}
UNLEARNED = {"roofline", "analytical"}
MODELS = LEARNED | UNLEARNED | {"random"}
SPLITS = {"random", "workload"}


def stages_run(printed: str) -> set[str]:
    return set(re.findall(r"Running stage '([^']+)'", printed))


def test_every_model_is_evaluated_on_every_split_and_tracked(reproduced: Project) -> None:
    metrics = json.loads((reproduced.root / "data/evaluation/metrics.json").read_text())
    assert set(metrics) == SPLITS
    for split in SPLITS:
        assert set(metrics[split]) >= MODELS
        for model, figures in metrics[split].items():
            assert ("log_rmse" in figures) == (model.endswith("log_mse") or model in UNLEARNED | set(CEILINGS.values()))
    client = mlflow.MlflowClient(f"sqlite:///{reproduced.root}/runs/mlflow.db")
    runs = client.search_runs(["1"])
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len(runs) == len(MODELS) * len(SPLITS) + 4


def test_a_second_repro_runs_nothing_and_an_edit_only_what_follows(reproduced: Project) -> None:
    assert stages_run(reproduced.succeed("dvc", "repro")) == set()
    reproduced.edit("conf/model/gcn.yaml", "width: 64 ", "width: 8 ")
    assert "conf/model/gcn.yaml" in reproduced.succeed("dvc", "status")
    number = [model for model, _ in RUNS].index("gcn")
    trained = {name for split in SPLITS for name in (f"train@{split}-run{number}", f"ensemble@{split}")}
    assert stages_run(reproduced.succeed("dvc", "repro")) == trained | {"evaluate", "report"}


def test_more_samples_measure_only_what_is_new(reproduced: Project) -> None:
    journal = reproduced.root / "data/measurements/journal.jsonl"
    before = journal.read_bytes()
    reproduced.edit("conf/measure.yaml", "samples_per_workload: 10", "samples_per_workload: 11")
    assert stages_run(reproduced.succeed("dvc", "repro", "measure")) == {"measure"}
    assert journal.read_bytes().startswith(before)


def test_dvc_shows_metrics_and_plots(reproduced: Project) -> None:
    shown = reproduced.succeed("dvc", "metrics", "show", "--md")
    for model in MODELS:
        assert f"data/evaluation/metrics/random/{model}.json" in shown
    assert "kendall_tau" in shown
    reproduced.succeed("dvc", "plots", "show")
    page = (reproduced.root / "dvc_plots/index.html").read_text()
    assert "kendall_tau" in page
    assert "random_gcn-rank.png" in page
