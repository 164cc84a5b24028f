"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(one_line(cell) for cell in line) + " |" for line in lines)


def one_line(text: str) -> str:
    """The text on one line, with nothing that ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")
