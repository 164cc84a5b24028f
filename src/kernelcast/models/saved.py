"""Trained models on disk: written whole or not at all, checked when read, free of pickle."""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path, PurePosixPath
from typing import Any, cast

from kernelcast.errors import KernelcastError, MalformedDataError, MissingInputError
from kernelcast.files import atomic_directory, json_hash, read_json, write_json
from kernelcast.models.description import class_path, resolve_class
from kernelcast.models.protocol import CostModel
from kernelcast.models.trained_on import TrainedOn

FORMAT_VERSION = 1
"""Version of the folder; a change that an older kernelcast cannot read raises it."""

MODEL_FILE = "model.json"
LIBRARIES = ("kernelcast", "numpy", "torch", "torch-geometric", "apache-tvm", "lightgbm", "xgboost", "xgboost-cpu")


def save_model(model: CostModel, directory: Path, trained_on: TrainedOn | None = None) -> None:
    """Writes a fitted model to `directory`, replacing what was there only when all of it is written.

    `model.json` has the version of the format, the class, what its predictions mean, the library versions and a
    checksum of every other file; the model writes the others.

    Args:
        model: fitted.
        directory: its folder.
        trained_on: kept with it, so that programs can be shown to it that no stage made graphs of.
    """
    path = class_path(type(model))
    with atomic_directory(directory) as temporary:
        model.save(temporary)
        if trained_on is not None:
            trained_on.write(temporary)
        description = {
            "version": FORMAT_VERSION,
            "class": path,
            "kind": model.kind.value,
            "libraries": _library_versions(),
            "files": {
                file.relative_to(temporary).as_posix(): _checksum(file)
                for file in sorted(temporary.rglob("*"))
                if file.is_file()
            },
        }
        write_json(temporary / MODEL_FILE, description)


def load_model(directory: Path) -> CostModel:
    """Reads a model that `save_model` wrote, in any process, without the configuration.

    Raises:
        MissingInputError: there is no model.
        MalformedDataError: a file is missing or torn, or the model is of another format version.
    """
    description = read_json(directory / MODEL_FILE, "train")
    _require_format(description, directory)
    for name, checksum in _files(description, directory).items():
        file = directory / name
        if not file.is_file():
            raise MissingInputError(f"{file} does not exist: the saved model is not whole; run `dvc repro train`")
        if _checksum(file) != checksum:
            raise MalformedDataError(f"{file} is not what was saved (torn or edited); run `dvc repro train`")
    loader: Any = resolve_class(description.get("class"))
    if not callable(getattr(loader, "load", None)):
        raise MalformedDataError(f"{directory / MODEL_FILE} names {description.get('class')}, which is no cost model")
    try:
        return cast(CostModel, loader.load(directory))
    except KernelcastError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedDataError(f"{directory} cannot be read as a model ({error}); run `dvc repro train`") from error


def saved_identity(directory: Path) -> str:
    """A hash of what `save_model` wrote: of the model itself, not of the libraries that were there.

    Raises:
        MissingInputError: there is no model.
        MalformedDataError: as of `load_model`.
    """
    description = read_json(directory / MODEL_FILE, "train")
    _require_format(description, directory)
    return json_hash([description.get("class"), description.get("kind"), _files(description, directory)])


def _require_format(description: Any, directory: Path) -> None:
    if not isinstance(description, dict) or description.get("version") != FORMAT_VERSION:
        found = description.get("version") if isinstance(description, dict) else None
        raise MalformedDataError(
            f"{directory / MODEL_FILE} has version {found}, this kernelcast reads {FORMAT_VERSION}; "
            "run `dvc repro train`"
        )


def _files(description: dict[str, Any], directory: Path) -> dict[str, str]:
    files = description.get("files")
    # a model of several has a folder for each
    inside = isinstance(files, dict) and all(
        not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts for name in files
    )
    if not inside:
        raise MalformedDataError(f"{directory / MODEL_FILE} does not list the model's files; run `dvc repro train`")
    return cast(dict[str, str], files)


def _checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _library_versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
