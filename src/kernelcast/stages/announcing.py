"""What a script says of its configuration before it begins: what was chosen and changed first, then all of it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from rich.tree import Tree

logger = logging.getLogger(__name__)

PRINT_VARIABLE = "KERNELCAST_PRINT_CONFIG"
"""Environment variable; `false` or `0`: nothing is printed or logged of the configuration."""

DVC_VARIABLE = "DVC_STAGE"
"""DVC sets it for the commands of its stages."""

ALIKE = ("launch", "paths", "tracking")
"""Groups that every script has; named only where another option was taken."""

NOT_FOR_READERS = ("_convert_", "_partial_")


def announce(config: DictConfig) -> None:
    """Tells what configuration a script runs with.

    One line of choices and changes always; all of it as a tree on a terminal and as YAML in the log file of the run.
    Where the output is no terminal the YAML goes there too, unless many jobs write there: those of DVC or a multirun.

    Args:
        config: the resolved root configuration.
    """
    silenced = os.environ.get(PRINT_VARIABLE, "").lower() in ("false", "0", "no")
    if silenced or not logger.isEnabledFor(logging.INFO):
        return
    launch = HydraConfig.get()
    logger.info("%s", chosen_and_changed(launch.runtime.choices, launch.overrides.task))
    text = f"configuration of this run:\n{OmegaConf.to_yaml(config).rstrip()}"
    one_of_many = launch.mode == RunMode.MULTIRUN or DVC_VARIABLE in os.environ
    if sys.stdout.isatty() and not one_of_many:
        from rich import print as rich_print

        rich_print(configuration_tree(config, launch.job.name, launch.overrides.task))
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None)
    for handler in logging.getLogger().handlers:
        to_file = isinstance(handler, logging.FileHandler)
        if to_file or not (sys.stdout.isatty() or one_of_many):
            handler.handle(record)


def chosen_and_changed(choices: Mapping[str, Any], overrides: list[str]) -> str:
    """The options of all groups and the values that the command line sets, in one line."""
    taken = {
        group: option
        for group, option in choices.items()
        if not group.startswith(("hydra", "schema")) and option is not None
    }
    shown = [f"{group}={option}" for group, option in taken.items() if not (group in ALIKE and option == "default")]
    changed = [each for each in overrides if each.lstrip("+").partition("=")[0] not in choices]
    told = [f"configuration: {' '.join(shown)}" if shown else "configuration: as in conf/"]
    if changed:
        told.append(f"changed: {' '.join(changed)}")
    return "; ".join(told)


def configuration_tree(config: DictConfig, name: str, overrides: list[str]) -> Tree:
    """All of the configuration, a line for what belongs together; values of the command line stand out.

    Args:
        config: the resolved root configuration.
        name: of the script.
        overrides: of the command line.
    """
    from rich.tree import Tree

    changed = {each.lstrip("+~").partition("=")[0] for each in overrides}
    tree = Tree(f"[bold]{name}[/bold]", guide_style="dim")
    values: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    root = str(values.get("paths", {}).get("root", ""))
    _branches(tree, values, "", changed, root)
    return tree


def _branches(tree: Tree, values: Mapping[str, Any], above: str, changed: set[str], root: str) -> None:
    simple = {key: value for key, value in values.items() if not isinstance(value, dict)}
    if line := _line(simple, above, changed, root):
        tree.add(line)
    for key, value in values.items():
        if not isinstance(value, dict):
            continue
        path = f"{above}{key}"
        label = _label(path, key, changed)
        inner = [entry for entry in value.values() if isinstance(entry, dict)]
        if inner:
            _branches(tree.add(label), value, f"{path}.", changed, root)
        else:
            tree.add(f"{label}  {_line(value, f'{path}.', changed, root)}".rstrip())


def _line(values: Mapping[str, Any], above: str, changed: set[str], root: str) -> str:
    from rich.markup import escape

    parts = []
    for key, value in values.items():
        if key in NOT_FOR_READERS:
            continue
        shown = _shown(value)
        if key == "_target_":
            parts.append(f"[dim]{escape(shown.rpartition('.')[2])}[/dim]")
            continue
        # paths are shorter from the root, which is among them
        shown = shown.removeprefix(f"{root}/") if root else shown
        parts.append(f"{_label(f'{above}{key}', key, changed)}=[cyan]{escape(shown)}[/cyan]")
    return "  ".join(parts)


def _label(path: str, key: str, changed: set[str]) -> str:
    return f"[bold yellow]{key}[/bold yellow]" if path in changed else key


def _shown(value: Any) -> str:
    """The value as YAML has it, a list in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
