import shutil
from pathlib import Path

import mlflow
import pytest
from omegaconf import DictConfig, OmegaConf

from kernelcast.stages.tracking import tracked_run


def config_in(root: Path) -> DictConfig:
    return OmegaConf.create(
        {
            "tracking": {
                "uri": f"sqlite:///{root}/runs/mlflow.db",
                "experiment": "kernelcast",
                "artifacts": f"{root}/runs/artifacts",
            },
            "paths": {"root": str(root), "runs": f"{root}/runs"},
        }
    )


@pytest.fixture
def begun(tmp_path: Path, fresh_database: Path) -> Path:
    """A project in which a run has kept a plot."""
    root = tmp_path / "old"
    (root / "runs").mkdir(parents=True)
    shutil.copy2(fresh_database, root / "runs")
    record(root, "before")
    return root


def record(root: Path, name: str) -> None:
    with tracked_run(config_in(root), name, "train") as run:
        run.text("the plot", "plots/plot.txt")


def plots(root: Path) -> dict[str, str]:
    """What the plot of every run is, and that it lies in this folder."""
    runs = mlflow.MlflowClient(f"sqlite:///{root}/runs/mlflow.db").search_runs(["1"])
    assert all(run.info.artifact_uri.startswith(root.as_uri()) for run in runs)
    return {run.info.run_name: mlflow.artifacts.load_text(f"{run.info.artifact_uri}/plots/plot.txt") for run in runs}


@pytest.mark.parametrize("keep", [False, True], ids=["moved", "copied"])
def test_artifacts_follow_a_checkout_to_its_new_place(begun: Path, tmp_path: Path, keep: bool) -> None:
    # MLF-08
    old, new = begun, tmp_path / "new ü place"
    (shutil.copytree if keep else shutil.move)(old, new)
    record(new, "after")
    assert plots(new) == {"before": "the plot", "after": "the plot"}
    assert old.exists() == keep
    if keep:
        assert plots(old) == {"before": "the plot"}


def test_another_folder_is_for_new_artifacts_and_the_old_ones_stay_where_they_are(begun: Path, tmp_path: Path) -> None:
    config = config_in(begun)
    config.tracking.artifacts = f"{tmp_path}/elsewhere"
    with tracked_run(config, "after", "train") as run:
        run.text("another plot", "plots/plot.txt")
    found = {run.info.run_name: run for run in mlflow.MlflowClient(config.tracking.uri).search_runs(["1"])}
    assert mlflow.artifacts.load_text(f"{found['before'].info.artifact_uri}/plots/plot.txt") == "the plot"
    assert (tmp_path / "elsewhere" / found["after"].info.run_id / "artifacts/plots/plot.txt").is_file()


def test_a_checkout_that_was_moved_without_its_artifacts_writes_nothing_at_its_old_place(
    begun: Path, tmp_path: Path
) -> None:
    old, new = begun, tmp_path / "new"
    shutil.rmtree(old / "runs/artifacts")
    shutil.move(old, new)
    record(new, "after")
    assert not old.exists()
    assert next((new / "runs/artifacts").glob("*/artifacts/plots/plot.txt")).read_text() == "the plot"
