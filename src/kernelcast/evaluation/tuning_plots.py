"""Plots of tunings: best so far against trials and against wall time, for files (matplotlib) and pages (plotly)."""

from __future__ import annotations

import io
from collections.abc import Sequence

import matplotlib
import numpy as np
import plotly.graph_objects as go
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from kernelcast.evaluation.interactive import decades, dressed
from kernelcast.evaluation.palette import MATPLOTLIB_MARKERS, PLOTLY_MARKERS, style
from kernelcast.evaluation.tuning_curves import Band, Tunings

SPEED = "best time known / best so far"
AGAINST = {"trials": "trials", "seconds": "wall time of a workload (s)"}
"""What curves are drawn against, with the label of the axis."""

BAND_OPACITY = 0.18

MOST_MARKERS = 12
"""Markers of a curve: enough to tell it from others without colours, and no more."""


def band_of(tunings: Tunings, method: str, against: str, subjects: Sequence[str] | None = None) -> Band:
    """The curve of one method against a key of `AGAINST`."""
    return tunings.trials_band(method, subjects) if against == "trials" else tunings.wall_band(method, subjects)


def tuning_figure(tunings: Tunings, subjects: Sequence[str] | None = None, title: str = "") -> Figure:
    """Both curves of every method side by side, median as a line and quartiles of the seeds as a band.

    Args:
        tunings: what is drawn.
        subjects: keys of those whose geometric mean is drawn; of all by default.
        title: above both.
    """
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, len(AGAINST), sharey=True)
    for axes, (against, label) in zip(panels, AGAINST.items(), strict=True):
        for number, method in enumerate(tunings.methods):
            colour, marker = style(number)
            band = band_of(tunings, method, against, subjects).corners()
            axes.step(
                band.x, band.median, where="post", color=colour, label=method, linewidth=1.8,
                marker=MATPLOTLIB_MARKERS[marker], markersize=5, markevery=max(len(band.x) // MOST_MARKERS, 1),
            )  # fmt: skip
            axes.fill_between(band.x, band.low, band.high, step="post", color=colour, alpha=BAND_OPACITY, linewidth=0)
        axes.set(xlabel=label, xscale="log" if against == "seconds" else "linear")
        if against == "seconds":
            # tunings seldom span more than two decades, and ten labels a decade overlap
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(color="#e5e5e5", linewidth=0.6)
        axes.set_axisbelow(True)
    panels[0].set(ylabel=SPEED)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize="small", frameon=False)
    if title:
        figure.suptitle(title)
    return figure


def svg_of(figure: Figure) -> str:
    """A figure as an `<svg>` element that stands in any page; the same figure gives the same text."""
    stream = io.StringIO()
    # without date and random identifiers, or the same numbers would make another file every time
    with matplotlib.rc_context({"svg.hashsalt": "kernelcast"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def tuning_chart(tunings: Tunings, against: str, subjects: Sequence[str] | None = None) -> go.Figure:
    """The same as one interactive chart.

    Args:
        tunings: what is drawn.
        against: a key of `AGAINST`.
        subjects: keys of those whose geometric mean is drawn; of all by default.
    """
    figure = go.Figure()
    for number, method in enumerate(tunings.methods):
        colour, marker = style(number)
        band = band_of(tunings, method, against, subjects)
        edge = {"mode": "lines", "line": {"width": 0, "shape": "hv"}, "hoverinfo": "skip", "showlegend": False}
        figure.add_trace(go.Scatter(x=band.x, y=band.low, legendgroup=method, **edge))
        figure.add_trace(
            go.Scatter(
                x=band.x,
                y=band.high,
                fill="tonexty",
                fillcolor=_translucent(colour),
                legendgroup=method,
                **edge,
            )
        )
        figure.add_trace(
            go.Scatter(
                name=method,
                x=band.x,
                y=band.median,
                mode="lines+markers",
                line={"color": colour, "shape": "hv"},
                marker={"symbol": PLOTLY_MARKERS[marker], "size": 8, "maxdisplayed": MOST_MARKERS},
                legendgroup=method,
                customdata=np.stack([band.low, band.high], axis=1),
                hovertemplate="%{x:.4g}: %{y:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]",
            )
        )
    figure.update_layout(height=440)
    figure.update_xaxes(title=AGAINST[against])
    if against == "seconds":
        figure.update_xaxes(type="log", **decades(band_of(tunings, tunings.methods[0], against, subjects).x))
    figure.update_yaxes(title=SPEED, rangemode="tozero")
    return dressed(figure)


def tuning_charts(tunings: Tunings) -> dict[str, list[tuple[str, go.Figure]]]:
    """The charts of a page by heading and option, as `report.Chart` takes them: of all workloads, and of each."""
    return {
        f"against {label}": [
            ("geometric mean of all", tuning_chart(tunings, against)),
            *((name, tuning_chart(tunings, against, [subject])) for subject, name in tunings.subjects.items()),
        ]
        for against, label in AGAINST.items()
    }


def _translucent(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {BAND_OPACITY})"
