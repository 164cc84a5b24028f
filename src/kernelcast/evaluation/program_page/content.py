"""One program as plain data for the page: every array that a model gets, and the program's place among its peers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from kernelcast.evaluation.program_page.choosing import peers
from kernelcast.evaluation.program_page.columns import described
from kernelcast.graphs.dataset.store import Description
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.views import MACHINE_CODE, AstGraphs, DataflowGraphs, StatementRows

MOST_PEERS = 5000
"""Percentiles compare with so many programs of the workload at most, evenly spaced by time."""

MOST_GRAPHS = 500
"""So many of them where whole graphs have to be read for it."""

STRIP_POINTS = 400
"""Times of peers that are drawn; more lie on top of each other."""

FLAT_VIEWS = ("features", MACHINE_CODE)
STATEMENT_VIEWS = ("statements", "per_store")


def program_data(
    programs: Programs,
    description: Description,
    row: int,
    splits: Mapping[str, str] | None = None,
    source: str | None = None,
) -> dict[str, Any]:
    """Everything that the page shows of one program.

    Args:
        programs: of the store.
        description: of the store.
        row: the program.
        splits: which part of which split the program is in.
        source: its TensorIR as text, None where that is not at hand.
    """
    others = peers(programs, row)
    workload = description.workloads[int(programs.workload[row])]
    target = description.targets[int(programs.target[row])]
    compared = others[np.unique(np.linspace(0, len(others) - 1, min(len(others), MOST_PEERS)).round().astype(np.int64))]
    seconds = np.exp(programs.log_seconds[others].astype(np.float64))
    strip = np.unique(np.linspace(0, len(others) - 1, min(len(others), STRIP_POINTS)).round().astype(np.int64))
    data: dict[str, Any] = {
        "key": str(programs.program_key[row]),
        "workload": workload.name,
        "kind": workload.kind,
        "arguments": {name: str(value) for name, value in workload.arguments.items()},
        "networks": workload.networks,
        "target": {name: str(value) for name, value in target.target.items()},
        "host": target.host,
        "seconds": math.exp(float(programs.log_seconds[row])),
        "rank": int(np.flatnonzero(others == row)[0]) + 1,
        "of": len(others),
        "peer_seconds": [_number(value) for value in seconds[strip]],
        "splits": dict(splits or {}),
        "source": source,
    }
    one = np.array([row], dtype=np.int64)
    if "ast" in programs.sources:
        data["ast"] = _tree(programs.view("ast", one))
    if "dataflow" in programs.sources:
        data["dataflow"] = _dataflow(programs.view("dataflow", one))
    for name in FLAT_VIEWS:
        if name in programs.sources:
            values, all_values = programs.view(name, one).values, programs.view(name, compared).values
            data[name] = _placed(values[0], all_values)
    for name in STATEMENT_VIEWS:
        if name in programs.sources:
            data[name] = _statements(programs.view(name, one), programs.view(name, compared))
    if "trace" in programs.sources:
        trace = programs.view("trace", one)
        data["trace"] = {"primitive": trace.primitive.tolist(), "values": [_row(step) for step in trace.values]}
    kernel = kernel_view(programs)
    if kernel:
        values = programs.view(kernel, one).kernel_features
        # nodes and edges of the peers are not needed, but a view is gathered as a whole: fewer of them do
        some = compared[:: math.ceil(len(compared) / MOST_GRAPHS)]
        all_values = programs.view(kernel, some).kernel_features
        data["kernel"] = _placed(values[0], all_values)
    return data


def kernel_view(programs: Programs) -> str:
    """The view that has features of the program as a whole; empty where none does."""
    for name in ("ast", "dataflow"):
        if name in programs.sources and programs.columns(name)["kernel_names"]:
            return name
    return ""


def column_data(programs: Programs, description: Description) -> dict[str, list[dict[str, str]]]:
    """What the columns of every view say."""
    fields = {"ast": "feature_names", "dataflow": "feature_names"}
    named = {view: programs.columns(view)[fields.get(view, "names")] for view in programs.sources}
    kernel = kernel_view(programs)
    if kernel:
        named["kernel"] = programs.columns(kernel)["kernel_names"]
    return {
        view: [dataclasses.asdict(column) for column in described(names, view, description.options)]
        for view, names in named.items()
    }


def percentiles(
    values: Float32[np.ndarray, " columns"], among: Float32[np.ndarray, "programs columns"]
) -> list[float | None]:
    """Which percentage of the programs has less in each column, ties counted half; None where all are equal."""
    below, equal = (among < values).mean(axis=0), (among == values).mean(axis=0)
    return [
        None if same == 1 else round(100 * float(less + same / 2), 1) for less, same in zip(below, equal, strict=True)
    ]


def _placed(values: Float32[np.ndarray, " columns"], among: Float32[np.ndarray, "programs columns"]) -> dict[str, Any]:
    """One row with its percentiles."""
    return {"values": _row(values), "percentiles": percentiles(values, among), "compared": len(among)}


def _tree(view: AstGraphs) -> dict[str, Any]:
    return {
        "kind": view.node_kind.tolist(),
        "parent": view.node_parent.tolist(),
        "values": [_row(node) for node in view.node_features],
        "edges": _edges(view),
    }


def _dataflow(view: DataflowGraphs) -> dict[str, Any]:
    return {
        "kind": view.node_opcode.tolist(),
        "values": [_row(node) for node in view.node_features],
        "edges": _edges(view),
    }


def _edges(view: AstGraphs | DataflowGraphs) -> dict[str, list[list[int]]]:
    """Source and target of the edges of each kind."""
    kinds = view.edge_kind.astype(np.int64)
    pairs = np.stack([view.edge_source, view.edge_target], axis=1)
    return {str(kind): pairs[kinds == kind].tolist() for kind in np.unique(kinds).tolist()}


def _statements(view: StatementRows, all_views: StatementRows) -> dict[str, Any]:
    """The rows of one program; where the sum of what the model gets lies among the peers' sums."""
    return {
        "values": [_row(statement) for statement in view.values],
        "percentiles": percentiles(_sums(view)[0], _sums(all_views)),
        "compared": len(all_views),
    }


def _sums(view: StatementRows) -> Float32[np.ndarray, "programs columns"]:
    before = np.zeros((len(view.values) + 1, view.values.shape[1]), dtype=np.float64)
    np.cumsum(view.values, axis=0, out=before[1:])
    offset: Int64[np.ndarray, " programs_plus_1"] = np.asarray(view.row_offset)
    sums: Float64[np.ndarray, "programs columns"] = before[offset[1:]] - before[offset[:-1]]
    # differences of running sums differ in their last digits where the rows are the same
    return sums.round(3).astype(np.float32)


def _row(values: Sequence[Any] | np.ndarray) -> list[float | str]:
    return [_number(value) for value in np.asarray(values)]


def _number(value: Any) -> float | str:
    """The shortest number that reads back as the same float; what JSON cannot say becomes a text."""
    number = float(str(value))
    if not math.isfinite(number):
        return str(number)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
