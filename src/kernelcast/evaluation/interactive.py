"""Plots of the report as plotly figures, in the colours and markers of the other plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
from plotly.subplots import make_subplots

from kernelcast.evaluation.machine import NEAR_BEST, MachineState, speeds
from kernelcast.evaluation.palette import COLOURS, PLOTLY_MARKERS, style
from kernelcast.evaluation.plots import MOST_LEGEND_ENTRIES, learning_panels, relative_times_and_places, seconds_of
from kernelcast.evaluation.results import SplitResult
from kernelcast.evaluation.summary import METRIC_BY_NAME
from kernelcast.models.protocol import PredictionKind

MOST_SVG_POINTS = 4000
"""More points than this are drawn by WebGL, which stays fluent at tens of thousands."""

MOST_STATE_POINTS = 2000
"""Points of the machine's state that are kept, of all devices together; an eye sees no more."""

GRID = "#e2e5e9"


def leaderboard_chart(splits: Sequence[SplitResult]) -> go.Figure:
    """Mean Kendall's tau of every model on every split with its interval; the noise ceiling too."""
    figure = go.Figure()
    # by the mean over the splits that have it: the order of a single split is in its table
    taus_of: dict[str, list[float]] = {}
    for result in splits:
        for model in result.models:
            taus_of.setdefault(model.model, []).extend(
                [model.metrics["kendall_tau"].value] if "kendall_tau" in model.metrics else []
            )
    names = sorted(taus_of, key=lambda name: -float(np.mean(taus_of[name])) if taus_of[name] else 2.0)
    for number, result in enumerate(splits):
        colour, marker = style(number)
        models = [model for model in result.models if "kendall_tau" in model.metrics]
        taus = [model.metrics["kendall_tau"] for model in models]
        shift = 0.5 * ((number + 0.5) / len(splits) - 0.5)
        figure.add_trace(
            go.Scatter(
                name=f"{result.split} split",
                x=[tau.value for tau in taus],
                y=[names.index(model.model) + shift for model in models],
                mode="markers",
                marker={"color": colour, "symbol": PLOTLY_MARKERS[marker], "size": 10},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [tau.high - tau.value for tau in taus],
                    "arrayminus": [tau.value - tau.low for tau in taus],
                    "thickness": 2,
                    "width": 0,
                },
                customdata=[[model.model, tau.low, tau.high] for model, tau in zip(models, taus, strict=True)],
                hovertemplate="%{customdata[0]}: %{x:.3f} [%{customdata[1]:.3f}, %{customdata[2]:.3f}]",
            )
        )
    figure.add_vline(x=0, line={"color": "black", "dash": "dot", "width": 1})
    figure.update_layout(height=150 + (26 + 10 * len(splits)) * len(names))
    figure.update_xaxes(title="mean Kendall's tau")
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=[f"{name} " for name in names], range=[len(names) - 0.5, -0.5]
    )
    return dressed(figure)


def prediction_chart(rows: pa.Table, kind: str, most_points: int) -> go.Figure:
    """Predicted over measured time of one model, or predicted place over relative time for a model of ranks.

    Of more than `most_points` programs, as many at even distances in the table are drawn.
    """
    names = rows["workload"].to_pylist()
    true_seconds = np.exp(rows["log_seconds"].to_numpy())
    of_time = kind == PredictionKind.LOG_SECONDS
    if of_time:
        x, y = 1e6 * true_seconds, 1e6 * seconds_of(rows["prediction"].to_numpy())
    else:
        x, y = relative_times_and_places(true_seconds, rows["prediction"].to_numpy(), names)
    # places are among all programs, those left out too
    drawn = np.unique(np.linspace(0, rows.num_rows - 1, min(most_points, rows.num_rows)).astype(np.int64))
    x, y = x[drawn], y[drawn]
    scatter = go.Scattergl if len(drawn) > MOST_SVG_POINTS else go.Scatter
    keys, workload = (np.asarray(column, dtype=object)[drawn] for column in (rows["program_key"].to_pylist(), names))
    figure = go.Figure()
    unit = " µs" if of_time else ""
    for number, name in enumerate(sorted(set(names))):
        colour, marker = style(number)
        chosen = workload == name
        if not chosen.any():
            continue
        figure.add_trace(
            scatter(
                name=name,
                x=x[chosen],
                y=y[chosen],
                mode="markers",
                marker={"color": colour, "symbol": PLOTLY_MARKERS[marker], "size": 8, "opacity": 0.75},
                customdata=keys[chosen],
                hovertemplate=f"{name}<br>measured %{{x:.4g}}{unit}<br>predicted %{{y:.4g}}{unit}<br>"
                "program %{customdata}",
            )
        )
    if of_time:
        ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
        line = {"color": "black", "dash": "dash", "width": 1}
        figure.add_trace(
            go.Scatter(x=ends, y=ends, mode="lines", name="predicted = measured", line=line, hoverinfo="skip")
        )
        figure.update_xaxes(title="measured run time (µs)")
        figure.update_yaxes(title="predicted run time (µs)", type="log", **decades(y))
    else:
        figure.update_xaxes(title="measured run time / fastest of the workload")
        figure.update_yaxes(title="predicted place (0 fastest, 1 slowest)")
    figure.update_xaxes(type="log", **decades(x))
    figure.update_layout(height=520, showlegend=len(set(names)) <= MOST_LEGEND_ENTRIES)
    return dressed(figure)


def workload_chart(result: SplitResult, metric: str) -> go.Figure:
    """One metric of every model on every workload, as a coloured table with the numbers in it."""
    columns = {
        model.model: {scores.workload: scores.metrics.get(metric) for scores in model.per_workload}
        for model in result.models
        if metric in model.metrics
    }
    return metric_table(columns, result.test_workloads, metric)


def network_chart(result: SplitResult, metric: str) -> go.Figure:
    """One metric of every model on every network, likewise."""
    columns = {
        model.model: {
            scores.network: scores.metrics[metric].value for scores in model.per_network if metric in scores.metrics
        }
        for model in result.models
        if metric in model.over_networks and model.per_network
    }
    return metric_table(columns, sorted({name for column in columns.values() for name in column}), metric)


def metric_table(columns: Mapping[str, Mapping[str, float | None]], names: Sequence[str], metric: str) -> go.Figure:
    """A coloured table with the numbers in it.

    Args:
        columns: value by row, by column.
        names: of the rows, in order; those without any value are left out.
        metric: whose values they are.
    """
    rows = [name for name in names if any(column.get(name) is not None for column in columns.values())]
    values = [[column.get(name) for column in columns.values()] for name in rows]
    shown = "{:.0%}" if METRIC_BY_NAME[metric].is_share else "{:.2f}"
    scale: dict[str, Any] = {"zmin": 0, "zmax": 1, "colorscale": "Blues"}
    if METRIC_BY_NAME[metric].by_chance == 0:
        scale = {"zmin": -1, "zmax": 1, "colorscale": "RdBu"}
    elif not METRIC_BY_NAME[metric].higher_is_better:
        scale = {"zmin": 0, "zmax": 1, "colorscale": "Oranges"}
    figure = go.Figure(
        go.Heatmap(
            x=list(columns),
            y=rows,
            z=values,
            text=[["" if value is None else shown.format(value) for value in row] for row in values],
            texttemplate="%{text}",
            hovertemplate="%{y}, %{x}: %{text}",
            name="",
            xgap=2,
            ygap=2,
            showscale=False,
            **scale,
        )
    )
    figure.update_layout(height=110 + 34 * len(rows))
    figure.update_yaxes(autorange="reversed", ticksuffix=" ")
    figure.update_xaxes(side="top", tickangle=-30)
    return dressed(figure)


def learning_chart(series: Mapping[str, Sequence[tuple[int, float]]]) -> go.Figure:
    """The learning curve of one model: losses in one panel, other metrics below."""
    panels = learning_panels(series)
    rows = max(len(panels), 1)
    figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    drawn = 0
    for row, (label, names) in enumerate(panels.items(), 1):
        for number, name in enumerate(names):
            colour, marker = style(drawn)
            drawn += 1
            steps, values = zip(*series[name], strict=True)
            figure.add_trace(
                go.Scatter(
                    x=steps,
                    y=values,
                    name=name,
                    mode="lines+markers",
                    line={"color": colour, "dash": "solid" if number == 0 else "dash"},
                    marker={"symbol": PLOTLY_MARKERS[marker], "size": 5},
                ),
                row=row,
                col=1,
            )
        figure.update_yaxes(title=label, row=row, col=1)
    figure.update_xaxes(title="epoch or boosting round", row=rows, col=1)
    figure.update_layout(height=120 + 200 * rows)
    return dressed(figure)


def state_chart(states: Sequence[MachineState]) -> go.Figure:
    """How long the reference kernel took over the campaign, relative to its best: the machine's state, by device."""
    figure = go.Figure()
    for number, state in enumerate(states):
        colour, marker = style(number)
        minutes, slowdown = state.thinned(MOST_STATE_POINTS // len(states))
        figure.add_trace(
            go.Scatter(
                x=minutes,
                y=slowdown,
                mode="markers",
                marker={"color": colour, "symbol": PLOTLY_MARKERS[marker], "size": 4, "opacity": 0.5},
                hovertemplate="minute %{x:.1f}: %{y:.2f} times its best",
                name=state.device if len(states) > 1 else "",
            )
        )
    figure.add_hline(y=NEAR_BEST, line={"color": "black", "dash": "dot", "width": 1})
    figure.update_xaxes(title="minutes since the first repeat")
    spanned = np.concatenate([state.slowdown for state in states])
    figure.update_yaxes(title="reference kernel / its best", type="log", **decades(spanned))
    figure.update_layout(height=300, showlegend=len(states) > 1)
    return dressed(figure)


def speeds_chart(states: Sequence[MachineState]) -> go.Figure:
    """How often the reference kernel took how long, relative to its best: a machine of two speeds shows two peaks."""
    edges, shares = speeds(list(states))
    figure = go.Figure()
    for number, (state, share) in enumerate(zip(states, shares, strict=True)):
        colour, _ = style(number)
        figure.add_trace(
            go.Scatter(
                x=edges,
                # a step holds from its edge on; the last edge repeats the last step
                y=np.append(share, share[-1]),
                mode="lines",
                line={"shape": "hv", "color": colour},
                fill="tozeroy" if len(states) == 1 else None,
                hovertemplate="from %{x:.2f} times its best: %{y:.1%} of the repeats",
                name=state.device if len(states) > 1 else "",
            )
        )
    figure.add_vline(x=NEAR_BEST, line={"color": "black", "dash": "dot", "width": 1})
    figure.update_xaxes(title="reference kernel / its best (last step: and slower)")
    figure.update_yaxes(title="share of the repeats", tickformat=".0%", rangemode="tozero")
    figure.update_layout(height=300, showlegend=len(states) > 1)
    return dressed(figure)


def spread_chart(spread: np.ndarray, limit: float | None) -> go.Figure:
    """How far the repeats of the programs spread: the share of programs that spread at most so much."""
    ordered = np.quantile(spread, np.linspace(0, 1, min(len(spread), MOST_STATE_POINTS)), method="nearest")
    share = np.linspace(0, 1, len(ordered) + 1)[1:]
    figure = go.Figure(
        go.Scatter(
            x=ordered,
            y=share,
            mode="lines",
            line={"shape": "hv", "color": COLOURS[0]},
            hovertemplate="%{y:.0%} of the programs spread at most %{x:.3f}",
            name="",
        )
    )
    if limit is not None:
        figure.add_vline(x=limit, line={"color": "black", "dash": "dash", "width": 1}, annotation_text="limit")
    figure.update_xaxes(title="interquartile range / median of a program's repeats", rangemode="tozero")
    figure.update_yaxes(title="share of the programs", tickformat=".0%", range=[0, 1.02])
    figure.update_layout(height=300, showlegend=False)
    return dressed(figure)


def decades(values: np.ndarray) -> dict[str, Any]:
    """Ticks of a log axis: round numbers only where it spans two decades or more."""
    spans = math.log10(values.max() / values.min()) if len(values) and values.min() > 0 else 0.0
    return {"dtick": 1} if spans >= 2 else {"dtick": "D2"}


def dressed(figure: go.Figure) -> go.Figure:
    """Gives a figure the look of the page; the legend stands below, where it takes no width on a phone."""
    figure.update_layout(
        template="none",
        autosize=True,
        margin={"l": 8, "r": 12, "t": 16, "b": 8},
        # a finger that scrolls the page must not zoom the plot
        dragmode=False,
        hovermode="closest",
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#1c2430"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 0, "yref": "container", "x": 0, "xref": "container"},
        plot_bgcolor="white",
        paper_bgcolor="white",
    )
    figure.update_xaxes(title={"font": {"size": 13}, "standoff": 8})
    figure.update_yaxes(title={"font": {"size": 13}, "standoff": 8})
    figure.update_xaxes(automargin=True, gridcolor=GRID, zeroline=False, linecolor="#8a94a3", showline=True)
    figure.update_yaxes(automargin=True, gridcolor=GRID, zeroline=False, linecolor="#8a94a3", showline=True)
    return figure
