"""The results as tables: texts of cells and captions, CSV in wide and long form, JSON for `dvc metrics`."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelcast.evaluation.aggregation import Aggregation
from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.noise import Source
from kernelcast.evaluation.results import CEILINGS, ModelResult, Results, Role, SplitResult
from kernelcast.evaluation.shares import share_of
from kernelcast.evaluation.summary import METRICS, Metric
from kernelcast.files import atomic_file

ABSENT = "-"
"""Shown where a value is not defined."""

MOST_NAMED = 3
"""So many workloads a caption names; more are a number, and all are in the files of `evaluate`."""


def split_caption(result: SplitResult, confidence: float) -> str:
    """What stands behind the numbers of one split, in one or two sentences."""
    workloads = len(result.test_workloads)
    seeds = sorted({len(model.seeds) for model in result.models if model.seeds})
    drawn = result.resampling
    if seeds and seeds[-1] > 1:
        counts = " to ".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))
        drawn = f"{drawn.replace(' and ', ', ')} and seeds ({counts} a model)"
    text = (
        f"{result.test_programs:,} test programs of {workloads} workload{'s' * (workloads != 1)}, "
        f"{result.train_programs:,} programs to train on. Means over workloads; "
        f"{confidence:.0%} bootstrap intervals over {drawn}."
    )
    for again in result.models:
        if again.role == Role.CEILING and again.model == CEILINGS[Source.VISITS]:
            text += (
                f" {again.model}: {again.programs:,} programs of {len(again.per_workload)} of these workloads, those "
                "that models learn from among them; tau and accuracies pooled over the workloads."
            )
    if result.unranked:
        named = ", ".join(result.unranked[:MOST_NAMED])
        more = len(result.unranked) - MOST_NAMED
        text += f" Not ranked, for want of two different times: {named}" + (f" and {more} more." if more > 0 else ".")
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
    programs = f"{noise.programs:,} program{'s' * (noise.programs != 1)}"
    text = (
        f"{what} by a factor of {interval(noise.ratio_median)} at the median and {interval(noise.ratio_p90)} at the "
        f"90th percentile, over {programs} of {len(noise.workloads)} workload{'s' * (len(noise.workloads) != 1)} "
        f"({results.confidence:.0%} intervals)."
    )
    if noise.kendall_tau is None:
        return text + " No two of them belong to one workload, so nothing can be said about their order."
    return text + (
        f" Kendall's tau between both is {interval(noise.kendall_tau)}, over the {noise.comparisons:,} "
        f"pair{'s' * (noise.comparisons != 1)} of these programs within a workload."
    )


def interval(estimate: Estimate) -> str:
    """A value with both ends of its interval."""
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"


def metric_text(metric: Metric, value: float) -> str:
    """A value as a reader sees it: errors of time as percentages."""
    return percentage(value) if metric.is_share else number(value)


def seconds_text(model: ModelResult) -> str:
    """Seconds to train."""
    return ABSENT if model.train_seconds is None else f"{short(model.train_seconds)} s"


def microseconds_text(model: ModelResult) -> str:
    """Microseconds to predict one program."""
    return ABSENT if model.predict_microseconds is None else f"{short(model.predict_microseconds)} µs"


def share_text(model: ModelResult, ceiling: ModelResult | None, metric: str) -> str:
    """Share of the noise ceiling."""
    share = None if ceiling is None or model is ceiling else share_of(metric, model.metrics, ceiling.metrics)
    return ABSENT if share is None else f"{share:.0%}"


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
                "seeds": len(model.seeds) or None,
                "test_programs": model.programs,
                "test_workloads": len(model.per_workload),
                "train_seconds": model.train_seconds,
                "predict_microseconds": model.predict_microseconds,
            }
            rows.append(row | interval_cells(model.metrics))
    return rows


def interval_cells(metrics: Mapping[str, Estimate]) -> dict[str, Any]:
    """A cell for every metric and both ends of its interval; None where it is not defined."""
    cells = {}
    for metric in METRICS:
        estimate = metrics.get(metric.name)
        for suffix, end in (("", "value"), ("_low", "low"), ("_high", "high")):
            cells[metric.name + suffix] = getattr(estimate, end) if estimate else None
    return cells


def long_rows(results: Results) -> list[dict[str, Any]]:
    """One row a split, model, metric and way to count workloads: value, interval, noise ceiling and the share of it.

    The seconds of training and the microseconds of a prediction are metrics too, without interval or ceiling.
    """
    return [row for result in results.splits for model in result.models for row in _rows_of(result, model)]


def _rows_of(result: SplitResult, model: ModelResult) -> list[dict[str, Any]]:
    rows = []
    for aggregation in Aggregation:
        ceilings = {} if result.ceiling is None else result.ceiling.aggregated(aggregation)
        estimates = model.aggregated(aggregation)
        for name, estimate in estimates.items():
            share = None if model is result.ceiling else share_of(name, estimates, ceilings)
            row = _long_row(result, model, name, estimate.value, estimate.seed_deviation)
            rows.append(
                row
                | {
                    "low": estimate.low,
                    "high": estimate.high,
                    "noise_ceiling": ceilings[name].value if name in ceilings else None,
                    "share_of_ceiling": share,
                    "aggregation": aggregation.value,
                }
            )
    costs = ("train_seconds", "predict_microseconds")
    return rows + [
        _long_row(result, model, name, value, getattr(model, f"{name}_deviation"))
        for name in costs
        if (value := getattr(model, name)) is not None
    ]


def _long_row(
    result: SplitResult, model: ModelResult, metric: str, value: float, deviation: float | None
) -> dict[str, Any]:
    return {
        "split": result.split,
        "model": model.model,
        "metric": metric,
        "value": value,
        "low": None,
        "high": None,
        "noise_ceiling": None,
        "share_of_ceiling": None,
        "seeds": len(model.seeds) or None,
        "seed_deviation": deviation,
        "aggregation": "",
    }


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


NETWORK_COLUMNS = ("split", "model", "network", "test_workloads", "test_programs", *interval_cells({}))


def per_network_rows(results: Results) -> list[dict[str, Any]]:
    """One row a split, model and network: every metric with both ends of its interval."""
    return [
        {
            "split": result.split,
            "model": model.model,
            "network": scores.network,
            "test_workloads": scores.workloads,
            "test_programs": scores.programs,
            **interval_cells(scores.metrics),
        }
        for result in results.splits
        for model in result.models
        for scores in model.per_network
    ]


COMPARISON_COLUMNS = (
    "model", "other", "split", "metric", "difference", "low", "high", "workloads", "p", "p_holm",
)  # fmt: skip


def comparison_rows(results: Results) -> list[dict[str, Any]]:
    """One row a split, metric and pair of models."""
    return [
        {"split": result.split, **dataclasses.asdict(comparison)}
        for result in results.splits
        for comparison in result.comparisons
    ]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Writes rows as CSV, atomically; None becomes an empty cell. Columns are those of the first row unless given."""
    with atomic_file(path) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(columns or rows[0]))
        writer.writeheader()
        writer.writerows(rows)
