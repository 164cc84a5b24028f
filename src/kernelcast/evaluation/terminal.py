"""The results on the terminal: one table a split readable with many models, and a sentence on who is best."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kernelcast.evaluation.comparisons import Comparison
from kernelcast.evaluation.palette import split_title
from kernelcast.evaluation.results import ModelResult, Results, Role, SplitResult
from kernelcast.evaluation.summary import METRIC_BY_NAME
from kernelcast.evaluation.table import (
    ABSENT,
    interval,
    metric_text,
    microseconds_text,
    number,
    seconds_text,
    share_text,
    split_caption,
)

MAIN_METRIC = "kendall_tau"
"""Models are ranked by it."""

MOST_DETAILED = 3
"""Models close to the best of which the sentence gives the figures; the files and the page have all."""

SHOWN = {
    "top_1": "top-1",
    "top_5": "top-5",
    "tile_size_ape": "tile APE",
    "mape": "MAPE",
}
"""Further metrics in the terminal and their heads: as many as 120 columns hold; the files have all."""

LEFT_OUT_FIRST = ("predict", "train", "tile APE", "MAPE", "± seeds", "top-5", "ceiling", "top-1")
"""Heads of the columns that a narrow terminal does without, one after the other until the rest is whole."""


def terminal_tables(results: Results, width: int) -> list[Table]:
    """One table a split, best Kendall's tau first, and one of the models that are missing.

    Args:
        results: what was evaluated.
        width: of the terminal, in columns.
    """
    tables = [_fitting_table(result, results.confidence, width) for result in results.splits]
    if results.missing:
        missing = Table(title="not evaluated", title_justify="left")
        for column in ("split", "model", "reason"):
            missing.add_column(column, overflow="fold")
        for entry in results.missing:
            missing.add_row(*map(Text, (entry.split, entry.model, entry.reason)))
        tables.append(missing)
    return tables


def _fitting_table(result: SplitResult, confidence: float, width: int) -> Table:
    endless = Console(width=1000)
    table = _split_table(result, confidence)
    for count in range(1, len(LEFT_OUT_FIRST) + 1):
        if endless.measure(table).maximum <= width:
            break
        table = _split_table(result, confidence, LEFT_OUT_FIRST[:count])
    return table


def _split_table(result: SplitResult, confidence: float, left_out: Sequence[str] = ()) -> Table:
    seeds = any(len(model.seeds) > 1 for model in result.models)
    heads = [f"tau [{confidence:.0%} interval]", *(["± seeds"] if seeds else []), "ceiling", *SHOWN.values()]
    shown = {head: head not in left_out for head in (*heads, "train", "predict")}
    missing = ", ".join(head for head, is_shown in shown.items() if not is_shown)
    told = f" The terminal is too narrow for {missing}; the files have all." if missing else ""
    table = Table(
        title=split_title(result.split, result.known_workloads),
        title_justify="left",
        caption=escape(split_caption(result, confidence) + told),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("model", overflow="fold")
    for head in (head for head, is_shown in shown.items() if is_shown):
        table.add_column(head, justify="right", no_wrap=True)
    for rank, model in ranked(result):
        cells = compress(_cells(model, result, seeds), shown.values())
        style = {Role.LEARNED: "bold", Role.CEILING: "dim"}.get(model.role, "")
        table.add_row(rank, Text(model.model), *cells, style=style)
    return table


def ranked(result: SplitResult) -> list[tuple[str, ModelResult]]:
    """The models of a split with their places; the ceiling has none, nor has a model without an order."""
    places, place = [], 0
    for model in result.models:
        counts = model.role != Role.CEILING and MAIN_METRIC in model.metrics
        place += counts
        places.append((str(place) if counts else "", model))
    return places


def _cells(model: ModelResult, result: SplitResult, seeds: bool) -> list[str]:
    tau = model.metrics.get(MAIN_METRIC)
    cells = [interval(tau) if tau else ABSENT]
    if seeds:
        spread = None if tau is None else tau.seed_deviation
        cells.append(ABSENT if spread is None else number(spread))
    cells.append(share_text(model, result.ceiling, MAIN_METRIC))
    for name in SHOWN:
        estimate = model.metrics.get(name)
        cells.append(ABSENT if estimate is None else metric_text(METRIC_BY_NAME[name], estimate.value))
    return [*cells, seconds_text(model), microseconds_text(model)]


def comparison_sentence(result: SplitResult, confidence: float) -> str:
    """Whether the best model of a split is shown to be better than the others, stated as it is."""
    compared = best_against_others(result)
    if not compared:
        return f"On the {result.split} split there are no two models to compare."
    best, workloads = compared[0].model, compared[0].workloads
    shown = [entry.other for entry in compared if entry.shown(confidence)]
    others = [entry for entry in compared if not entry.shown(confidence)]
    text = f"On the {result.split} split {best} has the highest tau."
    if shown:
        text += f" Shown to be better than {', '.join(shown)}."
    if others:
        closest = ", ".join(
            [
                f"{entry.other} ({entry.difference:+.3f} [{number(entry.low)}, {number(entry.high)}], "
                f"p {p_text(entry.p_holm)})"
                for entry in others[:MOST_DETAILED]
            ]
            + [entry.other for entry in others[MOST_DETAILED:]]
        )
        text += f" Not shown to be better than {closest}."
    text += (
        f" Shown: the {confidence:.0%} interval of the paired difference excludes 0, and p of a randomisation test "
        f"over {workloads} workload{'s' * (workloads != 1)}, corrected for all pairs (Holm), is at most "
        f"{1 - confidence:.2g}."
    )
    if 2 / 2**workloads > 1 - confidence:
        text += " So few workloads allow no such p, however much models differ."
    return text


def best_against_others(result: SplitResult, metric: str = MAIN_METRIC) -> list[Comparison]:
    """The comparisons of the best model of a split in tau with each other one in `metric`, these in their order."""
    compared = [entry for entry in result.comparisons if entry.metric == metric]
    best = next((model.model for _, model in ranked(result) if model.role != Role.CEILING), None)
    return [entry for entry in compared if entry.model == best]


def p_text(p: float) -> str:
    """A p with the digits that it has."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"
