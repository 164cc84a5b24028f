"""No page names a script, a key or a choice that does not exist: every command is composed as Hydra would."""

import atexit
import itertools
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from kernelcast.stages.config import SCHEMAS, register_schemas
from kernelcast.stages.entry import with_own_key
from tests.docs.pages import PAGES, ROOT, Command, commands_of, name_of

CONF = ROOT / "conf"
FILES = [*PAGES, *sorted(CONF.rglob("*.yaml"))]
COMMANDS = [command for page in FILES for command in commands_of(page)]
STAGES = [
    command
    for command in COMMANDS
    if len(command.words) > 1 and command.words[0] == "python" and command.words[1].startswith("scripts/")
]
OTHERS = [command for command in COMMANDS if command not in STAGES]

WITH_A_VALUE = ("--cfg", "-c", "--package", "-p", "--config-name", "--config-path", "--config-dir")
"""Hydra's flags that take the next word."""

PROGRAMS = re.compile(
    r"\.|cd|cp|dvc|eval|git|grep|lint-imports|ls|mlflow|mypy|optuna-dashboard|pip|python|ray|ruff|source|ssh|sudo|uv"
)
"""What a page may call beside the scripts."""


def overrides_of(command: Command) -> list[str]:
    """The words of a command that Hydra takes as overrides, as the script hands them on."""
    words = iter(command.words[2:])
    found = []
    for word in words:
        if word in WITH_A_VALUE:
            next(words)
        elif not word.startswith("-"):
            found.append(word)
    return found


@cache
def conf_with_examples() -> Path:
    """conf/ with the files that a reader copies into it."""
    folder = Path(tempfile.mkdtemp()) / "conf"
    shutil.copytree(CONF, folder)
    for example in (ROOT / "docs/examples").glob("*.yaml"):
        shutil.copy(example, folder / "model")
    atexit.register(shutil.rmtree, folder.parent)
    return folder


@cache
def accepted(root: str, overrides: tuple[str, ...]) -> None:
    """Composes a configuration; the error that Hydra raises is the user's."""
    register_schemas()
    with initialize_config_dir(str(conf_with_examples()), version_base="1.3"):
        config = compose(root, overrides=list(overrides), return_hydra_config=True)
    OmegaConf.to_container(config, resolve=False)


def each(overrides: list[str]) -> list[tuple[str, ...]]:
    """The sets of overrides that a command composes: one, or, for a sweep, one for each value of each swept key."""
    register_schemas()
    with initialize_config_dir(str(conf_with_examples()), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        parser = OverridesParser.create(config_loader=hydra.config_loader)
        parsed = parser.parse_overrides(overrides)
        values = [values_of(override, hydra.config_loader) for override in parsed]
    longest = max(map(len, values), default=1)
    # every value once, not every combination
    return [tuple(each[min(row, len(each) - 1)] for each in values) for row in range(longest)]


def values_of(override: Override, loader: ConfigLoaderImpl) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.input_line)]
    key = override.get_key_element()
    return [f"{key}={value}" for value in itertools.islice(override.sweep_string_iterator(), 100)]


@pytest.mark.parametrize("command", STAGES, ids=lambda command: command.place)
def test_every_key_and_choice_of_a_command_exists(command: Command) -> None:
    script = ROOT / command.words[1]
    assert script.is_file(), f"{command.line}: there is no {command.words[1]}"
    if script.stem not in SCHEMAS:
        return
    for overrides in each([with_own_key(word, script.stem) for word in overrides_of(command)]):
        accepted(script.stem, overrides)


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: command.place)
def test_every_other_command_is_of_a_program_that_there_is(command: Command) -> None:
    program = command.words[0]
    if program.startswith((".", "scripts/")):
        assert (ROOT / program).is_file(), command.line
    else:
        assert PROGRAMS.fullmatch(program), command.line


PATH = re.compile(r"`((?:src|conf|scripts|docs|tests)/[\w./-]+|data/datasets/[\w./-]+|\.ci/run|dvc\.yaml)`")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    for named in PATH.findall(page.read_text()):
        # what a reader makes by copying an example
        if re.search(r"[A-Z]{2,}|own_(model|layers)\.(py|yaml)$", named) and not named.startswith("docs/examples"):
            continue
        found = ROOT / named.rstrip("/.")
        assert found.exists() or found.with_suffix(".py").exists(), f"{name_of(page)} names {named}"
