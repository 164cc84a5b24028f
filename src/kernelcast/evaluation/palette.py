"""Colours, markers and texts that the plots of a run share, whatever draws them."""

from __future__ import annotations

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F3C8D", "#333333")
"""Told apart with any colour vision, after Okabe and Ito, Color Universal Design (2008); their yellow is too pale."""

MATPLOTLIB_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
PLOTLY_MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")
"""The same shapes in the same order."""


def style(number: int) -> tuple[str, int]:
    """Colour and marker number of the series `number`; the first 64 series all differ."""
    return COLOURS[number % len(COLOURS)], (number + number // len(COLOURS)) % len(MATPLOTLIB_MARKERS)


def split_title(split: str, known_workloads: bool) -> str:
    """What a split asks of a model, for headings."""
    return f"{split} split: " + (
        "workloads seen in training" if known_workloads else "workloads never seen in training"
    )
