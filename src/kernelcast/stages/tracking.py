"""MLflow: one run a stage execution, true about how it ended.

Only the client is used, never MLflow's global "active run": nothing here depends on what the caller did before, and a
run that fails in set-up, in fitting or on Ctrl-C is closed as what it is.
"""

from __future__ import annotations

import getpass
import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import KernelcastError, StorageError
from kernelcast.files import atomic_file, remove_leftovers
from kernelcast.stages.process_identity import process_identity, process_may_live
from kernelcast.stages.relocation import relocate_artifacts

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

PARENT_VARIABLE = "KERNELCAST_PARENT_RUN"
"""Environment variable by which the jobs of a multirun, in whatever process, know their parent run."""

PROCESS_TAG = "kernelcast.process"
MOST_METRICS = 1000
"""That MLflow takes in one call."""

LONGEST_NAME = 250
"""Characters of a name that MLflow takes."""

LONGEST_PARAM = 500
"""Characters of a parameter that the page shows; the resolved configuration holds it whole."""


@dataclass(frozen=True)
class TrackedRun:
    """An open MLflow run; it is a `MetricLog`."""

    client: MlflowClient
    run_id: str

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Records finite metrics at `step`; a NaN has no place on a chart and is left out. See `allowed_name`."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        finite = [
            Metric(allowed_name(name), float(value), now, step)
            for name, value in values.items()
            if abs(value) < float("inf")
        ]
        for start in range(0, len(finite), MOST_METRICS):
            self.client.log_batch(self.run_id, metrics=finite[start : start + MOST_METRICS])

    def tags(self, values: Mapping[str, str]) -> None:
        """Sets tags."""
        from mlflow.entities import RunTag

        self.client.log_batch(self.run_id, tags=[RunTag(name, value) for name, value in values.items()])

    def params(self, values: Mapping[str, Any]) -> None:
        """Records parameters, in as many calls as MLflow's limit of 100 asks for."""
        from mlflow.entities import Param

        params = [Param(allowed_name(name), str(value)[:LONGEST_PARAM]) for name, value in values.items()]
        for start in range(0, len(params), 100):
            self.client.log_batch(self.run_id, params=params[start : start + 100])

    def figure(self, figure: Figure, name: str) -> None:
        """Stores a plot as `plots/NAME`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            figure.savefig(path, dpi=120)
            self.client.log_artifact(self.run_id, str(path), "plots")

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Stores a file, or a folder with all in it."""
        if path.is_dir():
            self.client.log_artifacts(self.run_id, str(path), folder)
        else:
            self.client.log_artifact(self.run_id, str(path), folder)

    def text(self, text: str, name: str) -> None:
        """Stores a text as the file `name`."""
        self.client.log_text(self.run_id, text, name)

    def dataset(self, name: str, digest: str, source: Path) -> None:
        """Names the data that went in; runs on equal data show equal digests."""
        from mlflow.entities import Dataset, DatasetInput

        dataset = Dataset(name, digest[:16], "local", json.dumps({"uri": str(source)}))
        self.client.log_inputs(self.run_id, datasets=[DatasetInput(dataset)])


def allowed_name(name: str) -> str:
    """The name of a metric or parameter as MLflow takes it: `_` for what it refuses, a long one cut, with a hash."""
    # what is in the name may be a user's: of a workload, a network, a method
    parts = re.sub(r"[^/\w.\- :]", "_", name).split("/")
    # it has to be a path without empty parts and without `.` or `..`
    mapped = "/".join(part if part.strip(". ") else "_" for part in parts)
    if len(mapped) <= LONGEST_NAME:
        return mapped
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{mapped[: LONGEST_NAME - len(digest) - 1].rstrip('/')}_{digest}"


@contextmanager
def tracked_run(config: DictConfig, name: str, stage: str) -> Iterator[TrackedRun]:
    """Opens a run and closes it as FINISHED, FAILED (any error) or KILLED (Ctrl-C, SIGTERM), with the trace on it.

    Args:
        config: the resolved root configuration, with `tracking` and `paths`.
        name: what the page shows.
        stage: the pipeline's stage, a tag to filter by.
    """
    client, experiment_id = open_experiment(config)
    close_stale_runs(client, experiment_id)
    parent = os.environ.get(PARENT_VARIABLE)
    tags = {
        **provenance_tags(Path(config.paths.root)),
        "kernelcast.stage": stage,
        **({"mlflow.parentRunId": parent} if parent else {}),
    }
    run_id = client.create_run(experiment_id, run_name=name, tags=tags).info.run_id
    run = TrackedRun(client, run_id)
    status = "FAILED"
    try:
        with sigterm_as_interrupt():
            run.text(OmegaConf.to_yaml(config, resolve=True), "config.yaml")
            run.text(json.dumps(environment(), indent=2), "environment.json")
            run.params(flatten(OmegaConf.to_container(config, resolve=True)))
            yield run
        status = "FINISHED"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            status = "KILLED"
        # what goes wrong while the run is told must not hide why it failed
        with suppress(Exception):
            run.tags({"kernelcast.error": f"{type(error).__name__}: {error}"[:LONGEST_PARAM]})
            run.text(traceback.format_exc(), "error.txt")
        raise
    finally:
        client.set_terminated(run_id, status)


def open_experiment(config: DictConfig) -> tuple[MlflowClient, str]:
    """The client and the experiment's id; makes database and experiment on first use.

    Several processes may come at once to a fresh database: one makes it while the others wait, because MLflow's schema
    migrations collide (https://github.com/mlflow/mlflow/issues/24321).

    Raises:
        StorageError: the database cannot be made or opened.
    """
    for chatty in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    runs = Path(config.paths.runs)
    artifacts = Path(config.tracking.artifacts).absolute().as_uri()
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with FileLock(runs / ".mlflow.lock"):
            database = sqlite_file(config.tracking.uri)
            if database is not None and not database.exists():
                _make_database(database, config.tracking.artifacts)
            client = mlflow.MlflowClient(tracking_uri=config.tracking.uri)
            experiment = client.get_experiment_by_name(config.tracking.experiment)
            if experiment is None:
                experiment_id = client.create_experiment(
                    config.tracking.experiment,
                    artifact_location=artifacts,
                    # opens the page made for training runs
                    tags={"mlflow.experimentKind": "custom_model_development"},
                )
            else:
                experiment_id = experiment.experiment_id
                if database is not None:
                    relocate_artifacts(database, experiment.artifact_location, artifacts)
    except (OSError, MlflowException, SQLAlchemyError, CommandError, KernelcastError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StorageError(
            f"cannot open the MLflow tracking store {config.tracking.uri}: {reason}; "
            "check the disk and tracking.uri, or move the file away if it is broken, then run the same command again"
        ) from error
    return client, str(experiment_id)


def sqlite_file(uri: str) -> Path | None:
    """The file behind a tracking address, None where it is none."""
    from sqlalchemy.engine import make_url

    name = make_url(uri).database if uri.startswith("sqlite:") else None
    return Path(name).absolute() if name and name != ":memory:" else None


def _make_database(path: Path, artifacts: str) -> None:
    """Makes MLflow's SQLite database, whole or not at all.

    MLflow runs some hundred statements of migrations, each committed by itself: a process killed among them would leave
    a file that no later command can open or repair.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    remove_leftovers(path)
    with atomic_file(path) as temporary:
        store: Any = SqlAlchemyStore  # its constructor is not typed
        store(f"sqlite:///{temporary}", artifacts).engine.dispose()


def close_stale_runs(client: MlflowClient, experiment_id: str) -> None:
    """Closes as KILLED the runs that still read RUNNING though their process on this machine is gone."""
    from mlflow.exceptions import MlflowException

    running = client.search_runs([experiment_id], "attributes.status = 'RUNNING'", max_results=1000)
    for run in running:
        if process_may_live(run.data.tags.get(PROCESS_TAG, "")):
            continue
        try:
            client.set_terminated(run.info.run_id, "KILLED")
        except MlflowException:
            logger.warning("could not close run %s, left RUNNING by a process that is gone", run.info.run_id)
            continue
        logger.info("closed run %s as KILLED: its process is gone", run.info.run_name)


def provenance_tags(root: Path) -> dict[str, str]:
    """Who ran which code: the git revision, whether files differ from it, the command line, the process."""
    revision, dirty = git_state(root)
    return {
        "mlflow.user": user_name(),
        "mlflow.source.name": Path(sys.argv[0]).name,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": revision,
        "kernelcast.git_dirty": str(dirty).lower(),
        "kernelcast.command": " ".join(sys.argv)[:LONGEST_PARAM],
        PROCESS_TAG: process_identity(),
    }


def environment() -> dict[str, Any]:
    """What somebody who repeats a run needs beside its configuration: the whole command line and all versions."""
    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    return {
        "command": [sys.executable, *sys.argv],
        "python": platform.python_version(),
        "packages": dict(sorted(packages.items(), key=lambda package: str(package[0]).lower())),
    }


def user_name() -> str:
    """Who runs this; a container may run as a number that has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def git_state(root: Path) -> tuple[str, bool]:
    """The checked-out revision and whether tracked files differ from it; `unknown` outside git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", True


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one level with dotted names."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        name: leaf
        for key, child in value.items()
        for name, leaf in flatten(child, f"{prefix}.{key}" if prefix else str(key)).items()
    }


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Makes SIGTERM end the body like Ctrl-C does, so that clean-up runs; only possible in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
