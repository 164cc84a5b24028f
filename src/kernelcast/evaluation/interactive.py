"""Plots of the report as plotly figures, in the colours and markers of the other plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kernelcast.evaluation.machine import NEAR_BEST, MachineState, speeds
from kernelcast.evaluation.palette import COLOURS, PLOTLY_MARKERS, style
from kernelcast.evaluation.plots import learning_panels
from kernelcast.evaluation.results import SplitResult

MOST_STATE_POINTS = 2000
"""Points of the machine's state that are kept, of all devices together; an eye sees no more."""

GRID = "#e2e5e9"
INK = "#1c2430"
"""Colours of axes and of what is no series; the page swaps them on a dark screen."""


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
    figure.add_vline(x=0, line={"color": INK, "dash": "dot", "width": 1})
    figure.update_layout(height=150 + (26 + 10 * len(splits)) * len(names))
    figure.update_xaxes(title="mean Kendall's tau")
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=[f"{name} " for name in names], range=[len(names) - 0.5, -0.5]
    )
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
        middles, medians = state.stretches()
        # no line over a time in which nothing was measured
        pauses = np.flatnonzero(np.diff(middles) > 1.5 * state.stretch_minutes) + 1
        middles, medians = (np.insert(values, pauses, np.nan) for values in (middles, medians))
        figure.add_trace(
            go.Scatter(
                x=middles,
                y=medians,
                mode="lines",
                line={"color": INK if len(states) == 1 else colour, "width": 2},
                hovertemplate="around minute %{x:.0f}: median %{y:.3f} times its best",
                name="",
                showlegend=False,
            )
        )
    figure.add_hline(y=NEAR_BEST, line={"color": INK, "dash": "dot", "width": 1})
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
    figure.add_vline(x=NEAR_BEST, line={"color": INK, "dash": "dot", "width": 1})
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
        figure.add_vline(
            x=limit,
            line={"color": INK, "dash": "dash", "width": 1},
            annotation_text="limit",
            annotation_position="bottom right",
        )
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
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        legend={"orientation": "h", "yanchor": "bottom", "y": 0, "yref": "container", "x": 0, "xref": "container"},
        plot_bgcolor="white",
        paper_bgcolor="white",
    )
    figure.update_xaxes(title={"font": {"size": 13}, "standoff": 8})
    figure.update_yaxes(title={"font": {"size": 13}, "standoff": 8})
    figure.update_xaxes(automargin=True, gridcolor=GRID, zeroline=False, linecolor="#8a94a3", showline=True)
    figure.update_yaxes(automargin=True, gridcolor=GRID, zeroline=False, linecolor="#8a94a3", showline=True)
    return figure
