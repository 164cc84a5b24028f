"""Debug runs of a training, as `debug=NAME` asks for them."""

import logging
from pathlib import Path

import mlflow
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from mlflow.entities import Run
from omegaconf import OmegaConf, open_dict

from kernelcast.errors import ConfigError
from kernelcast.evaluation.summary import summarise
from kernelcast.files import read_json
from kernelcast.graphs.dataset.store import read_programs
from kernelcast.graphs.splits import read_split
from kernelcast.models.profiling import FUNCTIONS_FILE, OPERATORS_FILE, TRACE_FILE
from kernelcast.models.saved import load_model
from kernelcast.stages import train as stage
from kernelcast.stages.config import register_schemas
from kernelcast.stages.debugging import DEBUG_TAG, OVERFIT_TAG, PROFILE_FOLDER, debug_split, few_rows

CONF = Path(__file__).resolve().parents[3] / "conf"


@pytest.fixture(scope="module")
def root(trained_folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with graphs, shared by these tests: none of their trainings changes what another one reads."""
    return trained_folder.copy(tmp_path_factory.mktemp("debugging") / "project").root


def train(root: Path, mode: str, *overrides: str) -> Run:
    """Trains as `python scripts/train.py debug=MODE` does, and gives back the run."""
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        asked = [f"paths.root={root}", f"debug={mode}", "split=random", *overrides]
        folder = f"hydra.runtime.output_dir={root / 'runs/here'}"
        config = compose("train", overrides=[*asked, folder], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    OmegaConf.resolve(config)
    try:
        stage.train(config)
    finally:
        HydraConfig.instance().cfg = None
    output = Path(root, config.output or "runs/here/output")
    run_id = read_json(output / "training.json", "train")["mlflow_run_id"]
    return mlflow.MlflowClient(config.tracking.uri).get_run(run_id)


def test_few_rows_are_those_of_the_largest_workloads_and_spread_over_them() -> None:
    rows = np.array([10, 11, 12, 13, 14, 15, 16, 17])
    workload = np.array([0, 1, 1, 1, 2, 2, 2, 0])
    assert few_rows(rows, workload, 2, 4).tolist() == [11, 12, 14, 15]
    assert few_rows(rows, workload, 1, None).tolist() == [11, 12, 13]
    assert few_rows(rows, workload, None, 3).tolist() == [10, 11, 14]
    assert few_rows(rows, workload, None, None).tolist() == rows.tolist()
    assert few_rows(rows[:0], workload[:0], 2, 4).tolist() == []


def test_one_batch_goes_through_everything_and_tests_the_weights_that_it_kept(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # HYD-14: a run of one batch passes and says which weights were tested: those that it saved
    with caplog.at_level(logging.INFO):
        run = train(root, "one_batch", "model=gcn")
    assert run.info.status == "FINISHED"
    assert run.data.tags[DEBUG_TAG] == "one_batch"
    assert "the weights of epoch 1, with valid/" in caplog.text
    assert "are kept, saved and tested" in caplog.text
    assert "of 160 programs only 32 train, 16 valid, 32 test" in caplog.text

    programs = read_programs(root / "data/graphs")
    debug = {"workloads": 4, "programs": 32, "overfit": False, "profile": False}
    split = debug_split(read_split(root / "data/graphs", "random"), programs, debug)
    assert [len(rows) for _, rows in split.parts()] == [32, 16, 32]
    tested = programs.select(split.test)
    model = load_model(root / "runs/here/output/model")
    of_saved = summarise(tested, model.predict(tested), model.kind).overall
    assert run.data.metrics["test/kendall_tau"] == pytest.approx(of_saved["kendall_tau"], abs=1e-12)


def test_a_model_learns_one_workload_by_heart(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run = train(root, "overfit", "model=xgboost", "loss=log_mse")
    assert run.data.tags[OVERFIT_TAG] in ("loss near zero", "order right")
    assert "the order of the programs is learned" in caplog.text or "near zero: the model can learn" in caplog.text
    # trained, validated and tested on the same programs
    assert run.data.metrics["valid/kendall_tau"] == run.data.metrics["test/kendall_tau"]


def test_a_model_that_cannot_learn_is_told_so(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    rate = "model.settings.learning_rate=0.000001"
    run = train(root, "overfit", "model=xgboost", "loss=log_mse", rate, "model.settings.rounds=3")
    assert run.data.tags[OVERFIT_TAG] == "not learned"
    assert [record for record in caplog.records if "even by heart" in record.message]
    with pytest.raises(ConfigError, match="debug=overfit: this model learns nothing"):
        train(root, "overfit", "model=random")


def test_a_profile_is_in_the_folder_of_the_run_and_with_the_tracked_run(root: Path) -> None:
    run = train(root, "profile", "model=gcn", "trainer.max_epochs=1")
    folder = root / "runs/here" / PROFILE_FOLDER
    assert "aten::mm" in (folder / OPERATORS_FILE).read_text()
    assert " function calls " in (folder / FUNCTIONS_FILE).read_text()
    assert (folder / TRACE_FILE).read_bytes()[:2] == b"\x1f\x8b"
    kept = Path(mlflow.artifacts.download_artifacts(f"{run.info.artifact_uri}/{PROFILE_FOLDER}"))
    assert {path.name for path in kept.iterdir()} == {OPERATORS_FILE, FUNCTIONS_FILE, TRACE_FILE}


def test_a_debug_run_leaves_nothing_where_the_pipeline_looks(root: Path) -> None:
    before = sorted((root / "data/models").rglob("*"))
    with pytest.raises(ConfigError, match=r"debug=tiny output=data/models/random/mine: .*leave `output` out"):
        train(root, "tiny", "output=data/models/random/mine")
    assert sorted((root / "data/models").rglob("*")) == before
    with pytest.raises(ConfigError, match=r"debug.programs=0: it must be at least 1"):
        train(root, "tiny", "model=xgboost", "debug.programs=0")
