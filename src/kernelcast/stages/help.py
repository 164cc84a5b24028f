"""What `--help` and `--version` print: made of the comments in conf/, without composing anything or loading TVM."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import kernelcast
from kernelcast.errors import ConfigError
from kernelcast.stages.conf_files import ConfFile, GroupChoice, read_about

EXIT_STATUSES = {
    0: "done; of a sweep: it has its trials",
    1: "a key, type or option that there is not, or a fault: of kernelcast itself, or found by the doctor",
    2: "a value that cannot work, found before any work; a flag that there is not",
    3: "an input is missing: an earlier stage has not run",
    4: "a file is not what it should be",
    5: "measuring failed as a whole",
    6: "the disk refused: full, or no permission",
    130: "interrupted by Ctrl-C or SIGTERM",
}
"""Those of every script; `errors.py` says which error has which."""

FLAGS = {
    "--help": "this text; with GROUP=OPTION before it, the keys of that option",
    "--version": "the versions that decide whether things work, and whether they were tested together",
    "--quiet": "says nothing of the configuration at the start; so does KERNELCAST_PRINT_CONFIG=false",
    "--cfg job": "prints the composed configuration and ends; --resolve fills in its ${...}",
    "--info defaults": "prints which files it is composed of, in order, and ends; also: searchpath, plugins, config",
    "-m, --multirun": "runs every combination of values with commas (seed=0,1,2), or a study (hparams_search)",
    "--hydra-help": "Hydra's own flags, completion of the command line in the shell among them",
}

MORE = (
    "docs/reference/command-line.md: overrides, debug runs, shell completion",
    "docs/reference/configuration.md: every key of every file",
    "README.md: what the stages do; python scripts/doctor.py: what is wrong with this machine or installation",
)

NARROWEST, WIDEST = 72, 120
"""Columns of the text; between them the terminal's."""

VALUE_COLUMNS = 44
"""Columns of a key and its value; where they are longer the meaning goes to the next line."""


def help_page(conf: Path, root: str, overrides: Sequence[str], flags: Mapping[str, str]) -> str:
    """The help of one script.

    Args:
        conf: the folder of configuration files.
        root: name of the script and of its configuration.
        overrides: of the command line; `GROUP=OPTION` among them decides which keys are shown.
        flags: those of this script alone, and the overrides that they stand for.

    Raises:
        ConfigError: an override takes an option that there is not.
    """
    file = ConfFile.read(conf / f"{root}.yaml")
    choices = [choice for choice in file.defaults if not choice.group.startswith("schema")]
    taken = {name_of(choice): choice.option for choice in choices} | _chosen(conf, choices, overrides)
    sections = [
        f"python scripts/{root}.py [GROUP=OPTION ...] [KEY=VALUE ...] [FLAG ...]\n\n{_wrapped(file.about)}",
        _section("Examples", _examples(file)),
        _section("Groups: GROUP=OPTION takes another file of conf/GROUP; * is taken", _groups(conf, choices, taken)),
        _section("Keys: KEY=VALUE sets another value than this", _keys(conf, file, choices, taken)),
        _section("Flags", _rows({**{flag: f"the same as {key}" for flag, key in flags.items()}, **FLAGS}.items())),
        _section("Exit status", _rows((str(code), meaning) for code, meaning in EXIT_STATUSES.items())),
        _section("More", (f"  {line}" for line in MORE)),
    ]
    return "\n\n".join(filter(None, sections))


def version_lines() -> list[str]:
    """The versions of kernelcast and of what has to fit together, and a warning where nobody tested the pair."""
    from kernelcast.tvm_compat.loading import TESTED_VERSIONS, tvm_versions

    found = tvm_versions()
    lines = [f"kernelcast {kernelcast.__version__}", *(f"{package} {version}" for package, version in found.items())]
    if found != TESTED_VERSIONS:
        pair = ", ".join(f"{package} {version}" for package, version in TESTED_VERSIONS.items())
        lines.append(f"warning: kernelcast was tested with {pair} alone; other pairs crash: run scripts/setup again")
    return lines


def name_of(choice: GroupChoice) -> str:
    """The group as it is written on the command line."""
    plain = choice.package in (choice.group.replace("/", "."), "_global_")
    return choice.group if plain else f"{choice.group}@{choice.package}"


def options_of(conf: Path, group: str) -> list[str]:
    """The files of a group."""
    return sorted(path.stem for path in (conf / group).glob("*.yaml"))


def one_line(about: str) -> str:
    """The first sentence of a comment, without a command that it may end with."""
    first = re.split(r"(?<=[a-z0-9)])\. (?=[A-Z`])|: python scripts/", about, maxsplit=1)[0]
    return first.rstrip(".")


def _chosen(conf: Path, choices: Sequence[GroupChoice], overrides: Sequence[str]) -> dict[str, str | None]:
    groups = {name_of(choice): choice.group for choice in choices}
    chosen: dict[str, str | None] = {}
    for override in overrides:
        name, _, option = override.lstrip("+").partition("=")
        if name not in groups or not option:
            continue
        known = options_of(conf, groups[name])
        if option not in (*known, "null") and re.fullmatch(r"\w+", option):
            raise ConfigError(f"{name}={option}: there is no such file; use one of {', '.join(known)}")
        # a list or a sweep has no keys of its own
        chosen[name] = option if option in known else None
    return chosen


def _examples(file: ConfFile) -> Iterator[str]:
    for example in file.examples:
        command, _, meaning = example.partition(" # ")
        yield f"  {command}{f'   # {meaning}' if meaning else ''}"


def _groups(conf: Path, choices: Sequence[GroupChoice], taken: Mapping[str, str | None]) -> Iterator[str]:
    for choice in choices:
        name = name_of(choice)
        options = options_of(conf, choice.group)
        meaning = re.sub(r":? ?(?:from )?a file (?:in|of) conf/\w+", "", choice.meaning)
        only_one = options == [choice.option]
        if only_one:
            meaning = meaning or one_line(read_about(conf / choice.group / f"{options[0]}.yaml"))
        chosen = taken[name] or "null"
        yield from _row(f"{name}={chosen}", meaning)
        if not only_one:
            width = max(map(len, options)) + 2
            for option in options:
                about = one_line(read_about(conf / choice.group / f"{option}.yaml"))
                mark = "*" if option == chosen else " "
                yield from _wrapped(about, f"    {mark} {option:{width}}", 6 + width).splitlines()


def _keys(conf: Path, file: ConfFile, choices: Sequence[GroupChoice], taken: Mapping[str, str | None]) -> Iterator[str]:
    own = [key for key in file.keys if not key.path.startswith("hydra.")]
    for key in own:
        yield from _row(_setting(key.path, key.value), key.meaning)
    for choice in choices:
        option = taken[name_of(choice)]
        if option is None:
            continue
        of_option = ConfFile.read(conf / choice.group / f"{option}.yaml")
        package = of_option.package or choice.package
        prefix = "" if package == "_global_" else f"{package}."
        if package == "hydra":
            continue
        if of_option.keys:
            yield f"  of {name_of(choice)}={option}:"
        for key in of_option.keys:
            yield from _row(_setting(prefix + key.path, key.value), key.meaning)


def _setting(key: str, value: str) -> str:
    """A key with its value; of a class within the value the name alone."""
    shown = re.sub(r"_target_: [\w.]*\.(?=\w)", "", value)
    return f"{key}={shown}" if shown else key


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    listed = list(rows)
    width = max(len(name) for name, _ in listed) + 2
    for name, meaning in listed:
        yield from _wrapped(meaning, f"  {name:{width}}", 2 + width).splitlines()


def _row(name: str, meaning: str) -> Iterator[str]:
    if not meaning:
        yield f"  {name}"
    elif len(name) + 2 > VALUE_COLUMNS:
        yield f"  {name}"
        yield from _wrapped(meaning, " " * (VALUE_COLUMNS + 2), VALUE_COLUMNS + 2).splitlines()
    else:
        yield from _wrapped(meaning, f"  {name:{VALUE_COLUMNS}}", VALUE_COLUMNS + 2).splitlines()


def _section(title: str, lines: Iterator[str]) -> str:
    listed = list(lines)
    return "\n".join([title, *listed]) if listed else ""


def _wrapped(text: str, first: str = "", indent: int = 0) -> str:
    columns = min(max(shutil.get_terminal_size((100, 24)).columns, NARROWEST), WIDEST)
    return textwrap.fill(
        text, columns, initial_indent=first, subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
