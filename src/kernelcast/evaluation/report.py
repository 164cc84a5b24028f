"""The report: one HTML page that opens from disk, without a network, on any screen."""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.resources
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jinja2
import plotly.graph_objects as go
import pyarrow as pa
from plotly.offline import get_plotlyjs

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation import campaign, interactive, standings, table
from kernelcast.evaluation.bootstrap import Bootstrap
from kernelcast.evaluation.machine import MachineState, machine_states, state_sentence
from kernelcast.evaluation.noise import Source
from kernelcast.evaluation.predictions import predictions_of
from kernelcast.evaluation.results import CEILINGS, Results, Role, SplitResult
from kernelcast.evaluation.standings import Board
from kernelcast.evaluation.summary import METRICS
from kernelcast.evaluation.tuning_comparison import compare_tunings
from kernelcast.evaluation.tuning_curves import Tunings
from kernelcast.evaluation.tuning_plots import tuning_charts
from kernelcast.evaluation.tuning_table import tuning_board
from kernelcast.files import read_text
from kernelcast.records import Measurements

TEMPLATE = "report.html.j2"

MOST_POINTS = 60_000
"""Predictions that the page holds, of all models together: it has to open on a phone."""

LEAST_POINTS = 300
"""Predictions of each model that are drawn in any case."""

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
        least_width: pixels below which it scrolls sideways instead of shrinking; 0 for no bound.
    """

    name: str
    label: str
    description: str
    groups: dict[str, list[tuple[str, go.Figure]]]
    least_width: int = 0

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The figures as plain data, in the order of the options."""
        return [json.loads(figure.to_json()) for options in self.groups.values() for _, figure in options]


def render_report(
    measurements: Measurements,
    results: Results,
    predictions: pa.Table,
    curves: Curves,
    tunings: Tunings | None = None,
) -> str:
    """The whole page as HTML.

    Args:
        measurements: the campaign.
        results: what `evaluate` found.
        predictions: of every model, columns of `PREDICTION_SCHEMA`.
        curves: learning curves by split and folder of the model.
        tunings: that were finished; None where there is none.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percentage": table.percentage, "number": table.number}
    source = importlib.resources.files("kernelcast.evaluation").joinpath(TEMPLATE).read_text(encoding="utf-8")
    states = machine_states(measurements)
    spread = campaign.spread_summary(measurements, results.spread_limit)
    return environment.from_string(source).render(
        plotly=get_plotlyjs(),
        version=importlib.metadata.version("kernelcast"),
        campaign=measurements.campaign,
        tries=measurements.table.num_rows,
        measured=measurements.measured.num_rows,
        span=campaign.time_span(measurements),
        outcomes=campaign.outcome_counts(measurements),
        failures=campaign.failure_counts(measurements),
        workloads=campaign.workload_counts(measurements),
        origins=campaign.origin_counts(measurements),
        devices=campaign.device_counts(measurements),
        targets=campaign.target_counts(measurements),
        care=campaign.care_taken(measurements),
        spread=spread,
        state=state_sentence(states),
        noise=table.noise_sentence(results),
        ceiling=ceiling_note(results),
        results=results,
        boards=standings.boards(results),
        verdicts=[verdict(result) for result in results.splits],
        caveats=[caveat(result) for result in results.splits],
        tuning=None if tunings is None else comparison_board(tunings, results),
        charts={
            chart.name: chart
            for chart in (
                leaderboard(results),
                prediction_plots(results, predictions),
                workload_plots(results),
                learning_plots(first_seeds(curves, results)),
                *([state_plot(states), speeds_plot(states)] if states else []),
                *([spread_plot(spread)] if spread else []),
                *([tuning_plots(tunings)] if tunings else []),
            )
        },
    )


def leaderboard(results: Results) -> Chart:
    """All models on all splits."""
    return Chart(
        "leaderboard",
        "",
        "Mean Kendall's tau of every model with its interval, one marker shape a split: 0 is chance, 1 is perfect. "
        "The tables above hold the numbers.",
        {"": [("", interactive.leaderboard_chart(results.splits))]},
    )


def prediction_plots(results: Results, predictions: pa.Table) -> Chart:
    """The predictions of one model at a time, of its first seed."""
    groups: dict[str, list[tuple[str, go.Figure]]] = {}
    shown = [(result, model) for result in results.splits for model in result.models if model.seeds]
    most_points = max(LEAST_POINTS, MOST_POINTS // max(len(shown), 1))
    fewer = False
    for result, model in shown:
        rows = predictions_of(predictions, result.split, model.model, model.seeds[0])
        if not rows.num_rows:
            continue
        fewer |= rows.num_rows > most_points
        figure = interactive.prediction_chart(rows, model.kind, most_points)
        label = f"{model.model}, seed {model.seeds[0]}" if len(model.seeds) > 1 else model.model
        groups.setdefault(f"{result.split} split", []).append((label, figure))
    points = f"{most_points} test programs of each split" if fewer else "Every test program"
    return Chart(
        "predictions",
        "Model",
        f"{points} as points: predicted over measured run time on log axes, with the line on which a perfect "
        "prediction lies. For a model that only ranks: predicted place in its workload over measured time.",
        groups,
    )


def workload_plots(results: Results) -> Chart:
    """One metric at a time, by workload or network, and model."""
    groups: dict[str, list[tuple[str, go.Figure]]] = {}
    for result in results.splits:
        for metric in METRICS:
            if any(metric.name in model.metrics for model in result.models):
                figure = interactive.workload_chart(result, metric.name)
                groups.setdefault(f"{result.split} split", []).append((metric.label, figure))
        for metric in METRICS:
            if any(metric.name in model.over_networks and model.per_network for model in result.models):
                figure = interactive.network_chart(result, metric.name)
                groups.setdefault(f"{result.split} split, by network", []).append((metric.label, figure))
    return Chart(
        "workloads",
        "Metric",
        "A table of workloads, or networks, and models with one metric in every cell; the colour repeats the number.",
        groups,
        least_width=220 + 52 * max((len(result.models) for result in results.splits), default=0),
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
        "undisturbed machine." + (" One marker a device." if len(states) > 1 else ""),
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


def comparison_board(tunings: Tunings, results: Results) -> Board:
    """The methods of tuning side by side, with intervals as the leaderboard has them."""
    return tuning_board(compare_tunings(tunings, Bootstrap(results.bootstrap_samples, results.confidence, 0)))


def ceiling_note(results: Results) -> str:
    """What the row of the noise ceiling is; empty where there is none."""
    if results.noise is None:
        return ""
    name = CEILINGS[Source(results.noise.source)]
    if results.noise.source == Source.VISITS:
        return (
            f"{name} is the noise ceiling: a later measurement of the same programs, built and timed anew, as a "
            "prediction of the one that models learn from."
        )
    return (
        f"{name} stands for the noise ceiling, for want of programs that were measured again: the odd rounds of a "
        "measurement as a prediction of its even rounds."
    )


def verdict(result: SplitResult) -> str:
    """Which learned models rank better than chance, stated as it is."""
    learned = [model for model in result.models if model.role == Role.LEARNED and "kendall_tau" in model.metrics]
    better = [model.model for model in learned if model.metrics["kendall_tau"].low > 0]
    others = [model.model for model in learned if model.metrics["kendall_tau"].low <= 0]
    text = f"On the {result.split} split, better than chance by more than the interval: {', '.join(better) or 'none'}"
    return text + (f"; not shown to be: {', '.join(others)}." if others else ".")


def caveat(result: SplitResult) -> str:
    """How much the test programs of one split can tell."""
    ranked = [name for name in result.test_workloads if name not in result.unranked]
    counts = {scores.workload: scores.programs for model in result.models for scores in model.per_workload}
    typical = int(median([counts[name] for name in ranked if name in counts] or [0]))
    text = (
        f"The {result.split} split has {result.test_programs} test programs of {len(result.test_workloads)} workloads"
    )
    if typical > 1:
        text += (
            f", typically {typical} a workload, where one pair in the wrong order costs "
            f"{4 / (typical * (typical - 1)):.3f} of the workload's tau"
        )
    if result.known_workloads:
        return (
            text + ". Its intervals tell how other programs of the same workloads would come out, not other workloads."
        )
    return text + (
        ". Its intervals draw workloads again; so few of them cannot show how much workloads differ, "
        "and the true uncertainty is larger than the interval."
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
