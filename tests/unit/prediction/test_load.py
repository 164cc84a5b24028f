"""Models by what users call them, in any process; what is not there is one message that names what is."""

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import mlflow
import numpy as np
import pytest

import kernelcast
from kernelcast.errors import ConfigError, MissingInputError, StorageError
from kernelcast.prediction import Predictor
from kernelcast.stages.loading import load_predictor
from tests.unit.prediction.conftest import Trained

# a busy machine takes long to make MLflow's database
pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Store:
    """A database of MLflow with two runs, one of which kept a model, and three versions of two registered models."""

    uri: str
    client: mlflow.MlflowClient
    trained_run: str
    empty_run: str

    def register(self, name: str, source: Path, champion: bool) -> None:
        """A version as `register` makes it: the packed model in the folder `source`."""
        if not self.client.search_registered_models(f"name = '{name}'"):
            self.client.create_registered_model(name)
        tags = {"model": source.name, "metric": "kendall_tau", "value": "0.5", "split": "workload"}
        version = self.client.create_model_version(name, source.as_uri(), self.trained_run, tags=tags)
        if champion:
            self.client.set_registered_model_alias(name, "champion", version.version)


@pytest.fixture(scope="module")
def store(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("store with a blank")
    uri = f"sqlite:///{root}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("kernelcast", artifact_location=(root / "artifacts").as_uri())
    runs = [client.create_run(experiment, run_name=name).info.run_id for name in ("a training", "an evaluation")]
    client.log_artifacts(runs[0], str(trained.folder("lightgbm") / "model"), "model")
    return Store(uri, client, *runs)


def packed(trained: Trained, name: str, folder: Path) -> Path:
    shutil.copytree(trained.folder(name) / "model", folder / name / "artifacts/model")
    return folder / name


def predictions(predictor: Predictor, trained: Trained) -> dict[str, float]:
    table = predictor.predict(trained.graphs)
    return dict(zip(table["program_key"], table["prediction"], strict=True))


def test_a_folder_in_every_way_to_name_it(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained.offline("lightgbm")
    folder = trained.folder("lightgbm")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, "mine")
    within = folder.relative_to(trained.root)
    for name in (folder, str(folder), folder / "model", "mine", packed(trained, "lightgbm", tmp_path)):
        assert predictions(kernelcast.load(name), trained) == expected
    assert predictions(load_predictor(str(within), root=trained.root), trained) == expected


def test_what_is_no_model_is_told_with_those_that_there_are(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"model=lightgmb is no folder.*trained are data/models/workload/light"):
        load_predictor("lightgmb", root=trained.root)
    with pytest.raises(MissingInputError, match=r"train one by `python scripts/train\.py"):
        load_predictor("lightgmb", root=tmp_path)
    with pytest.raises(ConfigError, match=r"several models are in this folder: .*lightgbm.*; name one"):
        load_predictor(trained.root / "data/models/workload")
    with pytest.raises(MissingInputError, match=r"the folder holds no trained model"):
        load_predictor(tmp_path)
    with pytest.raises(ConfigError, match="model is empty"):
        load_predictor(" ")


@pytest.mark.parametrize("model", ["champion", "models:/kernelcast@champion", "0" * 32])
def test_without_a_database_none_is_made(model: str, tmp_path: Path) -> None:
    file = tmp_path / "runs/mlflow.db"
    with pytest.raises(MissingInputError, match=r"there is no .*mlflow\.db, .*register\.py"):
        load_predictor(model, f"sqlite:///{file}", root=tmp_path)
    assert not file.parent.exists()


def test_a_store_that_cannot_be_read_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    with pytest.raises(StorageError, match=r"cannot read MLflow's store sqlite.*model=FOLDER"):
        kernelcast.load("champion", tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    # nobody listens on a port that was just given up
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(StorageError, match="does not answer; a model in a folder needs none"):
        kernelcast.load("champion", tracking_uri=f"http://127.0.0.1:{port}")


def test_a_run_is_the_model_that_it_kept(trained: Trained, store: Store) -> None:
    for name in (store.trained_run, f"runs:/{store.trained_run}", f"runs:/{store.trained_run}/model"):
        predictor = kernelcast.load(name, tracking_uri=store.uri)
        assert "a training" in predictor.source
        assert predictions(predictor, trained) == trained.offline("lightgbm")
    with pytest.raises(MissingInputError, match="the run an evaluation kept no model"):
        kernelcast.load(store.empty_run, tracking_uri=store.uri)
    with pytest.raises(MissingInputError, match="has no such run"):
        kernelcast.load("0" * 32, tracking_uri=store.uri)


def test_the_champion_is_that_of_the_plain_name_else_the_newest(
    trained: Trained, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(MissingInputError, match=r"no model is registered at sqlite.*register\.py"):
        kernelcast.load(tracking_uri=store.uri)
    store.register("kernelcast-random", packed(trained, "lightgbm_trace", tmp_path), champion=True)
    assert kernelcast.load(tracking_uri=store.uri).source.startswith("models:/kernelcast-random/1 (lightgbm_trace, ")
    store.register("kernelcast", packed(trained, "trees_of_rank", tmp_path), champion=True)
    store.register("kernelcast", packed(trained, "lightgbm", tmp_path), champion=False)
    with caplog.at_level("INFO"):
        champion = kernelcast.load("champion", tracking_uri=store.uri)
    assert champion.source == "models:/kernelcast/1 (trees_of_rank, kendall_tau 0.500 on the split workload)"
    assert "others: models:/kernelcast-random@champion" in caplog.text
    assert predictions(champion, trained) == trained.offline("trees_of_rank")
    second = kernelcast.load("models:/kernelcast/2", tracking_uri=store.uri)
    assert predictions(second, trained) == trained.offline("lightgbm")
    assert kernelcast.load("models:/kernelcast", tracking_uri=store.uri).source == champion.source
    for name in ("models:/kernelcast/9", "models:/kernelcast@best", "models:/nothing@champion"):
        with pytest.raises(MissingInputError, match=r"no such version; there are .*models:/kernelcast@champion"):
            kernelcast.load(name, tracking_uri=store.uri)
    with pytest.raises(ConfigError, match="write models:/NAME@ALIAS"):
        kernelcast.load("models:kernelcast", tracking_uri=store.uri)
    shutil.rmtree(tmp_path / "lightgbm")
    with pytest.raises(MissingInputError, match="is gone"):
        kernelcast.load("models:/kernelcast/2", tracking_uri=store.uri)


def test_hyd_12_a_new_process_elsewhere_predicts_the_same_without_conf(
    trained: Trained, store: Store, tmp_path: Path
) -> None:
    # HYD-12: the package alone, no checkout around it and no configuration; in threads too, which find TVM not loaded
    package = tmp_path / "site/kernelcast"
    shutil.copytree(Path(kernelcast.__file__).parent, package)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = (
        "import json, sys, kernelcast\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "heavy = {'tvm', 'torch', 'mlflow', 'hydra', 'pandas', 'numpy'} & set(sys.modules)\n"
        "run, folder, uri, graphs = sys.argv[1:]\n"
        "asked = {'what': 'matmul', 'shape': {'rows': 8, 'columns': 8, 'depth': 8}, 'samples': 2}\n"
        "with ThreadPoolExecutor(3) as pool:\n"
        "    at_once = list(pool.map(lambda _: kernelcast.load(folder).predict(**asked), range(3)))\n"
        "assert at_once[0].equals(at_once[1]) and at_once[0].equals(at_once[2])\n"
        "by_run = kernelcast.load(run, tracking_uri=uri).predict(graphs)\n"
        "by_folder = kernelcast.load(folder).predict(graphs)\n"
        "both = [dict(zip(each['program_key'], each['prediction'])) for each in (by_run, by_folder)]\n"
        "print(json.dumps([kernelcast.__file__, sorted(heavy), *both]))\n"
    )
    where = [store.trained_run, str(trained.folder("lightgbm")), store.uri, str(trained.graphs)]
    printed = subprocess.run(
        [sys.executable, "-c", script, *where],
        cwd=elsewhere, env={**os.environ, "PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    file, heavy, *found = json.loads(printed.splitlines()[-1])
    assert Path(file).is_relative_to(package)
    assert heavy == []
    expected = trained.offline("lightgbm")
    for each in found:
        assert each.keys() == expected.keys()
        np.testing.assert_allclose([each[key] for key in expected], list(expected.values()), rtol=0, atol=1e-5)
    assert not any(elsewhere.iterdir())
