"""The whole pipeline at its smallest, really measured, as a user runs it."""

import csv
import json
import re

import mlflow
import pyarrow.parquet as pq
import pytest
import yaml

from tests.pipeline.conftest import Project

pytestmark = pytest.mark.slow

MODELS = {"random", "roofline", "xgboost", "gcn", "graphsage", "treegru"}
SPLITS = {"random", "workload"}


def test_every_model_has_its_figures_on_both_splits(project: Project) -> None:
    metrics = json.loads((project.root / "data/evaluation/metrics.json").read_text())
    for split in SPLITS:
        assert set(metrics[split]) >= MODELS
        for model in MODELS:
            figures = metrics[split][model]
            assert -1 <= figures["kendall_tau"] <= 1
            assert 0 <= figures["pairwise_accuracy"] <= 1
            assert 0 < figures["top_1_score"] <= figures["top_5_score"] <= 1
    with (project.root / "data/evaluation/table.csv").open() as stream:
        assert MODELS <= {row["model"] for row in csv.DictReader(stream)}


def test_every_try_is_a_row_with_times_or_a_reason(project: Project) -> None:
    table = pq.read_table(project.root / "data/measurements/measurements.parquet").to_pylist()
    workloads = yaml.safe_load((project.root / "conf/workload/tiny.yaml").read_text())
    assert {row["workload_name"] for row in table} == set(workloads)
    assert len({(row["workload_key"], row["program_key"]) for row in table}) == len(table)
    for row in table:
        assert (row["outcome"] == "measured") == (len(row["run_seconds"]) > 0 and min(row["run_seconds"]) > 0)
        assert row["outcome"] == "measured" or row["message"]


def test_all_stages_are_finished_runs_on_one_page(project: Project) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    runs = client.search_runs(["1"])
    assert {run.info.status for run in runs} == {"FINISHED"}
    stages = [run.data.tags["kernelcast.stage"] for run in runs]
    assert {stage: stages.count(stage) for stage in set(stages)} == {
        "measure": 1, "graphs": 1, "train": len(MODELS) * len(SPLITS), "evaluate": 1, "report": 1,
    }  # fmt: skip
    gcn = next(run for run in runs if run.info.run_name == "gcn on random")
    artifacts = {item.path for item in client.list_artifacts(gcn.info.run_id)}
    assert {"config.yaml", "model", "plots"} <= artifacts
    assert len(client.get_metric_history(gcn.info.run_id, "train/loss")) > 1
    assert gcn.data.tags["mlflow.source.git.commit"] != "unknown"
    assert gcn.inputs.dataset_inputs[0].dataset.digest


def test_the_report_opens_without_a_network(project: Project) -> None:
    page = (project.root / "data/report/index.html").read_text()
    assert not re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']https?:""", page)
    for model in MODELS:
        assert model in page


def test_a_second_repro_runs_nothing_and_an_edit_only_what_follows(project: Project) -> None:
    assert "Running stage" not in project.succeed("dvc", "repro")
    project.edit("conf/model/gcn.yaml", "\n", "\n# a remark changes nothing\n")
    assert "Running stage" not in project.succeed("dvc", "repro")
    width = re.search(r"width: (\d+)", (project.root / "conf/model/gcn.yaml").read_text())
    assert width is not None
    project.edit("conf/model/gcn.yaml", width.group(), "width: 8")
    status = project.succeed("dvc", "status")
    assert "conf/model/gcn.yaml" in status
    printed = project.succeed("dvc", "repro")
    ran = set(re.findall(r"Running stage '([^']+)'", printed))
    assert ran == {"train@random-gcn", "train@workload-gcn", "evaluate", "report"}


def test_dvc_shows_metrics_and_plots(project: Project) -> None:
    shown = project.succeed("dvc", "metrics", "show", "--md")
    assert "kendall_tau" in shown
    project.succeed("dvc", "plots", "show")
    page = (project.root / "dvc_plots/index.html").read_text()
    assert "kendall_tau" in page


def test_a_grid_and_a_study_nest_under_their_parents(project: Project) -> None:
    project.succeed("python", "scripts/train.py", "-m", "model=gcn,graphsage", "loss=rank,log_mse", "trainer=tiny")
    study = ("python", "scripts/train.py", "-m", "hparams_search=gcn", "trainer=tiny", "hydra.sweeper.trials=3")
    project.succeed(*study)
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    parents = client.search_runs(["1"], "tags.`kernelcast.stage` = 'sweep'", order_by=["attributes.start_time ASC"])
    children = [client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'") for run in parents]
    assert [len(runs) for runs in children] == [4, 3]
    for parent, runs in zip(parents, children, strict=True):
        best = max(run.data.metrics["objective"] for run in runs)
        assert parent.data.metrics["best/objective"] == pytest.approx(best)
        assert parent.info.status == "FINISHED"
        assert any(name.startswith("best.") for name in parent.data.params)
    # the same line again has nothing left to do
    project.succeed(*study)
    assert len(client.search_runs(["1"], "tags.`kernelcast.stage` = 'train'")) == 19 + 2


def test_a_failing_job_leaves_the_others_alone(project: Project) -> None:
    done = project.run(
        "python", "scripts/train.py", "-m", "model=roofline", "split=random,absent,workload"
    )
    assert done.returncode != 0
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    parent = client.search_runs(["1"], "tags.`kernelcast.stage` = 'sweep'", max_results=1)[0]
    children = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert sorted(run.info.status for run in children) == ["FAILED", "FINISHED", "FINISHED"]
    failed = next(run for run in children if run.info.status == "FAILED")
    assert "absent" in failed.data.tags["kernelcast.error"]
