"""One command repeats any run, and says what may make a difference."""

import json
import shutil
from pathlib import Path

import mlflow
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from mlflow.entities import Run
from omegaconf import DictConfig, OmegaConf, open_dict

from kernelcast.errors import ConfigError
from kernelcast.files import read_json
from kernelcast.stages.config import register_schemas
from kernelcast.stages.repeating import repeat
from kernelcast.stages.syncing import sync
from kernelcast.stages.tracking import start_run
from kernelcast.stages.train import train

CONF = Path(__file__).resolve().parents[3] / "conf"
XGBOOST = ("model=xgboost", "loss=log_mse", "split=random", "model.settings.rounds=20", "seed=7")


def launch(stage, root: str, *overrides: str) -> DictConfig:
    """Runs a stage as its script does."""
    register_schemas()
    name = stage.__name__
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(name, overrides=[f"paths.root={root}", *overrides], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    OmegaConf.resolve(config)
    try:
        stage(config)
    finally:
        HydraConfig.instance().cfg = None
    return config


def client_of(root: Path) -> mlflow.MlflowClient:
    return mlflow.MlflowClient(f"sqlite:///{root}/runs/mlflow.db")


def latest(root: Path) -> Run:
    return client_of(root).search_runs(["1"], max_results=1)[0]


@pytest.fixture(scope="module")
def trained_once(trained_folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one training of boosted trees."""
    root = trained_folder.copy(tmp_path_factory.mktemp("trained") / "project").root
    launch(train, root, *XGBOOST, "output=trained")
    return root


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> tuple[Path, Run]:
    """A copy of it, which has the artifacts of the run as well, and the run."""
    root = tmp_path / "project"
    shutil.copytree(trained_once, root)
    launch(sync, root)
    return root, latest(root)


def test_a_training_is_repeated_to_the_same_figures(trained, caplog: pytest.LogCaptureFixture) -> None:
    root, run = trained
    before = (root / "trained/training.json").read_bytes()
    caplog.set_level("INFO")
    launch(repeat, root, f"run={run.info.run_id}", "output=again")
    again = latest(root)
    assert again.info.run_id != run.info.run_id
    assert again.info.run_name == run.info.run_name == "xgboost-log_mse on random"
    assert again.data.tags["kernelcast.repeats"] == run.info.run_id
    assert again.data.tags["kernelcast.split_hash"] == run.data.tags["kernelcast.split_hash"]
    same = {"train_seconds"}
    assert {name: value for name, value in again.data.metrics.items() if name not in same} == {
        name: value for name, value in run.data.metrics.items() if name not in same
    }
    settings = read_json(root / "again/training.json", "train")
    assert (settings["model"], settings["loss"], settings["seed"]) == ("xgboost", "log_mse", 7)
    assert settings["config"]["model"]["settings"]["rounds"] == 20
    assert (root / "trained/training.json").read_bytes() == before, "the model of the run is not replaced"
    assert "nothing that was compared differs" in caplog.text
    assert f"now {run.data.metrics['objective']:.6g}" in caplog.text
    # a repetition can be repeated
    launch(repeat, root, f"run={again.info.run_id}", "compare_only=true")


def test_what_differs_is_said_and_the_split_of_the_run_is_taken(
    trained, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    root, run = trained
    shutil.rmtree(root / "data/graphs/splits")
    kept = Path(mlflow.artifacts.download_artifacts(f"{run.info.artifact_uri}/environment.json"))
    environment = json.loads(kept.read_text())
    environment["packages"]["xgboost-cpu"] = "1.7.0"
    environment["packages"]["gone"] = "1.0"
    kept.write_text(json.dumps(environment))
    launch(repeat, root, f"run={run.info.run_id}", "compare_only=true")
    assert latest(root).info.run_id == run.info.run_id, "nothing runs"
    (line,) = [record.message for record in caplog.records if "differs from when" in record.message]
    for what in ("xgboost-cpu", "gone", "split random"):
        assert what in line
    assert "graphs" not in line
    assert "1.7.0" in capsys.readouterr().out
    launch(repeat, root, f"run={run.info.run_id}", "output=again")
    again = latest(root)
    assert again.data.tags["kernelcast.split_hash"] == run.data.tags["kernelcast.split_hash"]
    assert again.data.params["from_run"] == run.info.run_id


def test_a_run_is_repeated_in_a_checkout_that_was_moved(trained, tmp_path: Path) -> None:
    root, run = trained
    moved = tmp_path / "moved"
    shutil.move(root, moved)
    launch(repeat, moved, f"run={run.info.run_id}", "output=again")
    again = latest(moved)
    assert again.info.status == "FINISHED"
    assert again.data.params["paths.graphs"] == str(moved / "data/graphs")
    assert not root.exists()


def test_what_cannot_be_repeated_is_one_clear_error(trained) -> None:
    root, run = trained
    with pytest.raises(ConfigError, match=r"run=null: name a run"):
        launch(repeat, root)
    with pytest.raises(ConfigError, match=r"run=nothing: there is no such run"):
        launch(repeat, root, "run=nothing")
    config = launch(sync, root)
    sweep = start_run(config, "sweep model=gcn", "sweep")
    sweep.end("FINISHED")
    with pytest.raises(ConfigError, match="the parent of a sweep: repeat one of the runs below it"):
        launch(repeat, root, f"run={sweep.run_id}")
    bare = start_run(config, "bare", "train")
    bare.end("FINISHED")
    with pytest.raises(ConfigError, match=r"has not kept config\.yaml"):
        launch(repeat, root, f"run={bare.run_id}")
    # of another kernelcast: a key that there is not, one that there was not yet
    path = Path(mlflow.artifacts.download_artifacts(f"{run.info.artifact_uri}/config.yaml"))
    path.write_text(path.read_text() + "old_key: 1\n")
    with pytest.raises(ConfigError, match=r"with other settings: .*old_key.*; check out its revision"):
        launch(repeat, root, f"run={run.info.run_id}")
    path.write_text(path.read_text().replace("old_key: 1\n", "").replace("direction: maximize\n", ""))
    with pytest.raises(ConfigError, match=r"it has no direction; check out its revision"):
        launch(repeat, root, f"run={run.info.run_id}")
