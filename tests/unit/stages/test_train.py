"""What a training leaves behind for whoever wants to repeat it, or to go on with it."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from mlflow.entities import Run
from omegaconf import OmegaConf, open_dict

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.files import only_process, read_json
from kernelcast.graphs.dataset.store import read_data_hash, read_description, read_programs
from kernelcast.graphs.splits import read_split, read_split_hash
from kernelcast.models.trained_on import TrainedOn
from kernelcast.stages import train as stage
from kernelcast.stages.config import register_schemas
from kernelcast.stages.workspace import FOLDER, RESUMED_TAG

CONF = Path(__file__).resolve().parents[3] / "conf"


def train(root: Path, *overrides: str) -> Run:
    """Trains, as the script does, by default the model that learns nothing, and gives back the run."""
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        asked = [f"paths.root={root}", "model=random", "output=trained", *overrides]
        config = compose("train", overrides=asked, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    OmegaConf.resolve(config)
    try:
        stage.train(config)
    finally:
        HydraConfig.instance().cfg = None
    client = mlflow.MlflowClient(config.tracking.uri)
    return client.get_run(read_json(root / "trained/training.json", "train")["mlflow_run_id"])


def artifacts_of(run: Run, folder: Path) -> Path:
    return Path(mlflow.artifacts.download_artifacts(f"{run.info.artifact_uri}/split", dst_path=str(folder)))


def test_a_run_keeps_the_split_that_it_learned_from(trained_folder, tmp_path: Path) -> None:
    root = trained_folder.copy(tmp_path / "project").root
    run = train(root, "split=workload")
    graphs = root / "data/graphs"
    assert run.data.tags["kernelcast.split_hash"] == read_split_hash(graphs, "workload")
    assert run.data.params["seed"] == "0"
    kept = artifacts_of(run, tmp_path / "kept")
    described = json.loads((kept / "workload.json").read_text())
    test = read_split(graphs, "workload").test
    assert described["parts"]["test"]["programs"] == len(test)
    assert set(described["parts"]["test"]["workloads"]) < {
        f"{name}-key" for name in ("matmul", "conv2d", "softmax", "layer_norm")
    }
    assert described["made_by"] == {"seed": 0}
    # TEN-04: what else it takes to repeat the run
    around = json.loads(mlflow.artifacts.load_text(f"{run.info.artifact_uri}/environment.json"))
    assert {"command", "python", "packages", "choices", "overrides"} <= set(around)
    assert around["choices"]["model"] == "random"
    assert np.flatnonzero(np.load(kept / "workload.npy")["part"] == 2).tolist() == test.tolist()
    # what went in, by its hash, and how to find all runs on this split
    inputs = {entry.dataset.name: entry.dataset.digest for entry in run.inputs.dataset_inputs}
    assert inputs == {"graphs": read_data_hash(graphs)[:16], "split workload": read_split_hash(graphs, "workload")}
    assert [
        found.info.run_id for found in runs_of(root, f"tags.`kernelcast.split_hash` = '{inputs['split workload']}'")
    ] == [run.info.run_id]
    # what a tuner must know to show the model new programs
    trained_on = TrainedOn.read(root / "trained/model")
    assert trained_on.feature_version == read_programs(graphs).feature_version
    assert (trained_on.targets, trained_on.options) == (
        read_description(graphs).targets,
        read_description(graphs).options,
    )

    # TEN-04: the split of a run is there for another one, whatever became of that of the graphs
    shutil.rmtree(graphs / "splits")
    again = train(root, "split=workload", f"from_run={run.info.run_id}")
    assert again.data.tags["kernelcast.split_hash"] == run.data.tags["kernelcast.split_hash"]
    assert sorted(path.name for path in artifacts_of(again, tmp_path / "again").iterdir()) == [
        "workload.json",
        "workload.npy",
    ]
    with pytest.raises(ConfigError, match=r"has no split random: it has kept workload; set split=NAME"):
        train(root, "split=random", f"from_run={run.info.run_id}")
    with pytest.raises(ConfigError, match=r"from_run=0123: no run that has kept its split.*copy the id"):
        train(root, "split=workload", "from_run='0123'")


def test_a_long_list_of_rows_is_named_by_its_hash(
    trained_folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "LONGEST_ROW_LIST", 1000)
    root = trained_folder.copy(tmp_path / "project").root
    kept = artifacts_of(train(root, "split=random"), tmp_path / "kept")
    assert [path.name for path in kept.iterdir()] == ["random.json"]
    assert len(json.loads((kept / "random.json").read_text())["rows"]["hash"]) == 16


def status_and_trace(root: Path) -> tuple[Run, str]:
    """The latest run and what is in its error.txt."""
    run = runs_of(root)[0]
    trace = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/error.txt")
    assert trace.startswith("Traceback")
    return run, trace


# MLF-02, with test_tracking.py for (d) and (f): wherever a training ends badly, its run says so and why
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        # (a) before `fit`: the programs are not there
        (("paths.graphs={root}/nowhere",), "MissingInputError"),
        (("split=absent",), "ConfigError"),
        # (b) in a training step: the loss becomes no number
        (("model=gcn", "trainer=tiny", "split=random", "trainer.learning_rate=1e30"), "lower trainer.learning_rate"),
        # (e) in the fit of boosted trees, which no Lightning watches over
        (("model=xgboost", "split=random", "loss=log_mse", "model.view=trace"), "trace"),
    ],
    ids=["set-up", "split", "step", "trees"],
)
def test_a_training_that_fails_reads_failed_with_its_trace(
    trained_folder, tmp_path: Path, overrides: tuple[str, ...], message: str
) -> None:
    root = trained_folder.copy(tmp_path / "project").root
    with pytest.raises(KernelcastError):
        train(root, *(override.format(root=root) for override in overrides))
    run, trace = status_and_trace(root)
    assert run.info.status == "FAILED"
    assert message in trace, "MLflow's page has the reason"
    assert run.data.tags["kernelcast.error"]
    # DVC-05: whoever evaluates is told which model is missing
    assert message in (root / "trained/failed.json").read_text()
    # and the next training of this name is not refused
    train(root)
    assert sorted(path.name for path in (root / "trained").iterdir()) == ["model", "training.json"]


def test_a_training_that_fails_in_its_test_reads_failed(
    trained_folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MLF-02 (c)
    root = trained_folder.copy(tmp_path / "project").root
    train(root, "split=random")
    kept = {path.name for path in (root / "trained").iterdir()}

    def fail(model, programs, part, run):
        if part == "test":
            raise RuntimeError("the disk went away")
        return {}

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(stage, "score", fail)
        train(root, "split=random")
    run, trace = status_and_trace(root)
    assert run.info.status == "FAILED"
    assert "the disk went away" in trace
    assert {path.name for path in (root / "trained").iterdir()} == kept, "an earlier model stays"


def test_equal_seeds_give_equal_figures(trained_folder, tmp_path: Path) -> None:
    # PYG-06, on a processor: what a run says, and what training.json keeps
    root = trained_folder.copy(tmp_path / "project").root
    found = []
    for _ in range(2):
        run = train(root, *GCN, "seed=1")
        metrics = read_json(root / "trained/training.json", "train")["metrics"]
        found.append(
            [
                {name: value for name, value in each.items() if name != "train_seconds"}
                for each in (metrics, run.data.metrics)
            ]
        )
    assert found[0] == found[1]
    assert "test/kendall_tau" in found[0][0]


GCN = ("model=gcn", "trainer=tiny", "split=random", "trainer.max_epochs=4")


def curve(root: Path) -> list[dict[str, str]]:
    with (root / "trained/history.csv").open() as stream:
        return list(csv.DictReader(stream))


def runs_of(root: Path, query: str = "") -> list[Run]:
    """All runs that the page would list, the latest first."""
    client = mlflow.MlflowClient(f"sqlite:///{root}/runs/mlflow.db")
    return client.search_runs([client.get_experiment_by_name("kernelcast").experiment_id], query)


def unfinished(root: Path) -> list[Path]:
    return [path for path in (root / "runs" / FOLDER).iterdir() if path.is_dir()]


def interrupt(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begins the training and ends it by Ctrl-C as its third epoch ends."""
    record = stage.History.metrics

    def stop(history, values, step):
        record(history, values, step)
        if step == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(stage.History, "metrics", stop)
        train(root, *GCN)


def test_an_interrupted_training_goes_on_in_the_same_run(
    trained_folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trained_folder.copy(tmp_path / "project").root
    train(root, *GCN)
    undisturbed, weights = curve(root), (root / "trained/model/weights.safetensors").read_bytes()
    assert unfinished(root) == []

    client = mlflow.MlflowClient(f"sqlite:///{root}/runs/mlflow.db")
    interrupt(root, monkeypatch)
    killed = runs_of(root)[0]
    assert (killed.info.status, killed.data.tags["kernelcast.error"]) == ("KILLED", "KeyboardInterrupt: ")
    assert len(unfinished(root)) == 1
    # another training does not find it
    assert RESUMED_TAG not in train(root, *GCN, "seed=1").data.tags
    run = train(root, *GCN)
    assert run.info.run_id == killed.info.run_id
    assert run.info.status == "FINISHED"
    assert run.data.tags[RESUMED_TAG] == "1"
    assert "kernelcast.error" not in run.data.tags
    assert curve(root) == undisturbed
    assert (root / "trained/model/weights.safetensors").read_bytes() == weights
    # no step twice
    for name in ("train/loss", "valid/kendall_tau"):
        steps = [point.step for point in client.get_metric_history(run.info.run_id, name)]
        assert steps == sorted(set(steps))
        assert steps[:4] == [0, 1, 2, 3]
    assert unfinished(root) == []
    # what is finished is not gone on with
    assert train(root, *GCN).info.run_id != run.info.run_id


@pytest.mark.parametrize("gone", ["deleted", "other experiment"])
def test_a_training_whose_run_is_gone_goes_on_in_a_new_one(
    trained_folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    root = trained_folder.copy(tmp_path / "project").root
    interrupt(root, monkeypatch)
    (killed,) = runs_of(root)
    client = mlflow.MlflowClient(f"sqlite:///{root}/runs/mlflow.db")
    other = ()
    if gone == "deleted":
        client.delete_run(killed.info.run_id)
    else:
        other = ("tracking.experiment=other",)
    run = train(root, *GCN, *other)
    assert run.info.run_id != killed.info.run_id
    assert run.info.status == "FINISHED"
    assert [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")] == [0, 1, 2, 3]
    assert unfinished(root) == []


def test_the_same_training_twice_at_once_keeps_out_of_the_other_ones_way(
    trained_folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trained_folder.copy(tmp_path / "project").root
    interrupt(root, monkeypatch)
    (folder,) = unfinished(root)
    kept = {file.name: file.read_bytes() for file in folder.iterdir()}
    with only_process(folder, AssertionError()):
        run = train(root, *GCN)
    assert RESUMED_TAG not in run.data.tags
    assert len(curve(root)) == 4
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == kept


@pytest.mark.slow
def test_two_processes_are_one_run_with_one_folder(trained_folder, tmp_path: Path) -> None:
    root = trained_folder.copy(tmp_path / "project").root
    script = CONF.parent / "scripts/train.py"
    command = [sys.executable, str(script), f"paths.root={root}", *GCN, "trainer.devices=2", "trainer.batch_programs=8"]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"})
    client = mlflow.MlflowClient(f"sqlite:///{root}/runs/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("kernelcast").experiment_id])
    assert run.info.status == "FINISHED"
    assert len(client.get_metric_history(run.info.run_id, "valid/loss")) == 4
    (output,) = (root / "runs/train").glob("*/output")
    assert (output / "training.json").is_file()
    assert unfinished(root) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_trainings_at_once_on_a_fresh_database_are_four_good_runs(trained_folder, tmp_path: Path) -> None:
    # MLF-03
    root = trained_folder.copy(tmp_path / "project").root
    (root / "runs/mlflow.db").unlink()
    script = CONF.parent / "scripts/train.py"
    models = ("random", "xgboost", "random", "xgboost")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), f"paths.root={root}", f"model={model}", "split=random", f"output=o{number}"],
            cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for number, model in enumerate(models)
    ]  # fmt: skip
    for process in processes:
        printed, _ = process.communicate(timeout=800)
        assert process.returncode == 0, printed.decode()
    runs = runs_of(root)
    assert [run.info.status for run in runs] == ["FINISHED"] * 4
    for number in range(4):
        training = read_json(root / f"o{number}/training.json", "train")
        (run,) = (run for run in runs if run.info.run_id == training["mlflow_run_id"])
        assert run.data.metrics["test/kendall_tau"] == training["metrics"]["test/kendall_tau"]
