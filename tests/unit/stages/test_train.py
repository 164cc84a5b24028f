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

from kernelcast.errors import ConfigError
from kernelcast.files import only_process, read_json
from kernelcast.graphs.dataset.store import read_description, read_programs
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
    assert np.flatnonzero(np.load(kept / "workload.npy")["part"] == 2).tolist() == test.tolist()
    # what a tuner must know to show the model new programs
    trained_on = TrainedOn.read(root / "trained/model")
    assert trained_on.feature_version == read_programs(graphs).feature_version
    assert (trained_on.targets, trained_on.options) == (
        read_description(graphs).targets,
        read_description(graphs).options,
    )

    # case TEN-04: the split of a run is there for another one, whatever became of that of the graphs
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


GCN = ("model=gcn", "trainer=tiny", "split=random", "trainer.max_epochs=4")


def curve(root: Path) -> list[dict[str, str]]:
    with (root / "trained/history.csv").open() as stream:
        return list(csv.DictReader(stream))


def runs_of(root: Path) -> list[Run]:
    """All runs, the latest first."""
    client = mlflow.MlflowClient(f"sqlite:///{root}/runs/mlflow.db")
    return client.search_runs([client.get_experiment_by_name("kernelcast").experiment_id])


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
