"""Plots as matplotlib figures; made without pyplot, so nothing is global and no display is needed."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.metrics import dense_ranks
from kernelcast.evaluation.palette import COLOURS, MATPLOTLIB_MARKERS, split_title, style
from kernelcast.evaluation.predictions import prediction_table
from kernelcast.evaluation.results import Role, SplitResult
from kernelcast.models.protocol import PredictionKind

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs

MOST_LEGEND_ENTRIES = 24
"""Workloads that a legend can name and stay readable."""

MOST_MODELS_BY_WORKLOAD = 8
"""Models that the rows of a plot by workload can hold and stay readable."""


def prediction_figure(
    programs: Programs, predicted: Float64[np.ndarray, "programs"], kind: PredictionKind | str, title: str = ""
) -> Figure:
    """A parity plot for predicted times, a plot of rank over time for predicted ranks."""
    return predictions_figure(prediction_table("", "", programs, predicted), kind, title)


def predictions_figure(predictions: pa.Table, kind: PredictionKind | str, title: str = "") -> Figure:
    """The same from the rows of one model in `predictions.parquet`."""
    true_seconds = np.exp(predictions["log_seconds"].to_numpy())
    predicted, names = predictions["prediction"].to_numpy(), predictions["workload"].to_pylist()
    if kind == PredictionKind.LOG_SECONDS:
        return parity_figure(true_seconds, seconds_of(predicted), names, title)
    return rank_figure(true_seconds, predicted, names, title)


def seconds_of(log_seconds: Float64[np.ndarray, "programs"]) -> Float64[np.ndarray, "programs"]:
    """Seconds, kept within what an axis can show."""
    return np.exp(np.clip(log_seconds, -60.0, 60.0))


def parity_figure(
    true_seconds: Float64[np.ndarray, "programs"],
    predicted_seconds: Float64[np.ndarray, "programs"],
    workload_names: Sequence[str],
    title: str = "",
) -> Figure:
    """Predicted over measured time on log axes, with the line on which a perfect prediction lies."""
    figure = Figure(figsize=(7.5, 5.5), layout="constrained")
    axes = figure.subplots()
    _scatter_by_workload(axes, 1e6 * true_seconds, 1e6 * predicted_seconds, workload_names)
    if len(true_seconds):
        ends = [
            1e6 * min(true_seconds.min(), predicted_seconds.min()),
            1e6 * max(true_seconds.max(), predicted_seconds.max()),
        ]
        axes.plot(ends, ends, color="black", linewidth=1, linestyle="--", label="predicted = measured", zorder=1)
    _log_scales(axes, "x", "y")
    axes.set(xlabel="measured run time (µs)", ylabel="predicted run time (µs)", title=title)
    _legend(figure, axes)
    return figure


def rank_figure(
    true_seconds: Float64[np.ndarray, "programs"],
    predicted: Float64[np.ndarray, "programs"],
    workload_names: Sequence[str],
    title: str = "",
) -> Figure:
    """Predicted place among the workload's programs over the measured time relative to the workload's fastest."""
    slowdown, place = relative_times_and_places(true_seconds, predicted, workload_names)
    figure = Figure(figsize=(7.5, 5.5), layout="constrained")
    axes = figure.subplots()
    _scatter_by_workload(axes, slowdown, place, workload_names)
    _log_scales(axes, "x")
    axes.set(
        xlabel="measured run time / fastest of the workload",
        ylabel="predicted place (0 fastest, 1 slowest)",
        title=title,
    )
    _legend(figure, axes)
    return figure


def relative_times_and_places(
    true_seconds: Float64[np.ndarray, "programs"],
    predicted: Float64[np.ndarray, "programs"],
    workload_names: Sequence[str],
) -> tuple[Float64[np.ndarray, "programs"], Float64[np.ndarray, "programs"]]:
    """Time relative to the workload's fastest program, and predicted place in it from 0 to 1."""
    slowdown, place = np.ones(len(true_seconds)), np.zeros(len(true_seconds))
    names = np.asarray(workload_names, dtype=object)
    for name in set(workload_names):
        rows = np.flatnonzero(names == name)
        slowdown[rows] = true_seconds[rows] / true_seconds[rows].min()
        ranks = dense_ranks(predicted[rows])
        place[rows] = ranks / max(ranks.max(), 1)
    return slowdown, place


def tau_figure(result: SplitResult) -> Figure:
    """Kendall's tau of every workload, one row a workload and one marker a model; the mean in the first row.

    The ceiling and the best models, as many as can be told apart.
    """
    models = [model for model in result.models if "kendall_tau" in model.metrics][:MOST_MODELS_BY_WORKLOAD]
    workloads = [name for name in result.test_workloads if name not in result.unranked]
    # an image of more than 2**16 pixels cannot be written
    figure = Figure(figsize=(9, min(1.8 + 0.42 * (len(workloads) + 1), 200)), layout="constrained")
    axes = figure.subplots()
    for number, model in enumerate(models):
        colour, marker = style(number)
        of_workload = {scores.workload: scores.metrics.get("kendall_tau") for scores in model.per_workload}
        shift = 0.6 * ((number + 0.5) / len(models) - 0.5)
        mean = model.metrics["kendall_tau"]
        points = [(mean.value, shift)] + [
            (value, row + shift)
            for row, name in enumerate(workloads, 1)
            if (value := of_workload.get(name)) is not None
        ]
        axes.plot(*zip(*points, strict=True), MATPLOTLIB_MARKERS[marker], color=colour, markersize=6, label=model.model)
        axes.hlines(shift, mean.low, mean.high, color=colour, linewidth=1.5)
    axes.axvline(0, color="black", linewidth=1, linestyle=":")
    axes.set_yticks(range(len(workloads) + 1), ["mean, with interval", *workloads])
    for row in range(len(workloads)):
        axes.axhline(row + 0.5, color="#dddddd", linewidth=0.8, zorder=0)
    axes.set(
        ylim=(len(workloads) + 0.5, -0.5),
        xlabel="Kendall's tau (1 perfect, 0 chance)",
        title=split_title(result.split, result.known_workloads),
    )
    _legend(figure, axes)
    return figure


def leaderboard_figure(splits: Sequence[SplitResult]) -> Figure:
    """Mean Kendall's tau of every model with its interval, one panel a split, the noise ceiling as a line."""
    rows = max((len(result.models) for result in splits), default=0)
    figure = Figure(figsize=(4.6 * max(len(splits), 1), max(3.6, 1.6 + 0.26 * rows)), layout="constrained")
    panels = figure.subplots(1, max(len(splits), 1), squeeze=False)[0]
    for axes, result in zip(panels, splits, strict=False):
        models = [model for model in result.models if model.role != Role.CEILING and "kendall_tau" in model.metrics]
        for row, model in enumerate(models):
            colour, marker = (COLOURS[0], "o") if model.role == Role.LEARNED else (COLOURS[1], "s")
            tau = model.metrics["kendall_tau"]
            axes.hlines(row, tau.low, tau.high, color=colour, linewidth=2)
            axes.plot(tau.value, row, marker, color=colour, markersize=7)
        for again in result.models:
            if again.role == Role.CEILING and "kendall_tau" in again.metrics:
                axes.axvline(again.metrics["kendall_tau"].value, color="black", linestyle="--", label=again.model)
                axes.legend(loc="lower left", fontsize="small")
        axes.axvline(0, color="black", linewidth=1, linestyle=":")
        axes.set_yticks(range(len(models)), [model.model for model in models])
        axes.set_ylim(len(models) - 0.5, -0.5)
        axes.set(xlabel="Kendall's tau (1 perfect, 0 chance)")
        axes.set_title(split_title(result.split, result.known_workloads).replace(": ", "\n"), fontsize="medium")
    return figure


def learning_curve_figure(history: Path) -> Figure:
    """The learning curve of one model from its `history.csv`: losses in one panel, other metrics in another."""
    series = read_history(history)
    panels = learning_panels(series)
    figure = Figure(figsize=(7.5, 2.6 * max(len(panels), 1)), layout="constrained")
    for axes, (label, names) in zip(
        figure.subplots(max(len(panels), 1), 1, squeeze=False, sharex=True)[:, 0], panels.items(), strict=False
    ):
        for number, name in enumerate(names):
            colour, marker = style(number)
            steps, values = zip(*series[name], strict=True)
            axes.plot(steps, values, color=colour, label=name, marker=MATPLOTLIB_MARKERS[marker], markersize=3)
        axes.set(ylabel=label)
        axes.legend(fontsize="small")
    figure.supxlabel("epoch or boosting round", fontsize="medium")
    return figure


def read_history(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Every metric of a `history.csv` as (step, value), steps without a finite value left out.

    Raises:
        MalformedDataError: it has no column `step`, or a cell that is no number.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    try:
        with path.open(newline="") as stream:
            for row in csv.DictReader(stream):
                step = int(float(row.pop("step")))
                for name, text in row.items():
                    if text and np.isfinite(value := float(text)):
                        series.setdefault(name, []).append((step, value))
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedDataError(f"{path} is no learning curve ({error}); run `dvc repro -f train`") from error
    return series


def learning_panels(series: Mapping[str, object]) -> dict[str, list[str]]:
    """Which metrics share an axis: those with the same name behind the `train/` or `valid/`, losses first."""
    panels: dict[str, list[str]] = {}
    for name in sorted(series, key=lambda name: (not name.endswith("loss"), name.rpartition("/")[2], name)):
        panels.setdefault(name.rpartition("/")[2].replace("_", " "), []).append(name)
    return panels


def _scatter_by_workload(axes: Axes, x: np.ndarray, y: np.ndarray, workload_names: Sequence[str]) -> None:
    names, workload = np.unique(np.asarray(workload_names, dtype=str), return_inverse=True)
    look: dict[str, Any] = {"s": 18, "alpha": 0.7, "linewidths": 0}
    if len(names) <= MOST_LEGEND_ENTRIES:
        for number, name in enumerate(names.tolist()):
            colour, marker = style(number)
            rows = workload == number
            axes.scatter(x[rows], y[rows], color=colour, marker=MATPLOTLIB_MARKERS[marker], label=name, **look)
    else:
        # nobody could read their names, and a series each would take a hundred times as long to draw
        styles = [style(number) for number in range(len(names))]
        for marker in range(len(MATPLOTLIB_MARKERS)):
            rows = np.isin(workload, [number for number, (_, shape) in enumerate(styles) if shape == marker])
            colours = [styles[number][0] for number in workload[rows]]
            if colours:
                axes.scatter(x[rows], y[rows], c=colours, marker=MATPLOTLIB_MARKERS[marker], **look)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)


def _log_scales(axes: Axes, *names: Literal["x", "y"]) -> None:
    """Log axes whose ticks read 10, 100, 1000."""
    for name in names:
        axis = axes.xaxis if name == "x" else axes.yaxis
        axes.set(**{f"{name}scale": "log"})
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _legend(figure: Figure, axes: Axes) -> None:
    """A legend beside the axes, unless it would name more series than anybody can tell apart."""
    if 0 < len(axes.get_legend_handles_labels()[1]) <= MOST_LEGEND_ENTRIES:
        figure.legend(loc="outside right upper", fontsize="small", frameon=False)
