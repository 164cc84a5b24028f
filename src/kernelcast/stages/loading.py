"""Trained models by what a user calls them: a champion, a registered version, a run, a folder."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kernelcast.errors import ConfigError, MissingInputError, StorageError
from kernelcast.models.saved import MODEL_FILE
from kernelcast.stages.registry import CHAMPION, MODEL_ARTIFACT, NAME
from kernelcast.tuning.trained import MODEL_FOLDER, TrainedModel

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

    from kernelcast.prediction import Predictor

logger = logging.getLogger(__name__)

REGISTERED = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))?")
RUN = re.compile(r"(?:runs:/)?(?P<run>[0-9a-f]{32})(?:/model)?")
PART_OF_RUN = re.compile(r"(?:runs:/)?[0-9a-f]{4,31}")
PACKED_MODEL = f"artifacts/{MODEL_ARTIFACT}"
"""Where `registry.pack` puts the model within a registered one."""

REGISTER = (
    "register one by `python scripts/evaluate.py` and `python scripts/register.py`, or name the folder of a model"
)


def load_predictor(
    model: str | Path,
    tracking_uri: str | None = None,
    any_target: bool = False,
    root: Path | None = None,
) -> Predictor:
    """The model that a user means; see `kernelcast.load`.

    Args:
        model: `champion`, `models:/NAME@ALIAS`, `models:/NAME/VERSION`, the id of a run, or a folder.
        tracking_uri: of MLflow; see `kernelcast.load`.
        any_target: whether it may predict programs for targets that it was not trained for.
        root: of the checkout: where a folder may begin too, and models are listed from where there is none.

    Raises:
        ConfigError: it is none of these.
        MissingInputError: there is no such model.
        MalformedDataError: it is torn, or of another version of kernelcast.
        StorageError: MLflow's database or server cannot be read.
    """
    from kernelcast.prediction import Predictor
    from kernelcast.stages.config_nodes import project_root

    text = str(model).strip()
    checkout = Path(project_root()) if root is None else root
    run = RUN.fullmatch(text)
    if text == CHAMPION or text.startswith("models:") or run:
        client = _client(tracking_uri or _told_uri() or f"sqlite:///{checkout}/runs/mlflow.db")
        with _reading(client.tracking_uri):
            source, address, inside = _of_run(client, run["run"]) if run else _registered(client, text)
        with _local(client, address) as folder:
            return Predictor(TrainedModel.load(folder / inside, any_target), source)
    folder = _model_folder(text, checkout)
    logger.info("the model in %s", folder)
    return Predictor(TrainedModel.load(folder, any_target), str(folder))


def _model_folder(text: str, checkout: Path) -> Path:
    if not text:
        raise ConfigError("model is empty; name one: champion, models:/NAME@ALIAS, the id of a run, or a folder")
    for folder in dict.fromkeys((Path(text).expanduser(), checkout / text)):
        for inside in ("", MODEL_FOLDER, PACKED_MODEL):
            if (folder / inside / MODEL_FILE).is_file():
                return folder / inside
        if folder.is_dir():
            below = sorted(path.parent.parent for path in folder.glob(f"*/{MODEL_FOLDER}/{MODEL_FILE}"))
            if below:
                raise ConfigError(
                    f"model={text}: several models are in this folder: {_listed(below)}; name one of them"
                )
            raise MissingInputError(f"model={text}: the folder holds no trained model (it has no {MODEL_FILE})")
    trained = sorted(
        path.parent.parent.relative_to(checkout)
        for path in checkout.glob(f"data/models/*/*/{MODEL_FOLDER}/{MODEL_FILE}")
    )
    there = f"trained are {_listed(trained)}" if trained else "train one by `python scripts/train.py output=FOLDER`"
    if PART_OF_RUN.fullmatch(text):
        there = f"the id of a run has all its 32 digits; {there}"
    raise MissingInputError(
        f"model={text} is no folder, no id of a run and no registered model (champion, models:/NAME@ALIAS); {there}"
    )


def _listed(paths: Sequence[Path], most: int = 8) -> str:
    named = ", ".join(map(str, paths[:most]))
    return named if len(paths) <= most else f"{named} and {len(paths) - most} others"


def _told_uri() -> str | None:
    """What the user told MLflow."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    is_set: Any = mlflow.is_tracking_uri_set  # not typed
    return str(mlflow.get_tracking_uri()) if is_set() else None


def _client(uri: str) -> MlflowClient:
    """A client of a database or server that is there: MLflow would make an empty database, in seconds.

    Raises:
        MissingInputError: there is none.
    """
    from kernelcast.stages.tracking.address import answers, sqlite_file
    from kernelcast.stages.tracking.store import StoreAwayError, make_client

    file = sqlite_file(uri)
    if file is not None and not file.is_file():
        raise MissingInputError(f"there is no {file}, so no run and no registered model; train one, then {REGISTER}")
    # a torn database is found here
    with _reading(uri):
        client = make_client(uri)
    if not answers(uri):
        raise StoreAwayError(f"the MLflow server {uri} does not answer; a model in a folder needs none: model=FOLDER")
    return client


@contextmanager
def _reading(uri: str) -> Iterator[None]:
    """Has whatever the store throws say which store it is.

    Raises:
        StorageError: it cannot be read.
    """
    from kernelcast.stages.tracking.store import quieten

    quieten()
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OSError, MlflowException, SQLAlchemyError, CommandError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StorageError(f"cannot read MLflow's store {uri}: {reason}; or set model=FOLDER") from error


def _is_absent(error: Exception) -> bool:
    """Whether MLflow says that there is no such thing, and not that it cannot tell."""
    return getattr(error, "error_code", "") in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def _of_run(client: MlflowClient, run_id: str) -> tuple[str, str, str]:
    """What a run is called, where its artifacts are, and the model among them."""
    from mlflow.exceptions import MlflowException

    try:
        info = client.get_run(run_id).info
        artifacts = {artifact.path for artifact in client.list_artifacts(run_id)}
    except MlflowException as error:
        if not _is_absent(error):
            raise
        raise MissingInputError(f"model={run_id}: MLflow at {client.tracking_uri} has no such run") from error
    for artifact, inside in ((MODEL_FOLDER, ""), ("registered", PACKED_MODEL)):
        if artifact in artifacts:
            return f"run {info.run_name} ({run_id})", f"{info.artifact_uri}/{artifact}", inside
    raise MissingInputError(
        f"model={run_id}: the run {info.run_name} kept no model (it is {info.status.lower()}); name that of a finished "
        "training"
    )


def _registered(client: MlflowClient, text: str) -> tuple[str, str, str]:
    """What a registered version is called, where it is, and the model in it."""
    from mlflow.exceptions import MlflowException

    if text == CHAMPION:
        version = _champion(client)
    else:
        wanted = REGISTERED.fullmatch(text)
        if not wanted:
            raise ConfigError(f"model={text}: write models:/NAME@ALIAS or models:/NAME/VERSION")
        name = wanted["name"]
        try:
            version = (
                client.get_model_version(name, wanted["version"])
                if wanted["version"]
                else client.get_model_version_by_alias(name, wanted["alias"] or CHAMPION)
            )
        except MlflowException as error:
            if not _is_absent(error):
                raise
            raise MissingInputError(f"model={text}: there is no such version; {_known(client)}") from error
    tags = version.tags
    source = f"models:/{version.name}/{version.version}"
    if {"model", "metric", "value", "split"} <= set(tags):
        # as `register` notes them
        value = float(tags["value"])
        source += f" ({tags['model']}, {tags['metric']} {value:.3f} on the split {tags['split']})"
    logger.info("the model %s", source)
    return source, str(version.source), PACKED_MODEL


def _champion(client: MlflowClient) -> ModelVersion:
    """The champion of the name that is registered by default, else the newest one."""
    named = [model for model in client.search_registered_models(max_results=1000) if CHAMPION in model.aliases]
    if not named:
        raise MissingInputError(f"model={CHAMPION}: no model is registered at {client.tracking_uri}; {REGISTER}")
    champions = [client.get_model_version_by_alias(model.name, CHAMPION) for model in named]
    default = [version for version in champions if version.name == NAME]
    chosen = default[0] if default else max(champions, key=lambda version: int(version.creation_timestamp))
    if len(champions) > 1:
        others = ", ".join(f"models:/{one.name}@{CHAMPION}" for one in champions if one is not chosen)
        logger.info("of several champions that of %s is taken; others: %s", chosen.name, others)
    return chosen


def _known(client: MlflowClient) -> str:
    found = [
        f"models:/{model.name}@{alias}"
        for model in client.search_registered_models(max_results=1000)
        for alias in sorted(model.aliases)
    ]
    return f"there are {', '.join(found)}" if found else REGISTER


@contextmanager
def _local(client: Any, address: str) -> Iterator[Path]:
    """A folder of artifacts on this machine, fetched where it is elsewhere."""
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        folder = Path(unquote(parts.path))
        if not folder.is_dir():
            raise MissingInputError(f"{folder} is gone: MLflow knows of a model there; train or register it again")
        yield folder
        return
    import mlflow

    with tempfile.TemporaryDirectory(prefix="kernelcast-") as temporary:
        fetched = mlflow.artifacts.download_artifacts(
            artifact_uri=address, dst_path=temporary, tracking_uri=client.tracking_uri
        )
        yield Path(fetched)
