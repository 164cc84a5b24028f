"""Writes `docs/reference/configuration.md`, from conf/ and its schemas: `python -m kernelcast.stages.documentation`."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

from kernelcast.stages.conf_files import ConfFile, ConfKey, GroupChoice
from kernelcast.stages.config import SCHEMAS

PAGE = Path("docs/reference/configuration.md")
CONF = Path("conf")

PACKAGE_OF_GROUP = {"splitter": "split.NAME"}
"""Where the keys of a group go whose files do not say so and whose name is another."""

PLAIN_TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text", list: "list", dict: "mapping"}

INTRODUCTION = """# Every configuration key

`conf/` holds one file a script and one folder a choice (a *group*). On the command line `group=FILE` takes another file
of a group and `key=value` sets any key, by its full name as it stands here:

```bash
python scripts/train.py model=treegru trainer.learning_rate=0.001
```

`+key=value` adds a key to a mapping and `~key` leaves one out. Every script prints its choices and keys with `--help`,
and what it was composed of with `--cfg job`. A key that does not exist, or a value of the wrong type, fails before any
work. This page is made from the files in `conf/` and the schemas in `src/kernelcast/stages/config.py` by
`python -m kernelcast.stages.documentation`.
"""


def configuration_page(conf: Path) -> str:
    """The whole page in Markdown.

    Args:
        conf: the folder with the configuration files.
    """
    roots = {name: ConfFile.read(conf / f"{name}.yaml") for name in SCHEMAS}
    types_by_key = {path: kind for schema in SCHEMAS.values() for path, kind in key_types(schema)}
    sections = [INTRODUCTION, "## Scripts\n"]
    for name, root in roots.items():
        sections += _script(root, conf, dict(key_types(SCHEMAS[name])))
    sections.append("## Groups\n")
    for folder in sorted(path for path in conf.rglob("*") if path.is_dir() and list(path.glob("*.yaml"))):
        group = folder.relative_to(conf).as_posix()
        used = sorted({name for name, root in roots.items() for choice in root.defaults if choice.group == group})
        sections += _group(group, [ConfFile.read(path) for path in _options(folder)], used, types_by_key)
    return "\n".join(sections)


def key_types(schema: type, above: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a schema by its full name, with what its value is, in words; empty where it may be anything."""
    hints = typing.get_type_hints(schema)
    for entry in dataclasses.fields(schema):
        path, kind = f"{above}{entry.name}", hints[entry.name]
        if dataclasses.is_dataclass(kind):
            yield from key_types(typing.cast(type, kind), f"{path}.")
        else:
            yield path, _in_words(kind)


def _in_words(kind: object) -> str:
    if isinstance(kind, types.UnionType):
        parts = [part for part in typing.get_args(kind) if part is not type(None)]
        return f"{' or '.join(map(_in_words, parts))}, or null"
    origin = typing.get_origin(kind)
    if origin is list:
        return f"list of {_in_words(typing.get_args(kind)[0])}s".replace("texts", "text")
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.name}`" for member in kind)
    if dataclasses.is_dataclass(kind):
        return "mapping"
    return PLAIN_TYPES.get(typing.cast(type, origin or kind), "")


def _options(folder: Path) -> list[Path]:
    """The files of a group, `default` first."""
    return sorted(folder.glob("*.yaml"), key=lambda path: (path.stem != "default", path.stem))


def _script(root: ConfFile, conf: Path, kinds: Mapping[str, str]) -> Iterator[str]:
    yield f"### {root.name}\n"
    yield f"{root.about}\n"
    yield "\n".join(["```bash", *(root.examples or (f"python scripts/{root.name}.py",)), "```\n"])
    choices = [choice for choice in root.defaults if choice.group not in (f"schema/{root.name}", "schema")]
    groups = [
        # what every script takes is explained in its file alone
        (_group_link(choice), _code(choice.option or "null"), choice.meaning or _about(conf, choice))
        for choice in choices
    ]
    yield _table(("group", "default", "meaning"), groups)
    keys = [key for key in root.keys if not key.path.startswith("hydra.")]
    if keys:
        yield _keys(keys, "", kinds)


def _about(conf: Path, choice: GroupChoice) -> str:
    return ConfFile.read(conf / choice.group / f"{choice.option}.yaml").about if choice.option else ""


def _group_link(choice: GroupChoice) -> str:
    shown = choice.group if choice.package in (choice.group, "_global_") else f"{choice.group}@{choice.package}"
    return f"[`{shown}`](#{_slug(f'group {choice.group}')})"


def _group(group: str, files: Sequence[ConfFile], used: Sequence[str], kinds: Mapping[str, str]) -> Iterator[str]:
    yield f"### Group {group}\n"
    of = ", ".join(f"[{name}](#{_slug(name)})" for name in used)
    yield f"A file of `conf/{group}`{f', for {of}' if of else ''}.\n"
    for file in files:
        package = file.package or PACKAGE_OF_GROUP.get(group, group.replace("/", "."))
        prefix = "" if package == "_global_" else f"{package}."
        yield f"#### {group}={file.name}\n"
        makes = f" Makes `{file.target}`." if file.target else ""
        yield f"{_sentence(file.about)}{makes}\n"
        taken = [choice for choice in file.defaults if choice.option and choice.group != "_self_"]
        if taken:
            listed = ", ".join(f"`{choice.group}={choice.option}`" for choice in taken)
            yield f"Takes {listed} with it.\n"
        if file.keys:
            yield _keys(file.keys, prefix, kinds)


def _keys(keys: Iterable[ConfKey], prefix: str, kinds: Mapping[str, str]) -> str:
    rows = [
        (_code(prefix + key.path), _code(key.value) if key.value else "", kinds.get(prefix + key.path, ""), key.meaning)
        for key in keys
    ]
    return _table(("key", "default", "type", "meaning"), rows)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns that have nothing in any row."""
    kept = [place for place in range(len(heading)) if any(row[place] for row in rows)]
    lines = [[heading[place] for place in kept], ["---"] * len(kept)]
    lines += [[_cell(row[place]) for place in kept] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    # a bar would end the cell; two stars make what is between them italic
    text = text.replace("|", "\\|")
    return text if text.startswith("`") else text.replace("*", "\\*")


def _code(text: str) -> str:
    return f"`{text}`"


def _sentence(text: str) -> str:
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


def _slug(heading: str) -> str:
    """The anchor that forges and Sphinx give a heading."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(configuration_page(CONF))
