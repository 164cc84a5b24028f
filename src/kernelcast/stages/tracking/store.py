"""Where runs are recorded: a SQLite file that is made on first use, or an MLflow server that may be away."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from filelock import FileLock
from omegaconf import DictConfig

from kernelcast.errors import ConfigError, KernelcastError, StorageError
from kernelcast.files import atomic_file, remove_leftovers
from kernelcast.stages.relocation import relocate_artifacts

if TYPE_CHECKING:
    from mlflow import MlflowClient

PATIENCE = {
    # seconds of one request; MLflow's own 120 s with 7 ever longer pauses would hold a training for half an hour
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""How long a server is waited for; whatever is set in the environment counts instead."""

PROBE_SECONDS = 3.0
"""In which a server has to say that it is there."""

PASSING = frozenset(
    {
        "INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "IO_ERROR", "SERVICE_UNDER_MAINTENANCE", "DEADLINE_EXCEEDED",
        "WORKSPACE_TEMPORARILY_UNAVAILABLE", "CANCELLED", "RESOURCE_EXHAUSTED", "ABORTED", "REQUEST_LIMIT_EXCEEDED",
        "UNPARSEABLE_HTTP_ERROR", "COULD_NOT_ACQUIRE_LOCK",
    }
)  # fmt: skip
"""Codes of errors that are not the fault of the call."""


class StoreAwayError(StorageError):
    """The tracking server does not answer now."""


def make_client(uri: str) -> MlflowClient:
    """MLflow's client for a store, which is not asked for anything yet.

    Raises:
        ConfigError: MLflow takes no such address.
    """
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    _quieten()
    ways = "use a database, `tracking.uri=sqlite:///FILE`, or a server, `tracking.uri=http://HOST:PORT`"
    if urlsplit(uri).scheme in ("", "file") and not is_server(uri):
        raise ConfigError(f"tracking.uri={uri}: MLflow keeps no runs in a folder any more; {ways}")
    import mlflow
    from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException

    try:
        return mlflow.MlflowClient(tracking_uri=uri)
    except UnsupportedModelRegistryStoreURIException as error:
        raise ConfigError(f"tracking.uri={uri}: MLflow knows no such address; {ways}") from error
    except ImportError as error:
        raise ConfigError(
            f"tracking.uri={uri}: {error}; install the driver of this database with pip, or {ways}"
        ) from error


def _quieten() -> None:
    """Silences libraries that say every step and try again, and every error that is told here in other words."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    for chatty in ("mlflow.store.db.utils", "urllib3.connectionpool"):
        logging.getLogger(chatty).setLevel(logging.CRITICAL)


def open_experiment(config: DictConfig) -> tuple[MlflowClient, str]:
    """The client and the experiment's id; makes database and experiment on first use.

    Several processes may come at once to a fresh database: one makes it while the others wait, because MLflow's schema
    migrations collide (https://github.com/mlflow/mlflow/issues/24321).

    Raises:
        ConfigError: MLflow takes no such address.
        StoreAwayError: the server does not answer.
        StorageError: the database cannot be made or opened, the server refuses.
    """
    uri, runs = config.tracking.uri, Path(config.paths.runs)
    if sqlite_file(uri) is None:
        # an address that cannot be is told before anything is waited for
        make_client(uri)
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if not answers(uri):
        raise StoreAwayError(f"the MLflow server {uri} does not answer")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with FileLock(runs / ".mlflow.lock"):
            database = sqlite_file(uri)
            if database is not None and not database.exists():
                _make_database(database, config.tracking.artifacts)
            client = make_client(uri)
            return client, _experiment(client, config, database)
    except ConfigError:
        raise
    except (OSError, MlflowException, SQLAlchemyError, CommandError, KernelcastError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if is_server(uri):
            if is_passing(error):
                raise StoreAwayError(f"the MLflow server {uri} does not answer: {reason}") from error
            raise StorageError(
                f"the MLflow server {uri} refuses: {reason}; check tracking.uri, and the user and password or token "
                "that MLflow takes from the environment"
            ) from error
        raise StorageError(
            f"cannot open the MLflow tracking store {uri}: {reason}; "
            "check the disk and tracking.uri, or move the file away if it is broken, then run the same command again"
        ) from error


def _experiment(client: MlflowClient, config: DictConfig, database: Path | None) -> str:
    """The id of the experiment, which is made where it is not there."""
    name = config.tracking.experiment
    artifacts = Path(config.tracking.artifacts).absolute().as_uri()
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        from mlflow.exceptions import MlflowException

        try:
            return client.create_experiment(
                name,
                # a server keeps the artifacts itself
                artifact_location=None if is_server(config.tracking.uri) else artifacts,
                # opens the page made for training runs
                tags={"mlflow.experimentKind": "custom_model_development"},
            )
        except MlflowException:
            # of a process on another machine, a moment ago
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        raise KernelcastError(
            f"the experiment {name} was deleted there; restore it (`mlflow experiments restore`) or set "
            "tracking.experiment=NAME"
        )
    if database is not None:
        relocate_artifacts(database, experiment.artifact_location, artifacts)
    return str(experiment.experiment_id)


def is_server(uri: str) -> bool:
    """Whether the store is behind a network, and not a database that MLflow opens by itself."""
    return urlsplit(uri).scheme in ("http", "https", "databricks") or uri == "databricks"


def answers(uri: str) -> bool:
    """Whether somebody is at a server's address, found out in seconds; a database is always there."""
    if urlsplit(uri).scheme not in ("http", "https"):
        return True
    import requests

    try:
        return requests.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS).status_code < 500
    except requests.RequestException:
        return False


def is_passing(error: BaseException) -> bool:
    """Whether a call failed because the store is away, or busy, and not because of what was asked."""
    import requests
    from mlflow.exceptions import InvalidUrlException, MlflowException

    if isinstance(error, InvalidUrlException):
        return False
    if isinstance(error, MlflowException):
        return error.error_code in PASSING
    if isinstance(error, requests.HTTPError) and error.response is not None:
        # of an artifact: too many requests pass, forbidden ones do not
        return error.response.status_code >= 500 or error.response.status_code in (408, 429)
    return isinstance(error, requests.RequestException)


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
    _quieten()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    remove_leftovers(path)
    with atomic_file(path) as temporary:
        store: Any = SqlAlchemyStore  # its constructor is not typed
        store(f"sqlite:///{temporary}", artifacts).engine.dispose()
