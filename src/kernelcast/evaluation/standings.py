"""The leaderboard of a split and its comparisons as cells of the report's tables."""

from __future__ import annotations

from dataclasses import dataclass

from kernelcast.evaluation.aggregation import Aggregation
from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.palette import split_title
from kernelcast.evaluation.results import SplitResult
from kernelcast.evaluation.summary import METRIC_BY_NAME, METRICS
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
from kernelcast.evaluation.terminal import MAIN_METRIC, best_against_others, comparison_sentence, p_text, ranked

COMPARED = ("kendall_tau", "top_1", "top_5")
"""Metrics in which the page compares the best model with the others; `comparisons.csv` has all."""

COUNTED = ("kendall_tau", "top_1", "top_5", "tile_size_ape", "mape")
"""Metrics that the page shows for every way to count workloads; `leaderboard.csv` has all."""


SHOWN_FIRST = ("pairwise_accuracy", "top_1", "top_5", "median_ape")
"""Metrics beside Kendall's tau that the first table of a split has; the rest are in a second one."""


@dataclass(frozen=True)
class Board:
    """One table of the page.

    Attributes:
        title: above it.
        caption: below it.
        headings: of its columns.
        rows: role of the row, for its look, and cells; the first is the heading of the row.
    """

    title: str
    caption: str
    headings: list[str]
    rows: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class SplitBoards:
    """The tables of one split.

    Attributes:
        result: the split.
        title: above all of them.
        first: the leaderboard.
        others: what only some readers want.
    """

    result: SplitResult
    title: str
    first: Board
    others: list[Board]


def leaderboard_board(result: SplitResult, confidence: float) -> Board:
    """All models of a split, in the metrics that matter to most readers."""
    seeds = any(len(model.seeds) > 1 for model in result.models)
    names = [name for name in SHOWN_FIRST if any(name in model.metrics for model in result.models)]
    headings = ["Model", "Rank", f"Kendall's tau [{confidence:.0%} interval]", *(["± over seeds"] if seeds else [])]
    headings += ["Of ceiling", *(METRIC_BY_NAME[name].label for name in names), "Training", "Prediction, each"]
    rows = []
    for rank, model in ranked(result):
        tau = model.metrics.get(MAIN_METRIC)
        spread = tau.seed_deviation if tau else None
        cells = [model.model, rank, interval(tau) if tau else ABSENT]
        cells += [ABSENT if spread is None else number(spread)] if seeds else []
        cells.append(share_text(model, result.ceiling, MAIN_METRIC))
        cells += [_value(model.metrics, name) for name in names]
        rows.append((model.role.value, [*cells, seconds_text(model), microseconds_text(model)]))
    return Board(split_title(result.split, result.known_workloads), split_caption(result, confidence), headings, rows)


def metrics_board(result: SplitResult) -> Board:
    """The same models in all metrics."""
    metrics = [metric for metric in METRICS if any(metric.name in model.metrics for model in result.models)]
    rows = [
        (model.role.value, [model.model, *(_value(model.metrics, metric.name) for metric in metrics)])
        for model in result.models
    ]
    return Board(
        f"{result.split} split: all metrics",
        "Means over workloads; leaderboard.csv has the intervals.",
        ["Model", *(metric.label for metric in metrics)],
        rows,
    )


def counting_board(result: SplitResult) -> Board | None:
    """The same models with each workload as often as networks run it, and by network; None without networks."""
    counted = (Aggregation.TASK_WEIGHT, Aggregation.NETWORKS)
    if not any(model.aggregated(aggregation) for model in result.models for aggregation in counted):
        return None
    headings = ["Model"] + [
        f"{METRIC_BY_NAME[name].label}, {'by task weight' if aggregation is counted[0] else 'over networks'}"
        for name in COUNTED
        for aggregation in counted
    ]
    rows = [
        (
            model.role.value,
            [model.model, *(_value(model.aggregated(each), name) for name in COUNTED for each in counted)],
        )
        for model in result.models
    ]
    networks = sorted({scores.network for model in result.models for scores in model.per_network})
    return Board(
        f"{result.split} split: workloads counted as networks run them",
        "By task weight: each workload as often as all networks together run it; top-k scores are the time of the best "
        f"programs over that of the chosen ones. Over networks: mean of {', '.join(networks)}, each scored alone.",
        headings,
        rows,
    )


def comparison_board(result: SplitResult, confidence: float) -> Board | None:
    """The best model of a split against every other; None where there are no two."""
    found = {metric: {entry.other: entry for entry in best_against_others(result, metric)} for metric in COMPARED}
    if not found[MAIN_METRIC]:
        return None
    headings = ["Other model"]
    for metric in COMPARED:
        headings += [f"{METRIC_BY_NAME[metric].label}: difference [{confidence:.0%} interval]", "p, corrected"]
    roles = {model.model: model.role.value for model in result.models}
    rows = []
    for other in found[MAIN_METRIC]:
        cells = [other]
        for metric in COMPARED:
            entry = found[metric].get(other)
            cells += (
                [ABSENT, ABSENT]
                if entry is None
                else [interval(Estimate(entry.difference, entry.low, entry.high)), p_text(entry.p_holm)]
            )
        rows.append((roles[other], cells))
    best = next(iter(found[MAIN_METRIC].values())).model
    return Board(
        f"{result.split} split: {best} minus every other model",
        comparison_sentence(result, confidence),
        headings,
        rows,
    )


def split_boards(result: SplitResult, confidence: float) -> SplitBoards:
    """All tables of one split."""
    others = [metrics_board(result), comparison_board(result, confidence), counting_board(result)]
    return SplitBoards(
        result,
        split_title(result.split, result.known_workloads),
        leaderboard_board(result, confidence),
        [board for board in others if board is not None],
    )


def _value(estimates: dict[str, Estimate], metric: str) -> str:
    estimate = estimates.get(metric)
    return ABSENT if estimate is None else metric_text(METRIC_BY_NAME[metric], estimate.value)
