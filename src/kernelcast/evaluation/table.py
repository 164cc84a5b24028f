"""The results as tables: on the terminal, as CSV in wide and long form, as JSON for `dvc metrics`."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.noise import Source
from kernelcast.evaluation.palette import split_title
from kernelcast.evaluation.results import CEILINGS, ModelResult, Results, Role, SplitResult
from kernelcast.evaluation.summary import METRICS
from kernelcast.files import atomic_file

HEADINGS = {
    "kendall_tau": "tau",
    "pairwise_accuracy": "pairs",
    "top_1": "top-1",
    "top_5": "top-5",
    "mape": "MAPE",
    "log_rmse": "log RMSE",
}
"""Short names of the metrics for table heads."""

ABSENT = "-"
"""Shown where a value is not defined."""


def terminal_tables(results: Results) -> list[Table]:
    """One table a split, best Kendall's tau first, and one of the models that are missing."""
    tables = [_split_table(result, results.confidence) for result in results.splits]
    if results.missing:
        missing = Table(title="not evaluated", title_justify="left")
        for column in ("split", "model", "reason"):
            missing.add_column(column, overflow="fold")
        for entry in results.missing:
            missing.add_row(*map(Text, (entry.split, entry.model, entry.reason)))
        tables.append(missing)
    return tables


def _split_table(result: SplitResult, confidence: float) -> Table:
    table = Table(
        title=split_title(result.split, result.known_workloads),
        title_justify="left",
        caption=escape(split_caption(result, confidence)),
        caption_justify="left",
    )
    table.add_column("model", no_wrap=True)
    for metric in METRICS:
        wide = metric.name == "kendall_tau"
        table.add_column(
            f"tau [{confidence:.0%} interval]" if wide else HEADINGS[metric.name], justify="right", no_wrap=True
        )
    table.add_column("train", justify="right", no_wrap=True)
    table.add_column("predict", justify="right", no_wrap=True)
    for model in result.models:
        table.add_row(*row_texts(model), style={Role.LEARNED: "bold", Role.CEILING: "dim"}.get(model.role, ""))
    return table


def split_caption(result: SplitResult, confidence: float) -> str:
    """What stands behind the numbers of one split, in one or two sentences."""
    workloads = len(result.test_workloads)
    text = (
        f"{result.test_programs} test programs of {workloads} workload{'s' * (workloads != 1)}, "
        f"{result.train_programs} programs to train on. Means over workloads; "
        f"{confidence:.0%} bootstrap intervals over {result.resampling}."
    )
    for again in result.models:
        if again.role == Role.CEILING and again.model == CEILINGS[Source.VISITS]:
            text += (
                f" {again.model}: {again.programs} programs of {len(again.per_workload)} of these workloads, those "
                "that models learn from among them; tau and pairs pooled over the workloads."
            )
    if result.unranked:
        text += f" Not ranked, for want of two different times: {', '.join(result.unranked)}."
    return text


def noise_sentence(results: Results) -> str:
    """How far two measurements of one program are apart."""
    noise = results.noise
    if noise is None:
        return (
            "No noise ceiling: no program was measured twice, neither in a later visit nor in a second round, so "
            "nothing says how well a measurement repeats."
        )
    if noise.source == Source.VISITS:
        what = "Noise: the same program built and measured again, batches or hours later, differs"
    else:
        what = (
            "Noise: no program was measured again, so even rounds stand against odd rounds of the same minutes, which "
            "does not see a state of the machine that lasts; they differ"
        )
    programs = f"{noise.programs} program{'s' * (noise.programs != 1)}"
    text = (
        f"{what} by a factor of {_interval(noise.ratio_median)} at the median and {_interval(noise.ratio_p90)} at the "
        f"90th percentile, over {programs} of {len(noise.workloads)} workload{'s' * (len(noise.workloads) != 1)} "
        f"({results.confidence:.0%} intervals)."
    )
    if noise.kendall_tau is None:
        return text + " No two of them belong to one workload, so nothing can be said about their order."
    return text + (
        f" Kendall's tau between both is {_interval(noise.kendall_tau)}, over the {noise.comparisons} "
        f"pair{'s' * (noise.comparisons != 1)} of these programs within a workload."
    )


def _interval(estimate: Estimate) -> str:
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"


def row_texts(model: ModelResult) -> list[str]:
    """The cells of one model: name, metrics in the order of `METRICS`, seconds to train, microseconds to predict."""
    cells = [model.model]
    for metric in METRICS:
        estimate = model.metrics.get(metric.name)
        if estimate is None:
            cells.append(ABSENT)
        elif metric.name == "kendall_tau":
            cells.append(_interval(estimate))
        elif metric.name == "mape":
            cells.append(percentage(estimate.value))
        else:
            cells.append(number(estimate.value))
    cells.append(ABSENT if model.train_seconds is None else f"{model.train_seconds:.1f} s")
    cells.append(ABSENT if model.predict_microseconds is None else f"{short(model.predict_microseconds)} µs")
    return cells


def percentage(share: float) -> str:
    """A share as a percentage; an absurd one as a power of ten."""
    return f"{share:.1%}" if share < 100 else f"{100 * share:.0e}%"


def number(value: float) -> str:
    """Three digits after the point; an absurd value as a power of ten."""
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.0e}"


def short(value: float) -> str:
    """Whole from 10 on, else two digits that say something."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def nested_metrics(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """`split.model.metric` to number, for `dvc metrics`; what is not defined is absent."""
    return {result.split: {model.model: model_metrics(model) for model in result.models} for result in results.splits}


def model_metrics(model: ModelResult) -> dict[str, float]:
    """Every number of one model by name; the interval of tau beside it."""
    values = {name: estimate.value for name, estimate in model.metrics.items()}
    if "kendall_tau" in model.metrics:
        values["kendall_tau_low"] = model.metrics["kendall_tau"].low
        values["kendall_tau_high"] = model.metrics["kendall_tau"].high
    if model.train_seconds is not None:
        values["train_seconds"] = model.train_seconds
    if model.predict_microseconds is not None:
        values["predict_microseconds"] = model.predict_microseconds
    return values


def wide_rows(results: Results) -> list[dict[str, Any]]:
    """One row a split and model: every metric with both ends of its interval."""
    rows = []
    for result in results.splits:
        for model in result.models:
            row: dict[str, Any] = {
                "split": result.split,
                "model": model.model,
                # one label for both, for plots that take a single column
                "name": f"{model.model} ({result.split})",
                "role": model.role.value,
                "predicts": model.kind,
                "loss": model.loss,
                "test_programs": model.programs,
                "test_workloads": len(model.per_workload),
                "train_seconds": model.train_seconds,
                "predict_microseconds": model.predict_microseconds,
            }
            for metric in METRICS:
                estimate = model.metrics.get(metric.name)
                for suffix, end in (("", "value"), ("_low", "low"), ("_high", "high")):
                    row[metric.name + suffix] = getattr(estimate, end) if estimate else None
            rows.append(row)
    return rows


def long_rows(results: Results) -> list[dict[str, Any]]:
    """One row a split, model and metric: value, interval and the noise ceiling of that metric."""
    rows = []
    for result in results.splits:
        ceilings = [model for model in result.models if model.role == Role.CEILING]
        for model in result.models:
            for name, estimate in model.metrics.items():
                ceiling = ceilings[0].metrics.get(name) if ceilings else None
                rows.append(
                    {
                        "split": result.split,
                        "model": model.model,
                        "metric": name,
                        "value": estimate.value,
                        "low": estimate.low,
                        "high": estimate.high,
                        "noise_ceiling": ceiling.value if ceiling else None,
                    }
                )
    return rows


def per_workload_rows(results: Results) -> list[dict[str, Any]]:
    """One row a split, model and workload."""
    return [
        {
            "split": result.split,
            "model": model.model,
            "workload": scores.workload,
            "test_programs": scores.programs,
            **{metric.name: scores.metrics.get(metric.name) for metric in METRICS},
        }
        for result in results.splits
        for model in result.models
        for scores in model.per_workload
    ]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Writes rows as CSV, atomically; None becomes an empty cell. Columns are those of the first row unless given."""
    with atomic_file(path) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(columns or rows[0]))
        writer.writeheader()
        writer.writerows(rows)
