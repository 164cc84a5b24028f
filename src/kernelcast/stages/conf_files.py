"""The files of conf/ as their readers see them: what each is for, and every key with its value and its comment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from yaml import MappingNode, Node, compose

PACKAGE = re.compile(r"^#\s*@package\s+(\S+)")
EXAMPLE = re.compile(r"^#\s+(python scripts/.*)$")


@dataclass(frozen=True)
class ConfKey:
    """One key of a file that has a value.

    Attributes:
        path: from the top of the file, with dots.
        value: as the file has it.
        meaning: its comment; empty where it has none.
    """

    path: str
    value: str
    meaning: str


@dataclass(frozen=True)
class GroupChoice:
    """One entry of a file's defaults list.

    Attributes:
        group: the folder of conf/.
        package: where its keys go; the group itself unless the entry says otherwise.
        option: the file that is taken; None for none.
        meaning: its comment.
    """

    group: str
    package: str
    option: str | None
    meaning: str


@dataclass(frozen=True)
class ConfFile:
    """One file of conf/.

    Attributes:
        name: without its ending.
        about: the comment that it opens with.
        examples: the commands in that comment, each with a comment of its own or none.
        package: where its keys go by its own word (`@package`); None where it has none.
        target: the `_target_` at its top; None without.
        defaults: what it takes in.
        keys: those that have a value, in order; `_target_` and the like are left out.
    """

    name: str
    about: str
    examples: tuple[str, ...]
    package: str | None
    target: str | None
    defaults: tuple[GroupChoice, ...]
    keys: tuple[ConfKey, ...]

    @classmethod
    def read(cls, path: Path) -> ConfFile:
        """Reads a file of conf/."""
        text = path.read_text()
        lines = text.splitlines()
        root = compose(text)
        entries = root.value if isinstance(root, MappingNode) else []
        top = {key.value: value for key, value in entries}
        opening = [line for line in lines[: _first_line(entries, lines)] if line.startswith("#")]
        packages = [found[1] for line in opening if (found := PACKAGE.match(line))]
        return cls(
            name=path.stem,
            about=_about(opening),
            examples=tuple(found[1] for line in opening if (found := EXAMPLE.match(line))),
            package=packages[0] if packages else None,
            target=top["_target_"].value if "_target_" in top else None,
            defaults=tuple(_choices(top["defaults"], lines)) if "defaults" in top else (),
            keys=tuple(_keys(entries, lines, len(opening))),
        )


def read_about(path: Path) -> str:
    """The comment that a file of conf/ opens with, without reading its keys."""
    lines = path.read_text().splitlines()
    return _about(list(takewhile(lambda line: line.startswith("#"), lines)))


def _about(opening: Sequence[str]) -> str:
    return _joined(line for line in opening if not PACKAGE.match(line) and not EXAMPLE.match(line))


def _first_line(entries: Sequence[tuple[Node, Node]], lines: Sequence[str]) -> int:
    """Where the opening comment has ended: at the first blank line or key."""
    first = entries[0][0].start_mark.line if entries else len(lines)
    return next((number for number in range(first) if not lines[number].startswith("#")), first)


def _keys(
    entries: Sequence[tuple[Node, Node]], lines: Sequence[str], opening: int, above: str = ""
) -> Iterator[ConfKey]:
    for key, value in entries:
        name = str(key.value)
        path = f"{above}.{name}" if above else name
        if path == "defaults" or name in ("_target_", "_partial_", "_convert_"):
            continue
        meaning = _comment(key, value, lines, opening)
        if isinstance(value, MappingNode) and not value.flow_style and value.value:
            # what is said of the whole stands before its parts
            if meaning:
                yield ConfKey(path, "", meaning)
            yield from _keys(value.value, lines, opening, path)
        else:
            yield ConfKey(path, _source(value, lines), meaning)


def _comment(key: Node, value: Node, lines: Sequence[str], opening: int) -> str:
    """What stands behind the key or the value, or else on the lines right above."""
    nested = isinstance(value, MappingNode) and not value.flow_style
    end = key.end_mark if nested else value.end_mark
    behind = re.search(r"(?:^|\s)#\s*(.*)$", lines[end.line][end.column :]) if end.line < len(lines) else None
    if behind:
        return str(behind[1]).strip()
    first = key.start_mark.line
    while first > opening and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return _joined(lines[first : key.start_mark.line])


def _choices(node: Node, lines: Sequence[str]) -> Iterator[GroupChoice]:
    for entry in node.value:
        if not isinstance(entry, MappingNode):
            continue
        ((key, value),) = entry.value
        group, _, package = str(key.value).removeprefix("override ").strip().partition("@")
        group = group.strip("/")
        option = None if value.value in ("null", "") else str(value.value)
        yield GroupChoice(group, package or group.replace("/", "."), option, _comment(key, value, lines, 0))


def _source(node: Node, lines: Sequence[str]) -> str:
    """The value as it was written."""
    start, end = node.start_mark, node.end_mark
    if start.line == end.line:
        return lines[start.line][start.column : end.column]
    return " ".join(line.strip() for line in "\n".join(lines[start.line : end.line + 1])[start.column :].splitlines())


def _joined(comments: Iterator[str] | Sequence[str]) -> str:
    return " ".join(line.lstrip().lstrip("#").strip() for line in comments)
