"""The leaderboard of a split and its comparisons as cells of the report's tables."""

from __future__ import annotations

from dataclasses import dataclass

from kernelcast.evaluation.aggregation import Aggregation
from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.palette import split_title
from kernelcast.evaluation.results import Results, SplitResult
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


def leaderboard_board(result: SplitResult, confidence: float) -> Board:
    """All models of a split in all metrics."""
    headings = ["Model", "Rank", f"Kendall's tau [{confidence:.0%} interval]", "± over seeds", "Of ceiling"]
    headings += [metric.label for metric in METRICS if metric.name != MAIN_METRIC]
    rows = []
    for rank, model in ranked(result):
        tau = model.metrics.get(MAIN_METRIC)
        spread = tau.seed_deviation if tau else None
        cells = [model.model, rank, interval(tau) if tau else ABSENT, ABSENT if spread is None else number(spread)]
        cells.append(share_text(model, result.ceiling, MAIN_METRIC))
        cells += [_value(model.metrics, metric.name) for metric in METRICS if metric.name != MAIN_METRIC]
        rows.append((model.role.value, [*cells, seconds_text(model), microseconds_text(model)]))
    return Board(
        split_title(result.split, result.known_workloads),
        split_caption(result, confidence),
        [*headings, "Training", "Prediction, each"],
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


def boards(results: Results) -> list[Board]:
    """All tables of all splits, in the order of the page."""
    found = []
    for result in results.splits:
        found += [
            leaderboard_board(result, results.confidence),
            comparison_board(result, results.confidence),
            counting_board(result),
        ]
    return [board for board in found if board is not None]


def _value(estimates: dict[str, Estimate], metric: str) -> str:
    estimate = estimates.get(metric)
    return ABSENT if estimate is None else metric_text(METRIC_BY_NAME[metric], estimate.value)
