"""Settings of a model's parts as JSON: the class by its path and its arguments, so that no pickle is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError, MalformedDataError

PACKAGE = "kernelcast.models."
"""Only classes in here are ever loaded by name: a model file cannot make kernelcast run something else."""


def class_path(described: type) -> str:
    """The path by which `resolve_class` finds the class again.

    Raises:
        ConfigError: the class is outside `kernelcast.models`, and so could be saved but not loaded.
    """
    path = f"{described.__module__}.{described.__qualname__}"
    if not path.startswith(PACKAGE):
        raise ConfigError(
            f"{path} is not in {PACKAGE.rstrip('.')}: a saved model could not be loaded; move the class there"
        )
    return path


def resolve_class(path: object) -> Callable[..., Any]:
    """The class of that path.

    Raises:
        MalformedDataError: there is no such class in `kernelcast.models`.
    """
    if not isinstance(path, str) or not path.startswith(PACKAGE):
        raise MalformedDataError(f"a saved model names the class {path!r}, which is not in {PACKAGE.rstrip('.')}")
    module_name, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise MalformedDataError(
            f"a saved model names the class {path}, which this kernelcast does not have; train the model again"
        ) from error
    # a name that a module of ours only imports is not ours
    if not isinstance(found, type) or found.__module__ != module_name:
        raise MalformedDataError(f"a saved model names {path}, which is not a class of kernelcast")
    made: Callable[..., Any] = found
    return made


def describe(part: Any) -> dict[str, Any]:
    """Class and arguments of a settings dataclass."""
    arguments = {field.name: plain(getattr(part, field.name)) for field in fields(part)}
    return {"class": class_path(type(part)), "arguments": arguments}


def describe_factory(factory: Callable[..., Any]) -> dict[str, Any]:
    """Class and arguments so far of a class or of a `functools.partial` of one.

    Raises:
        ConfigError: it is neither.
    """
    arguments: Mapping[str, Any] = factory.keywords if isinstance(factory, partial) else {}
    made = factory.func if isinstance(factory, partial) else factory
    if not isinstance(made, type) or (isinstance(factory, partial) and factory.args):
        raise ConfigError(
            f"{made!r} cannot be saved: name a class under _target_, with _partial_: true and named arguments"
        )
    return {"class": class_path(made), "arguments": {name: plain(value) for name, value in arguments.items()}}


def revive(description: Mapping[str, Any]) -> Any:
    """Makes the settings dataclass that `describe` described.

    Raises:
        MalformedDataError: class and arguments do not fit together.
    """
    try:
        return resolve_class(description["class"])(**_revived(description["arguments"]))
    except (KeyError, TypeError, ConfigError) as error:
        raise MalformedDataError(
            f"a saved model's settings do not fit this kernelcast ({error}); train it again"
        ) from error


def revive_factory(description: Mapping[str, Any]) -> Callable[..., Any]:
    """The factory that `describe_factory` described.

    Raises:
        MalformedDataError: the description has no class of kernelcast, or no arguments.
    """
    try:
        return partial(resolve_class(description["class"]), **description["arguments"])
    except (KeyError, TypeError) as error:
        raise MalformedDataError(f"a saved model's settings lack {error}; train it again") from error


def plain(value: Any) -> Any:
    """Lists and dictionaries of any kind (also Hydra's) as Python's own, settings in them described, for JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return describe(value)
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    return value


def saved_value(settings: Any, name: str, directory: Path) -> Any:
    """One entry of a saved model's settings.

    Raises:
        MalformedDataError: it is not there.
    """
    if not isinstance(settings, Mapping) or name not in settings:
        raise MalformedDataError(
            f"{directory} is not a whole saved model: its settings have no {name}; run `dvc repro train`"
        )
    return settings[name]


def _revived(value: Any) -> Any:
    """What `plain` made plain, with the settings in it made again."""
    if isinstance(value, Mapping):
        if set(value) == {"class", "arguments"}:
            return revive(value)
        return {name: _revived(entry) for name, entry in value.items()}
    return [_revived(entry) for entry in value] if isinstance(value, list) else value
