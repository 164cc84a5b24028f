"""What a training leaves behind for whoever wants to repeat it."""

import json
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from mlflow.entities import Run
from omegaconf import OmegaConf, open_dict

from kernelcast.errors import ConfigError
from kernelcast.files import read_json
from kernelcast.graphs.splits import read_split, read_split_hash
from kernelcast.stages import train as stage
from kernelcast.stages.config import register_schemas

CONF = Path(__file__).resolve().parents[3] / "conf"


def train(root: Path, *overrides: str) -> Run:
    """Trains the model that learns nothing, as the script does, and gives back its run."""
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
