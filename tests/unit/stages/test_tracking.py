import importlib.metadata
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlflow
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.entities import Run
from mlflow.utils.validation import _validate_metric_name, _validate_param_name
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.kernelcast_optuna._slots import living_here
from kernelcast.stages.process_identity import process_identity, process_may_live
from kernelcast.stages.tracking import (
    LONGEST_NAME,
    allowed_name,
    close_stale_runs,
    flatten,
    open_experiment,
    tracked_run,
)
from kernelcast.stages.tracking.names import LONGEST_PARAM, is_kept
from kernelcast.stages.tracking.origin import LONGEST_DIFF


@pytest.fixture
def config(tmp_path: Path, fresh_database: Path) -> DictConfig:
    """Of a project with a database that no run has used yet."""
    (tmp_path / "runs").mkdir()
    shutil.copy2(fresh_database, tmp_path / "runs")
    return OmegaConf.create(
        {
            "seed": 3,
            "tracking": {
                "uri": f"sqlite:///{tmp_path}/runs/mlflow.db",
                "experiment": "kernelcast",
                "artifacts": f"{tmp_path}/runs/artifacts",
            },
            "paths": {"root": str(tmp_path), "runs": f"{tmp_path}/runs"},
        }
    )


def only_run(config: DictConfig) -> tuple[mlflow.MlflowClient, Run]:
    client = mlflow.MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name("kernelcast")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def test_a_finished_run_holds_params_metrics_artifacts_and_provenance(config: DictConfig) -> None:
    with tracked_run(config, "gcn", "train") as run:
        run.metrics({"loss": 2.0, "broken": float("nan")}, step=0)
        run.metrics({"loss": 1.0}, step=1)
        run.dataset("graphs", "0123456789abcdef0", Path("data/graphs"))
    client, stored = only_run(config)
    assert stored.info.status == "FINISHED"
    assert stored.data.params["seed"] == "3"
    assert [metric.value for metric in client.get_metric_history(stored.info.run_id, "loss")] == [2.0, 1.0]
    assert "broken" not in stored.data.metrics
    assert stored.data.tags["mlflow.source.git.commit"]
    # XGB-02
    assert f"xgboost-cpu {importlib.metadata.version('xgboost-cpu')}" in stored.data.tags["kernelcast.versions"]
    assert stored.inputs.dataset_inputs[0].dataset.digest == "0123456789abcdef"
    text = mlflow.artifacts.load_text(f"{stored.info.artifact_uri}/config.yaml")
    assert OmegaConf.create(text) == config
    environment = json.loads(mlflow.artifacts.load_text(f"{stored.info.artifact_uri}/environment.json"))
    assert environment["command"] == [sys.executable, *sys.argv]
    assert environment["packages"]["mlflow"] == mlflow.__version__


# MLF-02: see also test_train.py, by the way in which a training ends
@pytest.mark.parametrize(("error", "status"), [(ValueError("bad batch"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_run_that_ends_badly_says_so_with_its_trace(config: DictConfig, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), tracked_run(config, "gcn", "train"):
        raise error
    _, stored = only_run(config)
    assert stored.info.status == status
    assert stored.data.tags["kernelcast.error"].startswith(type(error).__name__)
    assert "Traceback" in mlflow.artifacts.load_text(f"{stored.info.artifact_uri}/error.txt")


def test_long_values_and_many_keys_do_not_stop_a_run(config: DictConfig) -> None:
    # MLF-05
    config.long = "x" * 10_000
    config.many = {f"key{number}": number for number in range(300)}
    config.listed = [f"{number:08d}" for number in range(1_000)]
    with tracked_run(config, "gcn", "train"):
        pass
    _, stored = only_run(config)
    assert stored.info.status == "FINISHED"
    assert len(stored.data.params) >= 300
    assert stored.data.params["long"] == "x" * LONGEST_PARAM
    # whole, so that it can be repeated
    text = mlflow.artifacts.load_text(f"{stored.info.artifact_uri}/config.yaml")
    assert OmegaConf.create(text) == config


def test_a_long_curve_is_thinned_and_keeps_its_last_point(config: DictConfig) -> None:
    # MLF-13
    assert sum(is_kept(step) for step in range(500_000)) <= 1000
    last = 301
    with tracked_run(config, "gcn", "train") as run:
        for step in range(last):
            run.metrics({"train/loss": float(step)}, step)
    client, stored = only_run(config)
    steps = [point.step for point in client.get_metric_history(stored.info.run_id, "train/loss")]
    assert steps[:256] == list(range(256))
    assert len(steps) == len(set(steps)) <= 280
    assert max(after - before for before, after in itertools.pairwise(steps)) <= last / 64
    assert stored.data.metrics["train/loss"] == last - 1


def test_the_note_says_what_a_run_is_and_how_to_repeat_it(config: DictConfig) -> None:
    with tracked_run(config, "gcn", "train") as run:
        run.note("a line of its stage")
    _, stored = only_run(config)
    note = stored.data.tags["mlflow.note.content"]
    assert f"python scripts/repeat.py run={stored.info.run_id}" in note
    assert "- a line of its stage" in note
    assert stored.data.tags["kernelcast.source_hash"] in note


def test_the_difference_from_the_revision_is_kept(config: DictConfig) -> None:
    root = Path(config.paths.root)
    git = ["git", "-C", str(root), "-c", "user.name=test", "-c", "user.email=test@example.org"]
    (root / "src").mkdir()
    (root / "src/model.py").write_text("width = 1\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "everything"]):
        subprocess.run([*git, *arguments], check=True)
    with tracked_run(config, "clean", "train"):
        pass
    # pages and locks that change while stages run do not count
    (root / "dvc.lock").write_text("")
    with tracked_run(config, "still clean", "train"):
        pass
    (root / "src/model.py").write_text("width = 2\n")
    (root / "src/new file.py").write_text("depth = 3\n")
    with tracked_run(config, "dirty", "train"):
        pass
    (root / "src/large.py").write_text("#" * 2 * LONGEST_DIFF)
    with tracked_run(config, "very dirty", "train"):
        pass
    client = mlflow.MlflowClient(config.tracking.uri)
    runs = {run.info.run_name: run for run in client.search_runs(["1"])}
    assert {name: run.data.tags["kernelcast.git_dirty"] for name, run in runs.items()} == {
        "clean": "false", "still clean": "false", "dirty": "true", "very dirty": "true"
    }  # fmt: skip
    names = {name: {item.path for item in client.list_artifacts(run.info.run_id)} for name, run in runs.items()}
    assert [name for name, paths in names.items() if "source.diff" in paths] == ["dirty"]
    difference = mlflow.artifacts.load_text(f"{runs['dirty'].info.artifact_uri}/source.diff")
    assert "+width = 2" in difference
    assert "+depth = 3" in difference


PROGRAM = """
import os, signal, sys, time
import mlflow
from omegaconf import OmegaConf
from kernelcast.stages.tracking import tracked_run
# whoever started the tests in the background may have turned SIGINT off for all below
signal.signal(signal.SIGINT, signal.default_int_handler)
for name in sys.argv[2:]:
    if os.fork() == 0:
        with tracked_run(OmegaConf.load(sys.argv[1]), name, "train"):
            print(name, os.getpid(), flush=True)
            time.sleep(120)
for _ in sys.argv[2:]:
    os.wait()
"""


def start(config: DictConfig, *names: str) -> subprocess.Popen[str]:
    """A process for each run, which says its number when the run is open; MLflow is loaded once."""
    path = Path(config.paths.root) / "config.yaml"
    OmegaConf.save(config, path)
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), *names], stdout=subprocess.PIPE, text=True)


def test_processes_that_are_stopped_or_killed_leave_no_run_that_reads_running(config: DictConfig) -> None:
    # MLF-02 (d), (f)
    ways = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    with start(config, *(way.name for way in ways)) as parent:
        assert parent.stdout is not None
        # each would close the runs of those that are gone as it starts
        open_runs = dict(line.split() for line in itertools.islice(parent.stdout, len(ways)))
        for name, pid in open_runs.items():
            os.kill(int(pid), signal.Signals[name])
    client = mlflow.MlflowClient(config.tracking.uri)
    runs = {run.info.run_name: run for run in client.search_runs(["1"])}
    assert {name: run.info.status for name, run in runs.items()} == {
        "SIGINT": "KILLED", "SIGTERM": "KILLED", "SIGKILL": "RUNNING"
    }  # fmt: skip
    for name in ("SIGINT", "SIGTERM"):
        assert "KeyboardInterrupt" in mlflow.artifacts.load_text(f"{runs[name].info.artifact_uri}/error.txt")
    # what was killed outright is found at the next start
    with tracked_run(config, "next", "train"):
        pass
    states = {run.info.run_name: run.info.status for run in client.search_runs(["1"])}
    assert (states["SIGKILL"], states["next"]) == ("KILLED", "FINISHED")


def test_only_processes_that_are_surely_gone_are_not_alive() -> None:
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    living = process_identity()
    host, pid, ticks, boot, numbering = re.fullmatch(r"(.+)/(\d+)@(\d+)-(\w+)\+(\d+)", living).groups()
    assert {
        name: process_may_live(identity)
        for name, identity in {
            "itself": living,
            # of a version that did not tell containers apart
            "itself as before": f"{host}/{pid}@{ticks}-{boot}",
            "other host": f"elsewhere/{gone.pid}@1-abc+2",
            # with --network=host all containers have the name of their machine
            "other container": f"{host}/{gone.pid}@{ticks}-{boot}+1",
            "same number in another container": f"{host}/{pid}@1-{boot}+1",
            "other container before a restart": f"{host}/{pid}@{ticks}-0{boot[1:]}x+1",
            "reused number": f"{host}/{pid}@1-{boot}+{numbering}",
            "before a restart": f"{host}/{pid}@{ticks}-{boot}x+{numbering}",
            "gone": f"{host}/{gone.pid}@{ticks}-{boot}+{numbering}",
            "gone, as before": f"{host}/{gone.pid}@{ticks}-{boot}",
        }.items()
    } == {
        "itself": True, "itself as before": True, "other host": True, "other container": True,
        "same number in another container": True, "other container before a restart": False, "reused number": False,
        "before a restart": False, "gone": False, "gone, as before": False,
    }  # fmt: skip
    # nobody is signalled by the number of a process in another container
    assert living_here([f"{host}/{os.getppid()}@{ticks}-{boot}+1"]) == []


def test_only_runs_of_processes_that_are_surely_gone_are_closed(config: DictConfig) -> None:
    client, experiment_id = open_experiment(config)
    living = process_identity()
    for name, tags in {
        "living": {"kernelcast.process": living},
        "gone": {"kernelcast.process": living.replace("@", "@1")},
        "sweep": {"kernelcast.process": living.replace("@", "@1"), "kernelcast.stage": "sweep"},
        # of another tool
        "foreign": {},
    }.items():
        client.create_run(experiment_id, run_name=name, tags=tags)
    close_stale_runs(client, experiment_id)
    states = {run.info.run_name: run.info.status for run in client.search_runs([experiment_id])}
    assert states == {"living": "RUNNING", "foreign": "RUNNING", "gone": "KILLED", "sweep": "KILLED"}


def test_a_kill_while_the_database_is_made_does_not_stop_the_next_run(config: DictConfig) -> None:
    runs = Path(config.paths.runs)
    # an empty file is no database yet
    (runs / "mlflow.db").write_bytes(b"")
    process = start(config, "killed")
    deadline = time.monotonic() + 120
    # MLflow's migrations have begun: there is something in the file
    while not any(path.stat().st_size for path in runs.glob("*mlflow.db*") if path.suffix != ".lock"):
        assert time.monotonic() < deadline
        assert process.poll() is None
    for child in psutil.Process(process.pid).children():
        child.kill()
    process.wait()
    assert not (runs / "mlflow.db").stat().st_size
    with tracked_run(config, "gcn", "train"):
        pass
    assert [path.name for path in runs.glob("*mlflow.db*")] == ["mlflow.db"]
    assert only_run(config)[1].info.status == "FINISHED"


def test_flatten_names_nested_keys_with_dots() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": [2]}}, "e": 3}) == {"a.b": 1, "a.c.d": [2], "e": 3}


@given(st.text(max_size=2 * LONGEST_NAME))
def test_any_name_becomes_one_that_mlflow_takes(name: str) -> None:
    _validate_metric_name(allowed_name(name))
    _validate_param_name(allowed_name(name))


def test_names_that_mlflow_takes_stay_and_others_are_recorded(config: DictConfig) -> None:
    assert allowed_name("tune/run_seconds/a.b-c d:e") == "tune/run_seconds/a.b-c d:e"
    values = {"tune/latency/TVM, fused, not tuned": 1.0, "tune/latency/ours@0": 2.0}
    with tracked_run(config, "gcn", "train") as run:
        run.metrics(values)
        run.metrics({f"m{number}": 1.0 for number in range(1500)})
    metrics = only_run(config)[1].data.metrics
    assert metrics["tune/latency/TVM_ fused_ not tuned"] == 1.0
    assert metrics["tune/latency/ours_0"] == 2.0
    assert len(metrics) == 1502
