"""Where runs are recorded: a SQLite file that is made on first use, or an MLflow server that may be away."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from omegaconf import DictConfig

from kernelcast.errors import ConfigError, KernelcastError, StorageError
from kernelcast.files import atomic_file, remove_leftovers
from kernelcast.stages.relocation import relocate_artifacts
from kernelcast.stages.tracking.address import WAYS, answers, check_address, is_server, shown_address, sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient

PATIENCE = {
    # seconds of one request; MLflow's own 120 s with 7 ever longer pauses would hold a training for half an hour
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""How long a server is waited for; whatever is set in the environment counts instead."""

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
    quieten()
    check_address(uri)
    import mlflow
    from mlflow.exceptions import MlflowException
    from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException
    from sqlalchemy.exc import NoSuchModuleError

    shown = shown_address(uri)
    try:
        return mlflow.MlflowClient(tracking_uri=uri)
    except (UnsupportedModelRegistryStoreURIException, NoSuchModuleError) as error:
        raise ConfigError(f"tracking.uri={shown}: MLflow knows no such address; {WAYS}") from error
    except MlflowException as error:
        if "://" in uri:
            raise
        # of a kind that MLflow has for models alone
        raise ConfigError(f"tracking.uri={shown}: MLflow keeps no runs there; {WAYS}") from error
    except ImportError as error:
        raise ConfigError(
            f"tracking.uri={shown}: {error}; install the driver of this database with pip, or {WAYS}"
        ) from error


def quieten() -> None:
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
    shown = shown_address(uri)
    # an address that cannot be is told before anything is waited for
    check_address(uri)
    if is_server(uri):
        make_client(uri)
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if not answers(uri):
        if is_server(uri):
            raise StoreAwayError(f"the MLflow server {shown} does not answer")
        raise StorageError(f"no database server answers at {shown}; start it or check tracking.uri")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with FileLock(runs / ".mlflow.lock"):
            database = sqlite_file(uri)
            if database is not None:
                if not database.exists() or (database.is_file() and not database.stat().st_size):
                    _make_database(database, config.tracking.artifacts)
                else:
                    _require_writable(database)
            client = make_client(uri)
            return client, _experiment(client, config, database)
    except KernelcastError:
        raise
    except (OSError, MlflowException, SQLAlchemyError, CommandError, sqlite3.Error) as error:
        raise _explained(error, uri) from error


def _explained(error: Exception, uri: str) -> StorageError:
    """Why a store cannot be opened, and what to do."""
    shown, reason = shown_address(uri), (str(error).splitlines() or [type(error).__name__])[0]
    if is_server(uri) and is_passing(error):
        return StoreAwayError(f"the MLflow server {shown} does not answer: {reason}")
    if is_server(uri):
        return StorageError(
            f"the MLflow server {shown} refuses: {reason}; check tracking.uri, and the user and password or token that "
            "MLflow takes from the environment"
        )
    if versions := re.search(r"found version (\w+), but expected (\w+)", reason):
        return StorageError(
            f"the MLflow tracking store {shown} is of another MLflow: its schema is {versions[1]}, this MLflow's is "
            f"{versions[2]}; of an older one, copy it and run `mlflow db upgrade {shown}`; of a newer one, install that"
        )
    return StorageError(
        f"cannot open the MLflow tracking store {shown}: {reason}; check the disk and tracking.uri, or move the file "
        "away if it is broken, then run the same command again"
    )


def _require_writable(database: Path) -> None:
    """Finds out at once what MLflow would try again and again for a minute and a half.

    Raises:
        sqlite3.Error: the file cannot be opened, read or written; not that another program holds it for now.
    """
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise


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
        raise StorageError(
            f"the experiment {name} of {shown_address(config.tracking.uri)} was deleted; restore it "
            "(`mlflow experiments restore`) or set tracking.experiment=NAME"
        )
    if database is not None:
        relocate_artifacts(database, experiment.experiment_id, experiment.artifact_location, artifacts)
    return str(experiment.experiment_id)


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


def _make_database(path: Path, artifacts: str) -> None:
    """Makes MLflow's SQLite database, whole or not at all.

    MLflow runs some hundred statements of migrations, each committed by itself: a process killed among them would leave
    a file that no later command can open or repair.
    """
    quieten()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    remove_leftovers(path)
    with atomic_file(path) as temporary:
        store: Any = SqlAlchemyStore  # its constructor is not typed
        store(f"sqlite:///{temporary}", artifacts).engine.dispose()
