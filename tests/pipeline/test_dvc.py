"""The pipeline as DVC runs it: what it runs again and what it shows."""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable

import mlflow
import pyarrow.parquet as pq
import pytest
import yaml

from kernelcast.evaluation.results import CEILINGS
from kernelcast.stages.provenance import code_hash
from tests.pipeline.conftest import FEW_MODELS, ROOT, Project

# the first test waits for the whole pipeline, some fifteen processes long
# and each goes on where the one before left the project
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

RUNS = [
    (run["model"], run["loss"])
    for variables in yaml.safe_load((ROOT / "dvc.yaml").read_text())["vars"]
    for run in variables.get("RUNS", [])
    if run["model"] in FEW_MODELS
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


def test_dvc_shows_metrics_and_plots(reproduced: Project) -> None:
    shown = reproduced.succeed("dvc", "metrics", "show", "--md")
    for model in MODELS:
        assert f"data/evaluation/metrics/random/{model}.json" in shown
    assert "kendall_tau" in shown
    reproduced.succeed("dvc", "plots", "show")
    page = (reproduced.root / "dvc_plots/index.html").read_text()
    assert "kendall_tau" in page
    assert "random_gcn-rank.png" in page


def test_a_second_repro_runs_nothing_and_an_edit_only_what_follows(reproduced: Project) -> None:
    # DVC-07: nothing changed, and every stage says so
    again = reproduced.succeed("dvc", "repro")
    assert stages_run(again) == set()
    stages = {line.split()[0] for line in reproduced.succeed("dvc", "stage", "list").splitlines()}
    assert set(re.findall(r"Stage '([^']+)' didn't change, skipping", again)) == stages
    # DVC-01: an edit below conf/ is named, and runs what depends on it
    reproduced.edit("conf/model/gcn.yaml", "width: 64 ", "width: 8 ")
    assert "conf/model/gcn.yaml" in reproduced.succeed("dvc", "status")
    number = [model for model, _ in RUNS].index("gcn")
    trained = {name for split in SPLITS for name in (f"train@{split}-run{number}", f"ensemble@{split}")}
    assert stages_run(reproduced.succeed("dvc", "repro")) == trained | {"evaluate", "report"}


def test_a_training_that_fails_costs_the_others_nothing_and_the_report_names_it(reproduced: Project) -> None:
    # DVC-05: both are to be trained again, and one cannot be
    gcn = reproduced.root / "conf/model/gcn.yaml"
    gcn.write_text(re.sub(r"width: \d+", "width: -8", gcn.read_text()))
    reproduced.edit("conf/model/xgboost.yaml", "rounds: 400 ", "rounds: 20 ")
    stages = [f"train@random-run{[model for model, _ in RUNS].index(name)}" for name in ("gcn", "xgboost")]
    done = reproduced.run("dvc", "repro", "-k", *stages)
    assert done.returncode != 0
    assert stages_run(done.stdout) == set(stages)
    models = reproduced.root / "data/models/random"
    assert not (models / "gcn-rank/training.json").exists()
    training = json.loads((models / "xgboost-log_mse/training.json").read_text())
    assert training["config"]["model"]["settings"]["rounds"] == 20
    # each by itself, whatever became of what is before it
    assert stages_run(reproduced.succeed("dvc", "repro", "-s", "evaluate", "report")) == {"evaluate", "report"}
    missing = json.loads((reproduced.root / "data/evaluation/results.json").read_text())["missing"]
    (reason,) = (entry["reason"] for entry in missing if (entry["split"], entry["model"]) == ("random", "gcn-rank"))
    assert "its training failed" in reason
    assert "width" in reason
    page = (reproduced.root / "data/report/index.html").read_text()
    assert "its training failed" in page


def test_more_samples_measure_only_what_is_new(reproduced: Project) -> None:
    journal = reproduced.root / "data/measurements/journal.jsonl"
    before = journal.read_bytes()
    reproduced.edit("conf/measure.yaml", "samples_per_workload: 10", "samples_per_workload: 11")
    assert stages_run(reproduced.succeed("dvc", "repro", "measure")) == {"measure"}
    assert journal.read_bytes().startswith(before)


def test_measuring_that_is_killed_goes_on_and_a_second_repro_at_once_is_refused(reproduced: Project) -> None:
    journal = reproduced.root / "data/measurements/journal.jsonl"
    before = journal.read_bytes()
    reproduced.edit("conf/measure.yaml", "samples_per_workload: 11", "samples_per_workload: 20")
    with (reproduced.root / "killed.log").open("w") as log:
        first = subprocess.Popen(
            reproduced.command("dvc", "repro", "measure"), cwd=reproduced.root, env=reproduced.environment,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    # whatever DVC does with the folder meanwhile, what was measured before comes first
    wait_until(lambda: journal.is_file() and journal.stat().st_size > len(before) + 1000, first)

    # DVC-03: the message that docs/concepts/pipeline.md and docs/how-to/tracking.md explain, and nothing else happens
    second = reproduced.run("dvc", "repro", "measure")
    assert second.returncode != 0
    assert "nable to acquire lock" in second.stderr + second.stdout or "is busy" in second.stderr + second.stdout
    assert first.poll() is None

    # DVC-04: killed outright, it has lost nothing of what was measured
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(30)
    kept = journal.read_bytes()
    assert kept.startswith(before)
    assert stages_run(reproduced.succeed("dvc", "repro", "measure")) == {"measure"}
    whole = journal.read_bytes()
    assert whole.startswith(kept[: kept.rfind(b"\n") + 1])
    table = pq.read_table(reproduced.root / "data/measurements/measurements.parquet", columns=["workload_name"])
    workloads = yaml.safe_load((reproduced.root / "conf/workload/default.yaml").read_text())
    assert Counter(table["workload_name"].to_pylist()) == dict.fromkeys(workloads, 20)
    assert stages_run(reproduced.succeed("dvc", "repro", "measure")) == set()


def test_code_that_changes_while_a_stage_runs_is_recorded_as_it_was_at_the_start(reproduced: Project) -> None:
    # DVC-02
    client = mlflow.MlflowClient(f"sqlite:///{reproduced.root}/runs/mlflow.db")
    source = reproduced.root / "src/kernelcast/models/roofline.py"
    package = reproduced.root / "src/kernelcast"
    before = code_hash(package)
    command = ("python", "scripts/train.py", "model=treegru", "split=random", "output=data/changed")
    running = subprocess.Popen(
        reproduced.command(*command), cwd=reproduced.root, env=reproduced.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: client.search_runs(["1"], "attributes.status = 'RUNNING'"), running)
    (run,) = client.search_runs(["1"], "attributes.status = 'RUNNING'")
    source.write_text(source.read_text() + "\n# changed meanwhile\n")
    assert running.wait(300) == 0
    ended = client.get_run(run.info.run_id)
    assert ended.info.status == "FINISHED"
    assert ended.data.tags["kernelcast.source_hash"] == before != code_hash(package)
    # conf/ was edited before it began, and the difference is kept
    assert ended.data.tags["kernelcast.git_dirty"] == "true"
    difference = mlflow.artifacts.load_text(f"{ended.info.artifact_uri}/source.diff")
    assert "conf/measure.yaml" in difference
    assert "changed meanwhile" not in difference

    reproduced.succeed("python", "scripts/train.py", "model=random", "split=random", "output=data/changed_too")
    later = client.search_runs(["1"], max_results=1)[0]
    assert later.data.tags["kernelcast.source_hash"] == code_hash(package)
    assert "changed meanwhile" in mlflow.artifacts.load_text(f"{later.info.artifact_uri}/source.diff")


def wait_until(condition: Callable[[], object], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.2)
