"""Comparisons of tunings as tables: on the terminal, and as CSV."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.standings import Board
from kernelcast.evaluation.table import ABSENT, percentage, short, write_csv
from kernelcast.evaluation.tuning_comparison import TuningComparison
from kernelcast.evaluation.tuning_curves import Tunings

COMPARISON_FILE = "comparison.csv"
CURVES_FILE = "curves.csv"
PAIRS_FILE = "pairs.csv"

ALL = "all"
"""In the place of a workload: the geometric mean of all of them."""

CURVE_COLUMNS = ("workload", "method", "against", "x", "median", "low", "high", "seeds")
PAIR_COLUMNS = ("model", "other", "metric", "difference", "low", "high", "workloads", "p", "p_holm")


def write_comparison(directory: Path, tunings: Tunings, comparison: TuningComparison) -> None:
    """Writes `comparison.csv`, `curves.csv` and `pairs.csv`, each whole or not at all."""
    write_csv(directory / COMPARISON_FILE, comparison_rows(comparison))
    write_csv(directory / CURVES_FILE, curve_rows(tunings), CURVE_COLUMNS)
    write_csv(directory / PAIRS_FILE, [dataclasses.asdict(pair) for pair in comparison.pairs], PAIR_COLUMNS)


def comparison_rows(comparison: TuningComparison) -> list[dict[str, Any]]:
    """One row a method; `inf` where too few of its tunings reach the reference, empty without a reference."""
    rows = []
    for result in comparison.methods:
        row: dict[str, Any] = {
            "method": result.method,
            "seeds": result.seeds,
            "workloads": len(comparison.subjects),
            "trials": comparison.budget,
        }
        reach = result.reach
        figures = {
            "area_under_curve": result.area,
            "final_speed": result.final_speed,
            "trials_to_reach": reach and reach.trials,
            "seconds_to_reach": reach and reach.seconds,
            "wall_ratio_to_reach": reach and reach.ratio,
            "share_reached": reach and reach.share,
        }
        for name, estimate in figures.items():
            for suffix, end in (("", "value"), ("_low", "low"), ("_high", "high")):
                row[name + suffix] = None if estimate is None else getattr(estimate, end)
        rows.append(
            row
            | {
                "reference": comparison.reference if reach else None,
                "reference_trials": comparison.reference_trials,
                "wall_seconds": result.seconds,
                "model_share": result.model_share,
            }
        )
    return rows


def curve_rows(tunings: Tunings) -> list[dict[str, Any]]:
    """The points of every curve: of all workloads together, and of each; only where a curve changes, and at its end."""
    rows = []
    for subject in (None, *tunings.subjects):
        chosen = None if subject is None else [subject]
        for method in tunings.methods:
            bands = {
                "trials": tunings.trials_band(method, chosen),
                "seconds": tunings.wall_band(method, chosen),
            }
            for against, whole in bands.items():
                band = whole.corners()
                rows += [
                    {
                        "workload": ALL if subject is None else tunings.subjects[subject],
                        "method": method,
                        "against": against,
                        "x": x,
                        "median": median,
                        "low": low,
                        "high": high,
                        "seeds": len(tunings.seeds[method]),
                    }
                    for x, median, low, high in np.stack([band.x, band.median, band.low, band.high], axis=1).tolist()
                ]
    return rows


def comparison_table(comparison: TuningComparison) -> Table:
    """One row a method, the largest area under the curve first."""
    table = Table(
        title="tunings compared",
        title_justify="left",
        caption=escape(caption(comparison)),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    headings, rows = _cells(comparison)
    table.add_column(headings[0], overflow="fold", min_width=10)
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for method, *cells in rows:
        table.add_row(Text(method), *cells)
    return table


def tuning_board(comparison: TuningComparison) -> Board:
    """The same for the report."""
    headings, rows = _cells(comparison)
    return Board("tunings compared", caption(comparison), headings, [("", cells) for cells in rows])


def _cells(comparison: TuningComparison) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, the largest area under the curve first."""
    reached = comparison.reference_trials is not None
    rows = []
    for result in sorted(comparison.methods, key=lambda result: -result.area.value):
        area = result.area
        cells = [
            result.method,
            f"{area.value:.2f} [{area.low:.2f}, {area.high:.2f}]",
            f"{result.final_speed.value:.2f}",
        ]
        if result.reach is not None:
            ratio = result.reach.ratio.value
            cells += [
                _trials_text(result.reach.trials, comparison.budget),
                f"{result.reach.share.value:.0%}",
                ABSENT if np.isinf(ratio) else f"{ratio:.2f}",
            ]
        rows.append([*cells, f"{short(result.seconds)} s", percentage(result.model_share)])
    return ["method", "area", "end", *(("to reach", "reached", "ratio") if reached else ()), "wall", "model"], rows


def _trials_text(estimate: Estimate, budget: int) -> str:
    """Trials with their interval; beyond the budget where fewer than half of the tunings get there."""
    value, low, high = (
        f">{budget}" if np.isinf(end) else f"{end:.0f}" for end in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} [{low}, {high}]"


def caption(comparison: TuningComparison) -> str:
    """What stands behind the numbers."""
    workloads = len(comparison.subjects)
    seeds = sorted({result.seeds for result in comparison.methods})
    counted = " to ".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))
    text = (
        f"{workloads} workload{'s' * (workloads != 1)}, {counted} seed{'s' * (seeds[-1] != 1)} a method, at most "
        f"{comparison.budget} trials. area: mean over the trials of the best time known over the best so far, and end: "
        f"the same after the last one; wall: seconds of a tuning, model: their share inside the cost model. "
        f"{comparison.confidence:.0%} bootstrap intervals over workloads and seeds."
    )
    if comparison.reference_trials is not None:
        text += (
            f" to reach: trials to the best of {comparison.reference} at the end of its {comparison.reference_trials}, "
            "median (Kaplan-Meier); reached: share of the tunings that get there; ratio: wall time until then, model "
            f"included, over that of a whole tuning by {comparison.reference}."
        )
    if comparison.left_out:
        text += f" Left out, not tuned by every method and seed: {', '.join(comparison.left_out)}."
    return text
