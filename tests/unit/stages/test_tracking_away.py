"""A tracking server that is away: the run goes on, keeps all it records, and the server has it in the end."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import mlflow
import pytest
import requests
from mlflow.entities import Run
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import StorageError
from kernelcast.stages.syncing import sync
from kernelcast.stages.tracking import StoreAwayError, find_unsent, tracked_run
from kernelcast.stages.tracking import address as addresses
from kernelcast.stages.tracking import outbox as outboxes
from kernelcast.stages.tracking.run import PARENT_VARIABLE


def config_of(root: Path, uri: str) -> DictConfig:
    return OmegaConf.create(
        {
            "seed": 3,
            "tracking": {"uri": uri, "experiment": "kernelcast", "artifacts": f"{root}/runs/artifacts"},
            "paths": {"root": str(root), "runs": f"{root}/runs"},
        }
    )


class Gate:
    """A real MLflow server behind an address that can be open, refuse, or take connections and never answer."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.state = "refuses"
        self.connections: list[socket.socket] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def set(self, state: str) -> None:
        self.state = state
        while self.connections:
            # a connection that is kept alive ends like one of a server that dies
            connection = self.connections.pop()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            if self.state == "refuses":
                client.close()
                continue
            self.connections.append(client)
            if self.state == "open":
                behind = socket.create_connection(("127.0.0.1", self.server_port))
                self.connections.append(behind)
                for source, target in ((client, behind), (behind, client)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, fresh_database: Path) -> Iterator[int]:
    """The port of a real MLflow server on loopback."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy2(fresh_database, folder)
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [
        str(Path(sys.executable).with_name("mlflow")), "server", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts",
    ]  # fmt: skip
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert process.poll() is None, (folder / "log").read_text()
            try:
                if requests.get(f"http://127.0.0.1:{port}/health", timeout=5).ok:
                    break
            except requests.RequestException:
                time.sleep(0.3)
        else:
            raise AssertionError("the server does not answer")
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.fixture
def gate(server: int) -> Iterator[Gate]:
    """Refuses at first."""
    made = Gate(server)
    yield made
    made.listening.close()
    made.set("refuses")


@pytest.fixture
def config(gate: Gate, tmp_path: Path) -> DictConfig:
    """Of a fresh checkout with an experiment of its own at the server."""
    made = config_of(tmp_path, gate.uri)
    made.tracking.experiment = tmp_path.name
    return made


def all_runs(config: DictConfig) -> dict[str, Run]:
    client = mlflow.MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name(config.tracking.experiment)
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def text_of(config: DictConfig, run: Run, name: str) -> str:
    client = mlflow.MlflowClient(config.tracking.uri)
    return Path(client.download_artifacts(run.info.run_id, name)).read_text()


def kept(config: DictConfig) -> list[Path]:
    return [path for path in Path(config.paths.runs, outboxes.FOLDER).glob("*") if path.is_dir()]


def record_all(config: DictConfig, name: str, between=lambda step: None) -> str:
    with tracked_run(config, name, "train") as run:
        for step in range(4):
            between(step)
            run.metrics({"train/loss": 1.0 / (step + 1)}, step)
        run.dataset("graphs", "0123456789abcdef", Path("data/graphs"))
        run.text("the plot", "plots/plot.txt")
        (folder := Path(config.paths.root, "model")).mkdir(exist_ok=True)
        (folder / "weights").write_bytes(b"weights")
        run.artifact(folder, "model")
        return run.run_id


def assert_whole(config: DictConfig, run: Run) -> None:
    client = mlflow.MlflowClient(config.tracking.uri)
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(point.step, point.value) for point in history] == [(step, 1.0 / (step + 1)) for step in range(4)]
    # when it happened, not when it was sent
    assert run.info.start_time <= history[0].timestamp <= history[-1].timestamp <= run.info.end_time
    assert run.data.params["seed"] == "3"
    assert run.inputs.dataset_inputs[0].dataset.digest == "0123456789abcdef"
    assert text_of(config, run, "plots/plot.txt") == "the plot"
    assert {item.path for item in client.list_artifacts(run.info.run_id)} >= {
        "config.yaml",
        "environment.json",
        "plots",
    }
    assert [item.path for item in client.list_artifacts(run.info.run_id, "model")] == ["model/weights"]


def copied(database: Path, root: Path) -> Path:
    (root / "runs").mkdir()
    return shutil.copy2(database, root / "runs")


@pytest.mark.slow
def test_a_server_that_was_never_there_gets_everything_later(
    gate: Gate, config: DictConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parent = record_all(config, "parent")
    assert parent.startswith("unsent-")
    warnings = [record.message for record in caplog.records if "the run goes on" in record.message]
    assert len(warnings) == 1, "said once"
    assert "scripts/sync.py" in warnings[0]
    monkeypatch.setenv(PARENT_VARIABLE, parent)
    record_all(config, "child")
    with pytest.raises(ValueError), tracked_run(config, "failed", "train"):
        raise ValueError("bad batch")
    monkeypatch.delenv(PARENT_VARIABLE)
    ended = time.time() * 1000
    with pytest.raises(StoreAwayError, match="does not answer"):
        sync(config)
    assert len(kept(config)) == 3

    gate.set("open")
    record_all(config, "now")
    runs = all_runs(config)
    assert kept(config) == [], "the next run has sent them"
    assert {name: run.info.status for name, run in runs.items()} == {
        "parent": "FINISHED", "child": "FINISHED", "failed": "FAILED", "now": "FINISHED"
    }  # fmt: skip
    for name in ("parent", "child", "now"):
        assert_whole(config, runs[name])
    assert runs["parent"].info.end_time <= ended
    for name in ("child", "failed"):
        assert runs[name].data.tags["mlflow.parentRunId"] == runs["parent"].info.run_id
    assert "bad batch" in text_of(config, runs["failed"], "error.txt")
    assert find_unsent(mlflow.MlflowClient(gate.uri), runs["now"].info.experiment_id, parent) == (
        runs["parent"].info.run_id
    )
    # the server has the artifacts, not a folder of this machine
    assert runs["now"].info.artifact_uri.startswith("mlflow-artifacts:")
    assert not Path(config.tracking.artifacts).exists()


@pytest.mark.slow
@pytest.mark.parametrize("state", ["refuses", "hangs"])
def test_a_server_that_goes_away_and_comes_back_in_the_middle_of_a_run(
    gate: Gate, config: DictConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    gate.set("open")
    monkeypatch.setattr(outboxes, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(addresses, "PROBE_SECONDS", 0.2)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    run_id = record_all(
        config, "interrupted", lambda step: gate.set({1: state, 3: "open"}[step]) if step in (1, 3) else None
    )
    run = all_runs(config)["interrupted"]
    assert (run.info.run_id, run.info.status) == (run_id, "FINISHED")
    assert_whole(config, run)
    assert kept(config) == []
    assert sum("the run goes on" in record.message for record in caplog.records) == 1


@pytest.mark.slow
def test_what_a_run_could_not_send_before_it_ended_is_sent_by_the_command(gate: Gate, config: DictConfig) -> None:
    gate.set("open")
    record_all(config, "cut off", lambda step: gate.set("refuses") if step == 2 else None)
    assert len(kept(config)) == 1
    gate.set("open")
    assert all_runs(config)["cut off"].info.status == "RUNNING"
    # twice changes nothing
    for _ in range(2):
        sync(config)
        cut = all_runs(config)["cut off"]
        assert cut.info.status == "FINISHED"
        assert_whole(config, cut)
    assert kept(config) == []


PROGRAM = """
import sys, time
from omegaconf import OmegaConf
from kernelcast.stages.tracking import tracked_run
with tracked_run(OmegaConf.load(sys.argv[1]), "killed", "train") as run:
    run.metrics({"train/loss": 1.0}, 0)
    print(run.run_id, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_while_the_server_is_away(gate: Gate, config: DictConfig, tmp_path: Path) -> None:
    OmegaConf.save(config, tmp_path / "config.yaml")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "config.yaml")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    unsent = process.stdout.readline().strip()
    gate.set("open")
    sync(config)
    assert len(kept(config)) == 1, "its process still works at it"
    process.kill()
    process.wait(30)
    # in the middle of a line
    with (kept(config)[0] / outboxes.CALLS_FILE).open("a") as stream:
        stream.write('{"call": "metr')

    # another process goes on with the run, the server away again, and then there
    gate.set("refuses")
    with tracked_run(config, "killed", "train", resume=unsent) as run:
        assert (run.resumed, run.run_id) == (True, unsent)
        run.metrics({"train/loss": 1.0}, 0)
        run.metrics({"train/loss": 0.5}, 1)
    assert len(kept(config)) == 1
    gate.set("open")
    sync(config)
    (killed,) = all_runs(config).values()
    assert killed.info.status == "FINISHED"
    history = mlflow.MlflowClient(gate.uri).get_metric_history(killed.info.run_id, "train/loss")
    assert [(point.step, point.value) for point in history] == [(0, 1.0), (1, 0.5)]


@pytest.mark.slow
def test_what_a_server_refuses_stays_and_does_not_hold_up_the_rest(
    gate: Gate, config: DictConfig, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("first", "second", "third"):
        record_all(config, name)
    folders = {json.loads((folder / "run.json").read_text())["name"]: folder for folder in kept(config)}
    (folders["first"] / "run.json").write_text("{}")
    path = folders["second"] / outboxes.CALLS_FILE
    path.write_text(path.read_text().replace("metrics", "metrix", 1) + "{\n{}\n")
    gate.set("open")
    with pytest.raises(StorageError, match="2 runs could not be sent"):
        sync(config)
    assert set(kept(config)) == {folders["first"], folders["second"]}
    assert_whole(config, all_runs(config)["third"])
    # one for another store is left alone
    config.tracking.uri = f"sqlite:///{config.paths.runs}/mlflow.db"
    with pytest.raises(StorageError, match="1 runs"):
        sync(config)
    assert set(kept(config)) == {folders["first"], folders["second"]}


@pytest.mark.slow
def test_a_database_that_is_locked_for_long_does_not_end_a_run(
    tmp_path: Path, fresh_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, f"sqlite:///{copied(fresh_database, tmp_path)}?timeout=0.1")
    monkeypatch.setattr(outboxes, "RETRY_SECONDS", 0.0)
    with tracked_run(config, "gcn", "train") as run:
        other = sqlite3.connect(tmp_path / "runs/mlflow.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        run.metrics({"train/loss": 1.0}, 0)
        assert len(kept(config)) == 1
        other.execute("ROLLBACK")
        other.close()
        run.metrics({"train/loss": 0.5}, 1)
        assert kept(config) == []
    (stored,) = all_runs(config).values()
    assert stored.info.status == "FINISHED"
    history = mlflow.MlflowClient(config.tracking.uri).get_metric_history(stored.info.run_id, "train/loss")
    assert [(point.step, point.value) for point in history] == [(0, 1.0), (1, 0.5)]


def test_a_run_that_somebody_deletes_meanwhile_does_not_end_the_training(tmp_path: Path, fresh_database: Path) -> None:
    config = config_of(tmp_path, f"sqlite:///{copied(fresh_database, tmp_path)}")
    with tracked_run(config, "gcn", "train") as run:
        run.client.delete_run(run.run_id)
        run.metrics({"train/loss": 1.0}, 0)
    assert len(kept(config)) == 1


def test_what_needs_the_server_says_so(tmp_path: Path) -> None:
    config = config_of(tmp_path, "http://127.0.0.1:9")
    with (
        pytest.raises(StoreAwayError, match="does not answer, and the registry is there"),
        tracked_run(config, "register", "register") as run,
    ):
        run.require_store("the registry is there")
    (folder,) = kept(config)
    calls = [json.loads(line) for line in (folder / outboxes.CALLS_FILE).read_text().splitlines()]
    assert (calls[-1]["call"], calls[-1]["status"]) == ("end", "FAILED")
