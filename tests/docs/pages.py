"""The pages of docs/ and the README as tests read them: their commands and their Python blocks."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

FENCE = re.compile(r"^```(?:bash|sh|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]*\bpython scripts/[^`\n]*)`")
COMMENT = re.compile(r"^#\s+(python scripts/.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """One command as a page shows it.

    Attributes:
        place: page and number in it, for the name of a test.
        line: as it stands there, continued lines joined.
        words: as a shell takes it apart.
    """

    place: str
    line: str
    words: tuple[str, ...]


def name_of(path: Path) -> str:
    """A page's path from the checkout."""
    return str(path.relative_to(ROOT))


def commands_of(path: Path) -> list[Command]:
    """The commands in a page's shell blocks and in its text; of a file of conf/, those in its comments."""
    text = path.read_text()
    blocks = "\n".join(FENCE.findall(text)).replace("\\\n", " ")
    lines = [*blocks.splitlines(), *INLINE.findall(BLOCK.sub("", text))]
    if path.suffix == ".yaml":
        lines = COMMENT.findall(text)
    found = []
    for number, line in enumerate(lines):
        words = tuple(shlex.split(line, comments=True))
        # variables that are set for the command alone
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words = words[1:]
        if words:
            found.append(Command(f"{name_of(path)}:{number}", line.strip(), words))
    return found
