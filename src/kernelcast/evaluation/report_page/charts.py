"""The plots of the page that Python draws, as plotly figures; the points of programs are drawn in the browser."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation import campaign, interactive
from kernelcast.evaluation.machine import MachineState
from kernelcast.evaluation.results import Results
from kernelcast.evaluation.tuning_curves import Tunings
from kernelcast.evaluation.tuning_plots import tuning_charts
from kernelcast.files import read_text

Curves = dict[tuple[str, str], dict[str, list[tuple[int, float]]]]
"""Points of every learning curve: (split, folder of the model) to metric to (step, value)."""


@dataclass(frozen=True)
class Chart:
    """One plot of the page, or several of which a select field shows one.

    Attributes:
        name: identifier in the page.
        label: what the select field chooses.
        description: what there is to see, for those who do not see it.
        groups: heading to (option, figure); a chart without choice has one option.
    """

    name: str
    label: str
    description: str
    groups: dict[str, list[tuple[str, go.Figure]]]

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The figures as plain data, in the order of the options."""
        return [json.loads(figure.to_json()) for options in self.groups.values() for _, figure in options]


def leaderboard(results: Results) -> Chart:
    """All models on all splits."""
    return Chart(
        "leaderboard",
        "",
        "Mean Kendall's tau of every model with its interval, one marker shape a split: 0 is chance, 1 is perfect. "
        "The tables below hold the numbers.",
        {"": [("", interactive.leaderboard_chart(results.splits))]} if results.splits else {},
    )


def first_seeds(curves: Curves, results: Results) -> Curves:
    """The curves of the first seed of every model: of all seeds there would be too many to choose from."""
    first = {(result.split, model.folders[0]) for result in results.splits for model in result.models if model.folders}
    return {key: series for key, series in curves.items() if key in first}


def learning_plots(curves: Curves) -> Chart:
    """The learning curve of one model at a time."""
    groups: dict[str, list[tuple[str, go.Figure]]] = {}
    for (split, model), series in curves.items():
        groups.setdefault(f"{split} split", []).append((model, interactive.learning_chart(series)))
    return Chart("learning", "Model", "Training and validation metrics over the epochs or boosting rounds.", groups)


def state_plot(states: list[MachineState]) -> Chart:
    """The machine over the time of the campaign."""
    return Chart(
        "state",
        "",
        "Time of the reference kernel beside every repeat over the time of the campaign, relative to its best: 1 is an "
        "undisturbed machine. The line is the median of each stretch of it."
        + (" One marker a device." if len(states) > 1 else ""),
        {"": [("", interactive.state_chart(states))]},
    )


def speeds_plot(states: list[MachineState]) -> Chart:
    """The machine's speeds."""
    return Chart(
        "speeds",
        "",
        "How often the reference kernel took how long, relative to its best: a machine that others use too shows a "
        "peak for each of its speeds.",
        {"": [("", interactive.speeds_chart(states))]},
    )


def spread_plot(spread: campaign.Spread) -> Chart:
    """How far the repeats of the programs spread."""
    return Chart(
        "spread",
        "",
        "Share of the programs whose repeats spread at most so much: interquartile range over median, median "
        f"{spread.median:.2f}, 90th percentile {spread.p90:.2f}.",
        {"": [("", interactive.spread_chart(spread.spread, spread.limit))]},
    )


def tuning_plots(tunings: Tunings) -> Chart:
    """The curves of all methods of tuning, of all workloads together or of one."""
    return Chart(
        "tuning",
        "Curve",
        "The best time that any tuning found over the best so far of each method: 1 is the best known. The line is the "
        "median, the band the quartiles of the seeds.",
        tuning_charts(tunings),
    )


def read_curves(directory: Path) -> Curves:
    """Reads `learning.csv`.

    Raises:
        MissingInputError: `evaluate` has not run.
        MalformedDataError: it lacks a column or a number.
    """
    path = directory / "learning.csv"
    curves: Curves = {}
    try:
        for row in csv.DictReader(read_text(path, "evaluate").splitlines()):
            series = curves.setdefault((row["split"], row["model"]), {})
            series.setdefault(row["metric"], []).append((int(row["step"]), float(row["value"])))
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedDataError(
            f"{path} is not what evaluate writes ({error}); run `dvc repro -f -s evaluate`"
        ) from error
    return curves
