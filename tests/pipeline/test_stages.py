"""The pipeline at its smallest, really measured, each stage by its script."""

import csv
import json
import re

import mlflow
import pyarrow.parquet as pq
import pytest
import yaml

from tests.pipeline.conftest import Project

# the first test waits for the whole pipeline, ten processes long
pytestmark = pytest.mark.timeout(900)


def test_every_try_is_a_row_with_times_or_a_reason(project: Project) -> None:
    table = pq.read_table(project.root / "data/measurements/measurements.parquet").to_pylist()
    workloads = yaml.safe_load((project.root / "conf/workload/tiny.yaml").read_text())
    assert {row["workload_name"] for row in table} == set(workloads)
    assert len({(row["workload_key"], row["program_key"]) for row in table}) == len(table)
    for row in table:
        assert (row["outcome"] == "measured") == (len(row["run_seconds"]) > 0 and min(row["run_seconds"]) > 0)
        assert row["outcome"] == "measured" or row["message"]


def test_the_measurements_say_how_they_came_about(project: Project) -> None:
    table = pq.read_table(project.root / "data/measurements/measurements.parquet").to_pylist()
    measured = [row for row in table if row["outcome"] == "measured"]
    assert {row["origin"] for row in measured} == {"random", "evolved"}
    assert {row["device"] for row in measured} == {"local"}
    # the first program of every workload is compared with it
    assert {row["workload_name"] for row in measured if row["checked"]} == {row["workload_name"] for row in table}
    first = [
        [index for index, visit in zip(row["round_index"], row["visit"], strict=True) if visit == 0] for row in measured
    ]
    again = [row for row in measured if max(row["visit"]) == 1]
    assert all(
        rounds in ([0, 1], [0, 1, 2]) for rounds, row in zip(first, measured, strict=True) if not row["cut_short"]
    )
    assert 1 <= len(again) < len(measured) / 2


def test_every_model_has_its_figures(project: Project) -> None:
    metrics = json.loads((project.root / "data/evaluation/metrics.json").read_text())
    for model in ("gcn", "xgboost"):
        figures = metrics["random"][model]
        assert -1 <= figures["kendall_tau_low"] <= figures["kendall_tau"] <= figures["kendall_tau_high"] <= 1
        assert 0 <= figures["pairwise_accuracy"] <= 1
        assert 0 < figures["top_1"] <= 1
        assert "mape" not in figures, "a model of ranks predicts no time"
    with (project.root / "data/evaluation/table.csv").open() as stream:
        assert {"gcn", "xgboost"} <= {row["model"] for row in csv.DictReader(stream)}


def test_training_reports_what_evaluate_finds_in_another_process(project: Project) -> None:
    # HYD-14
    metrics = json.loads((project.root / "data/evaluation/metrics.json").read_text())
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    for model in ("gcn", "xgboost"):
        training = json.loads((project.root / f"data/models/random/{model}/training.json").read_text())
        run = client.get_run(training["mlflow_run_id"])
        assert run.data.metrics["test/kendall_tau"] == pytest.approx(metrics["random"][model]["kendall_tau"], abs=1e-9)
        # the curve has one value a step; the last is that of the model that was kept
        curve = client.get_metric_history(run.info.run_id, "valid/kendall_tau")
        assert len({point.step for point in curve}) == len(curve) > 1
        assert run.data.metrics["valid/kendall_tau"] == run.data.metrics["objective"]


def test_all_stages_are_finished_runs_on_one_page(project: Project) -> None:
    # MLF-01: in the database that the README names, with nothing set
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    runs = client.search_runs(["1"], "tags.`kernelcast.stage` != 'sweep'")
    assert {"measure", "graphs", "train", "evaluate", "report"} == {run.data.tags["kernelcast.stage"] for run in runs}
    gcn = next(run for run in runs if run.info.run_name == "gcn-rank on random")
    assert gcn.info.status == "FINISHED"
    artifacts = {item.path for item in client.list_artifacts(gcn.info.run_id)}
    assert {"config.yaml", "model", "plots", "history.csv"} <= artifacts
    plots = {item.path for item in client.list_artifacts(gcn.info.run_id, "plots")}
    assert {"plots/learning_curve.png", "plots/test_predictions.png"} <= plots
    assert len(client.get_metric_history(gcn.info.run_id, "train/loss")) > 1
    assert gcn.data.tags["mlflow.source.git.commit"] != "unknown"
    # what one stage puts out is what the next one takes in
    first, *_ = [run for run in runs if run.info.run_name == "measure"]
    put_out = {
        (entry.dataset.name, entry.dataset.digest)
        for run in runs
        if run.data.tags["kernelcast.stage"] in ("measure", "graphs")
        for entry in run.inputs.dataset_inputs
        if entry.tags[0].value == "output"
    }
    assert first.inputs.dataset_inputs[0].dataset.name == "measurements"
    for run in runs:
        for entry in run.inputs.dataset_inputs:
            assert entry.dataset.digest
            assert (entry.dataset.name, entry.dataset.digest) in put_out


def test_the_report_opens_without_a_network(project: Project) -> None:
    page = (project.root / "data/report/index.html").read_text()
    assert not re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']https?:""", page)
    for model in ("gcn", "xgboost"):
        assert model in page


def test_a_model_without_a_value_of_the_objective_is_kept(project: Project) -> None:
    # a random order predicts no time; too few validation programs to rank come to the same
    printed = project.succeed(
        "python", "scripts/train.py", "model=random", "split=random", "objective=valid/mape", "output=data/kept"
    )
    assert "valid/mape has no value" in printed
    training = json.loads((project.root / "data/kept/training.json").read_text())
    run = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db").get_run(training["mlflow_run_id"])
    assert run.info.status == "FINISHED"
    assert "objective" not in run.data.metrics


def test_a_grid_nests_under_one_parent_and_a_failing_job_leaves_the_others_alone(project: Project) -> None:
    command = ("python", "scripts/train.py", "-m", "model=roofline", "split=random,absent,workload")
    done = project.run(*command)
    assert done.returncode == 2, done.stderr
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    (parent,) = client.search_runs(["1"], "tags.`kernelcast.overrides` LIKE '%absent,workload'")
    children = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert sorted(run.info.status for run in children) == ["FAILED", "FINISHED", "FINISHED"]
    failed = next(run for run in children if run.info.status == "FAILED")
    assert "absent" in failed.data.tags["kernelcast.error"]
    best = max(run.data.metrics.get("objective", -2) for run in children)
    assert parent.data.metrics["best/objective"] == pytest.approx(best)
    assert parent.data.params["best.model"] == "roofline"


SHORT_TUNING = ("trials=6", "search.trials_per_round=3", "search.first_round=3", "search.population=16", "finalists=2")


@pytest.mark.slow
def test_workloads_are_tuned_by_several_methods_and_compared(project: Project) -> None:
    ours = ("method=online", "method.model=data/models/random/xgboost")
    tune = ("python", "scripts/tune.py", "workload=tiny", "~workload.conv2d_small", "~workload.layer_norm_small")
    for method in (ours, ("method=tvm_xgb",), ("method=random",)):
        project.succeed(*tune, *method, *SHORT_TUNING)
    again = project.succeed(*tune, *ours, *SHORT_TUNING)
    assert "nothing left to tune" in again
    tuning = project.root / "data/tuning"
    for workload in ("matmul_small", "softmax_small"):
        for name in ("xgboost-online@0", "tvm_xgb@0", "random@0"):
            trials = pq.read_table(tuning / workload / name / "trials.parquet").to_pylist()
            assert 0 < len(trials) <= 6
            best = min(row["run_seconds"] for row in trials if row["run_seconds"] is not None)
            (winner,) = json.loads((tuning / workload / name / "winners/winners.json").read_text())
            assert winner["checked"] is True
            assert winner["run_seconds"] > 0
            assert winner["trial_seconds"] >= best
    printed = project.succeed("python", "scripts/compare.py", "bootstrap_samples=50", "publish=tiny", "title=Tiny ones")
    assert "tunings compared" in printed
    assert "## Tiny ones" in (project.root / "docs/results.md").read_text()
    assert json.loads((project.root / "docs/results/tuning/tiny.json").read_text())["reference"] == "tvm_xgb"
    with (tuning / "comparison.csv").open() as stream:
        assert {row["method"] for row in csv.DictReader(stream)} == {"xgboost-online", "tvm_xgb", "random"}
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    for stage in ("tune", "compare"):
        runs = client.search_runs(["1"], f"tags.`kernelcast.stage` = '{stage}'")
        assert {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.slow
def test_a_network_of_ones_own_is_tuned_compiled_and_timed(project: Project) -> None:
    printed = project.succeed(
        "python", "scripts/tune.py", "network=own", "method=frozen", "method.model=data/models/random/xgboost",
        *SHORT_TUNING, "latency.rounds=3", "latency.repeat_seconds=0.01",
    )  # fmt: skip
    folder = project.root / "data/tuning/own_network/xgboost@0"
    rows = {row["contender"]: row for row in json.loads((folder / "latency.json").read_text())}
    assert {"xgboost@0", "torch eager", "torch.compile"} <= set(rows)
    assert rows["xgboost@0"]["minimum_seconds"] > 0
    assert rows["torch eager"]["minimum_seconds"] > 0
    assert (folder / "deployed/network.so").is_file()
    assert "own_network: latency" in printed
