"""A registered model, loaded by another process, predicts what the saved one predicts."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError
from kernelcast.files import read_json, write_json
from kernelcast.graphs.dataset.store import read_programs
from kernelcast.models.saved import load_model
from kernelcast.stages.evaluate import evaluate
from kernelcast.stages.provenance import UNITS
from kernelcast.stages.registry import reason_against, register
from tests.unit.stages.conftest import PipelineFolder

# a busy machine takes long to import MLflow in another process
pytestmark = pytest.mark.timeout(900)

NAME = "kernelcast-random"


@pytest.fixture(scope="module")
def folder(trained_folder: PipelineFolder, tmp_path_factory: pytest.TempPathFactory) -> PipelineFolder:
    """A pipeline whose models keep where they come from, evaluated."""
    copy = trained_folder.copy(tmp_path_factory.mktemp("registry") / "project")
    programs = read_programs(copy.root / "data/graphs")
    for path in (copy.root / "data/models").glob("*/*/training.json"):
        training = read_json(path, "train")
        more = {"feature_version": programs.feature_version, "data_hash": "d" * 16, "metrics": {}}
        write_json(path, {**training, **more, "unit": UNITS[training["kind"]], "mlflow_run_id": path.parent.name})
    evaluate(copy.config)
    return copy


def config_of(folder: PipelineFolder, **changed: object) -> DictConfig:
    asked = {"split": "random", "model_name": None, "metric": "kendall_tau", "name": None, "replace": False}
    return OmegaConf.merge(folder.config, asked, changed)


def champion(folder: PipelineFolder) -> mlflow.entities.model_registry.ModelVersion:
    return mlflow.MlflowClient(folder.config.tracking.uri).get_model_version_by_alias(NAME, "champion")


def test_the_best_is_the_champion_and_another_process_predicts_with_it(folder: PipelineFolder) -> None:
    register(config_of(folder))
    version = champion(folder)
    assert (version.tags["model"], version.tags["unit"]) == ("xgboost", UNITS["log_seconds"])
    graphs = folder.root / "data/graphs"
    script = (
        "import json, sys, mlflow, pandas\n"
        "uri, model, graphs = sys.argv[1:]\n"
        "mlflow.set_tracking_uri(uri)\n"
        "model = mlflow.pyfunc.load_model(model)\n"
        "table = model.predict(pandas.DataFrame({'graphs': [graphs]}))\n"
        "print(json.dumps([table.to_dict('list'), model.metadata.get_input_schema().input_names()]))\n"
    )
    command = [sys.executable, "-c", script, folder.config.tracking.uri, f"models:/{NAME}@champion", str(graphs)]
    # elsewhere, without the checkout's configuration
    printed = subprocess.run(
        command, cwd=folder.root.parent, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    table, inputs = json.loads(printed.splitlines()[-1])
    programs = read_programs(graphs)
    expected = load_model(folder.root / "data/models/random/xgboost/model").predict(programs)
    np.testing.assert_array_equal(table["prediction"], expected)
    assert table["program"] == programs.program_key.tolist()
    assert inputs == ["graphs", "trace", "workload"]
    packed = Path(mlflow.artifacts.download_artifacts(f"{version.source}", dst_path=str(folder.root / "kept")))
    assert not [path for path in packed.rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_a_worse_one_does_not_replace_it_unless_asked(folder: PipelineFolder, caplog: pytest.LogCaptureFixture) -> None:
    register(config_of(folder))
    first = champion(folder)
    with caplog.at_level(logging.INFO):
        register(config_of(folder))
        assert "as before" in caplog.text
        register(config_of(folder, model_name="random"))
    assert "stays the champion" in caplog.text
    assert champion(folder).version == first.version
    register(config_of(folder, model_name="random", replace=True))
    assert champion(folder).tags["model"] == "random"
    register(config_of(folder))
    assert champion(folder).version == first.version


def test_only_equal_test_programs_are_compared() -> None:
    worse = {"split_hash": "a", "metric": "mape", "value": "0.3"}
    assert reason_against(worse, {**worse, "value": "0.2"}) == ""
    assert "0.3000" in reason_against(worse, {**worse, "value": "0.3"})
    assert "other programs" in reason_against(worse, {**worse, "value": "0.2", "split_hash": "b"})
    assert "chosen by mape" in reason_against(worse, {**worse, "value": "0.9", "metric": "kendall_tau"})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"split": "kind"}, "split=kind was not evaluated; choose from random, workload"),
        ({"model_name": "gcn"}, "model=gcn was not evaluated on random; choose from"),
        ({"metric": "speed"}, "metric=speed is not known"),
        ({"metric": "mape", "model_name": "random"}, "has a value of metric=mape"),
    ],
)
def test_what_is_not_there_is_said(folder: PipelineFolder, changed: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        register(config_of(folder, **changed))
