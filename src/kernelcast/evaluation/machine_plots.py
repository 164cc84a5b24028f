"""The machine's state over a campaign as a matplotlib figure."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter, StrMethodFormatter

from kernelcast.evaluation.machine import NEAR_BEST, MachineState, speeds, state_sentence
from kernelcast.evaluation.palette import MATPLOTLIB_MARKERS, style

MOST_POINTS = 20_000
"""Points that are drawn of all devices together."""


def machine_figure(states: list[MachineState]) -> Figure:
    """The reference kernel's time over the campaign, its best as 1, and how often it took how long."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    timeline, histogram = figure.subplots(1, 2, width_ratios=(3, 2))
    edges, shares = speeds(states)
    for number, (state, share) in enumerate(zip(states, shares, strict=True)):
        colour, marker = style(number)
        minutes, slowdown = state.thinned(MOST_POINTS // len(states))
        timeline.plot(
            minutes, slowdown, MATPLOTLIB_MARKERS[marker], color=colour, markersize=2, alpha=0.4, markeredgewidth=0,
            label=state.device,
        )  # fmt: skip
        histogram.stairs(share, edges, color=colour, fill=len(states) == 1, label=state.device)
    timeline.set_yscale("log")
    for which in ("major", "minor"):
        getattr(timeline.yaxis, f"set_{which}_formatter")(StrMethodFormatter("{x:g}"))
    timeline.axhline(NEAR_BEST, color="black", linewidth=1, linestyle=":")
    timeline.set(xlabel="minutes since the first repeat", ylabel="reference kernel / its best")
    histogram.axvline(NEAR_BEST, color="black", linewidth=1, linestyle=":")
    histogram.yaxis.set_major_formatter(PercentFormatter(1.0))
    histogram.set(xlabel="reference kernel / its best (last bin: and slower)", ylabel="share of the repeats")
    figure.suptitle(state_sentence(states[:1]) if len(states) == 1 else "", fontsize="small")
    if len(states) > 1:
        figure.legend(*timeline.get_legend_handles_labels(), loc="outside right upper", fontsize="small", markerscale=3)
    return figure
