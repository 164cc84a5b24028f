"""The report: one HTML page that opens from disk, without a network, on any screen."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import re
from dataclasses import dataclass
from typing import Any

import jinja2
import markupsafe
import pyarrow as pa
from plotly.offline import get_plotlyjs

from kernelcast.evaluation import campaign, standings, table
from kernelcast.evaluation.bootstrap import Bootstrap
from kernelcast.evaluation.machine import drift_sentence, machine_states, state_sentence
from kernelcast.evaluation.program_page.page import duration
from kernelcast.evaluation.report_page import charts, surrogate, wrong
from kernelcast.evaluation.report_page.charts import Curves
from kernelcast.evaluation.report_page.explored import Explored, Predicted, Store, explored_programs
from kernelcast.evaluation.report_page.headline import Headline, headline
from kernelcast.evaluation.report_page.limits import caveat, ceiling_note, verdict
from kernelcast.evaluation.report_page.packing import packed
from kernelcast.evaluation.report_page.payload import payload
from kernelcast.evaluation.results import Results
from kernelcast.evaluation.standings import Board
from kernelcast.evaluation.tuning_comparison import compare_tunings
from kernelcast.evaluation.tuning_curves import Tunings
from kernelcast.evaluation.tuning_table import tuning_board
from kernelcast.records import Measurements

TEMPLATE = "page.html.j2"
STYLE = "page.css"
SCRIPTS = (
    "data.js", "theme.js", "columns.js", "scatter.js", "details.js", "parity.js", "explorer.js", "workloads.js",
    "start.js",
)  # fmt: skip
"""In the order in which they are put into the page."""


@dataclass(frozen=True)
class Wrong:
    """Where one model is most wrong on one split, as the page says it.

    Attributes:
        predicted: of the model.
        programs: single ones.
        losses: workloads in which following it costs.
        sentences: what the wrong ones have in common; empty where they are too few to say.
        trust: how far these sentences go.
    """

    predicted: Predicted
    programs: list[wrong.WrongProgram]
    losses: list[wrong.Loss]
    sentences: list[str]
    trust: str


def render_report(
    measurements: Measurements,
    results: Results,
    predictions: pa.Table,
    curves: Curves,
    tunings: Tunings | None = None,
    store: Store | None = None,
) -> str:
    """The whole page as HTML.

    Args:
        measurements: the campaign.
        results: what `evaluate` found.
        predictions: of every model, columns of `PREDICTION_SCHEMA`.
        curves: learning curves by split and folder of the model.
        tunings: that were finished; None where there is none.
        store: the graphs; None where they are not at hand, which the page says.
    """
    explored = explored_programs(measurements, results, predictions, store)
    machine = store.programs.machines[0] if store is not None and len(store.programs.machines) == 1 else None
    top = headline(results)
    # what the summary is about comes first
    ordered = sorted(results.splits, key=lambda result: result.split != top.split)
    return (
        environment()
        .get_template(TEMPLATE)
        .render(
            **_campaign(measurements, results),
            plotly=get_plotlyjs(),
            style=file_text(STYLE),
            script="".join(map(file_text, SCRIPTS)),
            version=importlib.metadata.version("kernelcast"),
            headline=top,
            figures_of_merit=key_figures(results, top, measurements),
            results=results,
            explored=explored,
            unpredicted=unpredicted(results, explored),
            best=top.best.model if top.best else "",
            wrong=wrongs(explored, top),
            boards=[standings.split_boards(result, results.confidence) for result in ordered],
            ceiling=ceiling_note(results),
            verdicts=[verdict(result) for result in results.splits],
            caveats=[caveat(result) for result in results.splits],
            tuning=None if tunings is None else comparison_board(tunings, results),
            charts={
                chart.name: chart
                for chart in (
                    charts.leaderboard(results),
                    charts.learning_plots(charts.first_seeds(curves, results)),
                    *([charts.tuning_plots(tunings)] if tunings else []),
                )
            }
            | _campaign_charts(measurements, results),
            data=packed(payload(explored, results, machine)),
        )
    )


def environment() -> jinja2.Environment:
    """What renders the template: everything is escaped, and nothing may be missing."""
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(file_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percentage": table.percentage, "number": table.number, "duration": duration, "breakable": breakable,
    }  # fmt: skip
    return made


def breakable(name: str) -> markupsafe.Markup:
    """A long name that may go on in the next line where one of its words ends."""
    words: list[str] = re.split(r"(?<=[-_.])", name)
    return markupsafe.Markup("<wbr>").join(words)


def file_text(name: str) -> str:
    """A file beside this module."""
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _campaign(measurements: Measurements, results: Results) -> dict[str, Any]:
    states = machine_states(measurements)
    return {
        "campaign": measurements.campaign,
        "tries": measurements.table.num_rows,
        "measured": measurements.measured.num_rows,
        "span": campaign.time_span(measurements),
        "outcomes": campaign.outcome_counts(measurements),
        "failures": campaign.failure_counts(measurements),
        "workloads": campaign.workload_counts(measurements),
        "origins": campaign.origin_counts(measurements),
        "devices": campaign.device_counts(measurements),
        "targets": campaign.target_counts(measurements),
        "care": campaign.care_taken(measurements),
        "spread": campaign.spread_summary(measurements, results.spread_limit),
        "state": state_sentence(states),
        "drift": drift_sentence(states),
        "noise": table.noise_sentence(results),
    }


def _campaign_charts(measurements: Measurements, results: Results) -> dict[str, charts.Chart]:
    states = machine_states(measurements)
    spread = campaign.spread_summary(measurements, results.spread_limit)
    found = [charts.state_plot(states), charts.speeds_plot(states)] if states else []
    return {chart.name: chart for chart in (*found, *([charts.spread_plot(spread)] if spread else []))}


def key_figures(results: Results, top: Headline, measurements: Measurements) -> list[tuple[str, str, str]]:
    """The figures beside the summary: label, value, and what it means."""
    tries, measured = measurements.table.num_rows, measurements.measured.num_rows
    failed = f"{(tries - measured) / tries:.1%} of the tries failed" if tries > measured else "no try failed"
    figures = [("Programs measured", f"{measured:,}", failed)]
    if top.best is not None:
        tau = top.best.metrics["kendall_tau"]
        figures.append(
            ("Best tau", f"{tau.value:.2f}", f"{tau.low:.2f} to {tau.high:.2f}; {top.best.model}, {top.split} split")
        )
        if "top_1" in top.best.metrics:
            score = top.best.metrics["top_1"]
            figures.append(("Top-1 score", f"{score.value:.2f}", "best time over that of its first choice"))
    if results.noise is not None:
        noise = results.noise.ratio_median.value
        figures.append(("Noise", f"{noise - 1:.1%}", "median difference of two measurements of a program"))
    return figures


def wrongs(explored: Explored, top: Headline) -> list[Wrong]:
    """Where each model is most wrong; the best model of the summary first."""
    ordered = sorted(
        explored.predicted, key=lambda p: (p.split != top.split, top.best is None or p.model != top.best.model)
    )
    found = []
    for predicted in ordered:
        explanation = surrogate.explain(explored, predicted)
        found.append(
            Wrong(
                predicted,
                wrong.worst_programs(explored, predicted),
                wrong.losses(explored, predicted),
                [] if explanation is None else list(surrogate.sentences(explanation)),
                "" if explanation is None else surrogate.trust_sentence(explanation),
            )
        )
    return found


def unpredicted(results: Results, explored: Explored) -> list[str]:
    """Models that were scored and have no predictions in the file: they have no points."""
    known = {(predicted.split, predicted.model) for predicted in explored.predicted}
    return [
        f"{model.model} ({result.split} split)"
        for result in results.splits
        for model in result.models
        if model.seeds and (result.split, model.model) not in known
    ]


def comparison_board(tunings: Tunings, results: Results) -> Board:
    """The methods of tuning side by side, with intervals as the leaderboard has them."""
    return tuning_board(compare_tunings(tunings, Bootstrap(results.bootstrap_samples, results.confidence, 0)))
