"""What the browser gets: every program as columns, what each model said of it, and the metrics by workload."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernelcast.evaluation.report_page.columns import COLUMNS
from kernelcast.evaluation.report_page.explored import ORIGINS, PARTS, Explored
from kernelcast.evaluation.report_page.packing import short_floats, smallest
from kernelcast.evaluation.results import ModelResult, Results, SplitResult
from kernelcast.evaluation.summary import METRICS, Metric
from kernelcast.graphs.programs import Machine

FAMILIES = (
    ("transposed convolution", ("conv1d_transpose", "conv2d_transpose", "conv3d_transpose")),
    ("depthwise convolution", ("depthwise", "group")),
    ("convolution", ("conv",)),
    ("matrix product", ("matmul", "dense", "gemm", "linear", "attention", "einsum")),
    ("pooling", ("pool",)),
    ("normalisation, reduction", ("softmax", "norm", "sum", "mean", "max_", "argmax", "variance", "reduce")),
)
"""Families of operators and words in the names of their kinds, by the heaviest operator: the first that fits counts."""

OTHER_FAMILY = "elementwise and others"


def family_of(kind: str) -> str:
    """The family of a kind of operator, fused ones too: there are too many kinds for a colour each."""
    return next((name for name, words in FAMILIES if any(word in kind for word in words)), OTHER_FAMILY)


def payload(explored: Explored, results: Results, machine: Machine | None) -> dict[str, Any]:
    """Everything that is drawn of single programs and workloads, for `packing.packed`."""
    return {
        "key": explored.key.tolist(),
        "microseconds": short_floats(1e6 * np.exp(explored.log_seconds)),
        "spread": short_floats(explored.spread),
        "workload": smallest(explored.workload),
        "origin": smallest(explored.origin),
        "schedule": explored.schedules,
        "workloads": [
            {"name": name, "kind": kind, "family": family_of(kind), "networks": list(networks)}
            for name, kind, networks in zip(explored.workload_names, explored.kinds, explored.networks, strict=True)
        ],
        "origins": list(ORIGINS),
        "part_names": list(PARTS),
        "parts": {split: smallest(part) for split, part in explored.parts.items()},
        "columns": [
            {
                "name": column.name,
                "label": column.label,
                "unit": column.unit,
                "log": column.log,
                "share": column.share,
                "values": short_floats(explored.columns[column.name]),
            }
            for column in COLUMNS
            if column.name in explored.columns
        ],
        "predicted": [
            {
                "split": predicted.split,
                "model": predicted.model,
                "of_time": predicted.of_time,
                "rows": smallest(predicted.rows),
                "claimed": short_floats(1e6 * np.exp(predicted.log_claimed)),
            }
            for predicted in explored.predicted
        ],
        "roof": None
        if machine is None
        else {"gflops": machine.peak_flops_per_second / 1e9, "gbytes": machine.bytes_per_second / 1e9},
        "by_workload": [table for result in results.splits for table in _tables(result)],
    }


def _tables(result: SplitResult) -> list[dict[str, Any]]:
    """One table a metric, of workloads and of networks."""
    tables = []
    for metric in METRICS:
        models = [model for model in result.models if metric.name in model.metrics]
        if models:
            columns = {model.model: _of_workloads(model, metric) for model in models}
            tables.append(_table(f"{result.split} split", metric, columns, list(result.test_workloads)))
    for metric in METRICS:
        models = [model for model in result.models if metric.name in model.over_networks and model.per_network]
        if models:
            columns = {model.model: _of_networks(model, metric) for model in models}
            names = sorted({name for column in columns.values() for name in column})
            tables.append(_table(f"{result.split} split, by network", metric, columns, names))
    return tables


def _of_workloads(model: ModelResult, metric: Metric) -> dict[str, float]:
    return {
        scores.workload: scores.metrics[metric.name] for scores in model.per_workload if metric.name in scores.metrics
    }


def _of_networks(model: ModelResult, metric: Metric) -> dict[str, float]:
    return {
        scores.network: scores.metrics[metric.name].value
        for scores in model.per_network
        if metric.name in scores.metrics
    }


def _table(group: str, metric: Metric, columns: dict[str, dict[str, float]], names: list[str]) -> dict[str, Any]:
    """Values row by row; rows without any are left out."""
    rows = [name for name in names if any(name in column for column in columns.values())]
    values = [column.get(name, math.nan) for name in rows for column in columns.values()]
    return {
        "group": group,
        "metric": metric.label,
        "share": metric.is_share,
        "signed": metric.by_chance == 0,
        "higher_is_better": metric.higher_is_better,
        "models": list(columns),
        "rows": rows,
        "values": short_floats(np.array(values)),
    }
