"""What is wrong with a command line that Hydra refuses, in one line with what was meant and the next step."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from kernelcast.errors import KernelcastError, near_name
from kernelcast.stages.conf_files import ConfFile
from kernelcast.stages.config import SCHEMAS

NOT_FOR_READERS = ("To append", "full_key", "object_type", "provider=", "Config search", "See https://hydra.cc")
"""How lines of Hydra's and OmegaConf's messages begin that say nothing to who typed the command."""


def configuration_message(error: Exception) -> str:
    """What is wrong with the configuration, where, what was meant, and what to do."""
    script = Path(sys.argv[0])
    # the first error is the cause: Hydra wraps OmegaConf's
    first = error
    while isinstance(first.__cause__, HydraException | OmegaConfBaseException):
        first = first.__cause__
    meant = _meant(error, first, script)
    hint = f"did you mean {meant}? " if meant else ""
    return f"configuration of {script}: {_told(error, first)}; {hint}`python {script} --help` lists the groups and keys"


def group_message() -> str:
    """That of `workload=null`, where Hydra's own error names neither the argument nor a way out."""
    script = Path(sys.argv[0])
    nulls = ", ".join(argument for argument in sys.argv[1:] if argument.lower().endswith("=null"))
    return f"configuration of {script}: {nulls}: a group needs one of its files; see `python {script} --help`"


def check_keys(config: DictConfig, root: str) -> None:
    """Refuses what `+key=value` adds where every key is known: it would be read by nothing.

    Raises:
        KernelcastError: there is no such key.
    """
    schema = SCHEMAS.get(root)
    for key in _added(config, schema, "") if schema else ():
        raise KernelcastError(
            f"+{key}: there is no such key, so nothing would read it; `python scripts/{root}.py --help` lists those "
            "that there are"
        )


def known_keys(root: str) -> Iterator[str]:
    """Names at the top of the configuration that `root` composes."""
    yield from getattr(SCHEMAS.get(root), "__dataclass_fields__", ())


def written_keys(conf: Path, root: str) -> list[str]:
    """Every key and group as it is written on the command line of the script `root`."""
    names = set(known_keys(root))
    names |= {name.removesuffix("_name") for name in names if name.removesuffix("_name") not in names}
    if not (conf / f"{root}.yaml").is_file():
        return sorted(names)
    file = ConfFile.read(conf / f"{root}.yaml")
    names |= {key.path for key in file.keys}
    for choice in file.defaults:
        names.add(choice.group)
        for path in (conf / choice.group).glob("*.yaml"):
            option = ConfFile.read(path)
            package = option.package or choice.package
            prefix = "" if package == "_global_" else f"{package}."
            names |= {prefix + key.path for key in option.keys}
    return sorted(name for name in names if not name.startswith(("hydra", "schema", "_self_")))


def nearest(typed: str, known: Iterable[str]) -> str:
    """What was probably meant: the same name elsewhere, or one like it; empty where there is none."""
    names = list(known)
    elsewhere = [name for name in names if name.split(".")[-1] == typed]
    if len(elsewhere) == 1 and typed not in names:
        return elsewhere[0]
    close = near_name(typed, names)
    return close if close != typed else ""


def _told(error: Exception, first: Exception) -> str:
    """What Hydra says of it, in one line."""
    if isinstance(first, OverrideParseException) and "missing EQUAL" in str(first):
        return f"{first.override}: a value is missing; write {first.override}=VALUE"
    nameless = [argument for argument in sys.argv[1:] if argument.startswith("=")]
    if nameless:
        return f"{nameless[0]}: there is no name before the ="
    if isinstance(first, OverrideParseException) and "=" in first.override:
        key, _, value = first.override.partition("=")
        return (
            f"{first.override}: this cannot be read; a value with letters that are not English, or with =, quotes, "
            f"brackets, braces, colons or commas of its own, is quoted twice: '{key}=\"{value.strip()}\"'"
        )
    lines = [line.strip() for text in (error, first) for line in str(text).splitlines()]
    kept = [line for line in dict.fromkeys(lines) if line and not line.startswith(NOT_FOR_READERS)]
    return "; ".join(line.rstrip(".:") for line in kept)


def _meant(error: Exception, first: Exception, script: Path) -> str:
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.rpartition("/")
        close = nearest(option, error.options)
        return f"{group}={close}" if close else ""
    if not isinstance(first, ConfigKeyError | ConfigAttributeError):
        return ""
    # the whole name stands in Hydra's message alone
    found = re.search(r"Could not override '([^']+)'", str(error))
    key = found[1] if found else str(first.full_key or "")
    return nearest(key, written_keys(script.resolve().parents[1] / "conf", script.stem)) if key else ""


def _added(config: DictConfig, schema: Any, above: str) -> Iterator[str]:
    kinds = {entry.name: OmegaConf.get_type(config, entry.name) for entry in dataclasses.fields(schema)}
    for key in config:
        name = str(key)
        if name not in kinds:
            yield above + name
            continue
        node, kind = config._get_node(name), kinds[name]  # a value that is missing has no type to look into
        if isinstance(node, DictConfig) and dataclasses.is_dataclass(kind):
            yield from _added(node, kind, f"{above}{name}.")
