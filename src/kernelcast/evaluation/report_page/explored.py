"""Every program that the page can show as a point: what was measured, what is known of it, what each model said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Float64, Int64

from kernelcast.evaluation.predictions import predictions_of
from kernelcast.evaluation.report_page.columns import program_columns
from kernelcast.evaluation.report_page.schedule import schedule_words
from kernelcast.evaluation.results import ModelResult, Results
from kernelcast.graphs.dataset.labels import faults
from kernelcast.graphs.dataset.repeats import FIRST_VISIT, Repeats
from kernelcast.graphs.dataset.store import Description
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.splits import Split
from kernelcast.models.protocol import PredictionKind
from kernelcast.records import Measurements

UNKNOWN = "unknown"
ORIGINS = ("random", "evolved", "imported", UNKNOWN)
PARTS = ("train", "valid", "test", "left out")

NO_GRAPHS = (
    "data/graphs is not at hand, so the programs have no columns of their structure: flops, bytes, tiles. "
    "Run `dvc repro graphs`, then `dvc repro report`."
)
NO_FEATURES = (
    "The graphs have no view `features`, so the programs have no columns of their structure: flops, bytes, tiles. "
    "Build them with `features` among features.views; programs of a TVM that this one cannot read have the trace alone."
)
NO_SCHEDULES = "{} programs are not among the measurements of this report, so their schedules are not shown."


@dataclass(frozen=True)
class Store:
    """A folder of graphs.

    Attributes:
        programs: of it.
        description: of it.
        splits: by name.
    """

    programs: Programs
    description: Description
    splits: Mapping[str, Split] = field(default_factory=dict)


@dataclass(frozen=True)
class Predicted:
    """What one model said of the test programs of a split, by its first seed.

    Attributes:
        split: name of the split.
        model: name of the model.
        of_time: whether its predictions are times.
        rows: places of the programs among the explored.
        log_seconds: what it predicted; only where `of_time`.
        log_ranked_as: the time of the place in its workload at which the model puts the program: what it would take if
            the model had the order right. This puts models of order and of time on one scale.
    """

    split: str
    model: str
    of_time: bool
    rows: Int64[np.ndarray, "tested"]
    log_seconds: Float64[np.ndarray, "tested"] | None
    log_ranked_as: Float64[np.ndarray, "tested"]

    @property
    def log_claimed(self) -> Float64[np.ndarray, "tested"]:
        """The predicted time, or the time of the predicted place for a model of order."""
        return self.log_ranked_as if self.log_seconds is None else self.log_seconds


@dataclass(frozen=True)
class Explored:
    """Measured programs, one row each.

    Attributes:
        key: structural hash.
        log_seconds: the label.
        workload: index into the names.
        workload_names: of all workloads.
        kinds: of the workloads' operators.
        networks: of each workload, those that run it.
        origin: index into `ORIGINS`.
        spread: interquartile range over median of the repeats; NaN where nobody knows.
        schedules: in words; empty where nobody knows.
        columns: values of `columns.COLUMNS` by name.
        parts: index into `PARTS`, by split.
        predicted: of every model that was evaluated, in the order of the leaderboards.
        notes: what is missing, in sentences.
    """

    key: np.ndarray
    log_seconds: Float64[np.ndarray, "programs"]
    workload: Int64[np.ndarray, "programs"]
    workload_names: tuple[str, ...]
    kinds: tuple[str, ...]
    networks: tuple[tuple[str, ...], ...]
    origin: Int64[np.ndarray, "programs"]
    spread: Float64[np.ndarray, "programs"]
    schedules: list[str]
    columns: Mapping[str, Float32[np.ndarray, "programs"]]
    parts: Mapping[str, Int64[np.ndarray, "programs"]]
    predicted: tuple[Predicted, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.log_seconds)

    def seconds(self, row: int) -> float:
        """The label of one program as a time."""
        return math.exp(float(self.log_seconds[row]))


def explored_programs(
    measurements: Measurements, results: Results, predictions: pa.Table, store: Store | None
) -> Explored:
    """Joins what is known of each program; the programs are those of the graphs, without these the measured ones."""
    base = _of_measurements(measurements) if store is None else _of_store(store)
    measured = _facts(measurements, base.key)
    missing = sum(not words for words in measured.schedules)
    notes = list(base.notes) + ([NO_SCHEDULES.format(f"{missing:,}")] if missing else [])
    return Explored(
        key=base.key,
        log_seconds=base.log_seconds,
        workload=base.workload,
        workload_names=base.names,
        kinds=base.kinds,
        networks=base.networks,
        origin=measured.origin,
        spread=measured.spread,
        schedules=measured.schedules,
        columns=base.columns,
        parts=base.parts,
        predicted=predicted_by(results, predictions, base.key, base.log_seconds),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Base:
    key: np.ndarray
    log_seconds: Float64[np.ndarray, "programs"]
    workload: Int64[np.ndarray, "programs"]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    networks: tuple[tuple[str, ...], ...]
    columns: dict[str, Float32[np.ndarray, "programs"]]
    parts: dict[str, Int64[np.ndarray, "programs"]]
    notes: tuple[str, ...] = ()


def _of_store(store: Store) -> _Base:
    programs, workloads = store.programs, store.description.workloads
    columns = program_columns(programs, store.description.options.log_scale)
    return _Base(
        key=np.array([str(key) for key in programs.program_key], dtype=object),
        log_seconds=np.asarray(programs.log_seconds, dtype=np.float64),
        workload=np.asarray(programs.workload, dtype=np.int64),
        names=programs.workload_names,
        kinds=tuple(workload.kind for workload in workloads),
        networks=tuple(tuple(workload.networks) for workload in workloads),
        columns=columns,
        parts={name: _part_of(split, len(programs)) for name, split in store.splits.items()},
        notes=() if columns else (NO_FEATURES,),
    )


def _part_of(split: Split, count: int) -> Int64[np.ndarray, "programs"]:
    part = np.full(count, PARTS.index("left out"), dtype=np.int64)
    for name, rows in split.parts():
        part[rows] = PARTS.index(name)
    return part


def _of_measurements(measurements: Measurements) -> _Base:
    """The measured programs with the minimum of their first visit, as graphs have them unless told otherwise."""
    table = measurements.measured
    first = Repeats.of(table)
    first = first.select(first.visit == FIRST_VISIT)
    first = first.select((faults(first) == "")[first.row])
    (seconds,) = first.quantiles(0.0)
    timed = np.flatnonzero(np.isfinite(seconds) & (first.counts > 0))
    table = table.take(pa.array(timed))
    names = table["workload_name"].combine_chunks().dictionary_encode()
    number = np.asarray(names.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    known = list(names.dictionary.to_pylist())
    kinds = dict(zip(table["workload_name"].to_pylist(), table["workload_kind"].to_pylist(), strict=True))
    networks = {workload.name: tuple(workload.networks) for workload in measurements.workloads.values()}
    return _Base(
        key=np.array(table["program_key"].to_pylist(), dtype=object),
        log_seconds=np.log(seconds[timed]),
        workload=number,
        names=tuple(known),
        kinds=tuple(kinds[name] for name in known),
        networks=tuple(networks.get(name, ()) for name in known),
        columns={},
        parts={},
        notes=(NO_GRAPHS,),
    )


@dataclass(frozen=True)
class _Facts:
    origin: Int64[np.ndarray, "programs"]
    spread: Float64[np.ndarray, "programs"]
    schedules: list[str]


def _facts(measurements: Measurements, keys: np.ndarray) -> _Facts:
    """What the measurements say of each program; unknown where they do not hold it."""
    columns = ("program_key", "origin", "spread", "trace")
    found = {
        row[0]: row[1:] for row in zip(*(measurements.measured[name].to_pylist() for name in columns), strict=True)
    }
    nothing = (UNKNOWN, None, None)
    rows = [found.get(key, nothing) for key in keys]
    return _Facts(
        origin=np.array([ORIGINS.index(row[0] if row[0] in ORIGINS else UNKNOWN) for row in rows], dtype=np.int64),
        spread=np.array([np.nan if row[1] is None else row[1] for row in rows], dtype=np.float64),
        schedules=["" if row[2] is None else schedule_words(row[2]) for row in rows],
    )


def predicted_by(
    results: Results, predictions: pa.Table, keys: np.ndarray, log_seconds: Float64[np.ndarray, "programs"]
) -> tuple[Predicted, ...]:
    """The predictions of every model, found again among the programs."""
    # one program measured on two targets has one key and two labels
    exact = {pair: row for row, pair in enumerate(zip(keys, log_seconds.tolist(), strict=True))}
    by_key = {key: row for row, key in enumerate(keys)}
    found = []
    for result in results.splits:
        for model in result.models:
            if model.seeds:
                made = _predicted(predictions, result.split, model, exact, by_key)
                if made is not None:
                    found.append(made)
    return tuple(found)


def _predicted(
    predictions: pa.Table,
    split: str,
    model: ModelResult,
    exact: Mapping[tuple[str, float], int],
    by_key: Mapping[str, int],
) -> Predicted | None:
    table = predictions_of(predictions, split, model.model, model.seeds[0])
    keys, truth = table["program_key"].to_pylist(), table["log_seconds"].to_numpy()
    rows = np.array(
        [exact.get((key, label), by_key.get(key, -1)) for key, label in zip(keys, truth.tolist(), strict=True)],
        dtype=np.int64,
    )
    if not (rows >= 0).any():
        return None
    predicted = table["prediction"].to_numpy()
    ranked = ranked_as(truth, predicted, table["workload"].to_pylist())
    of_time = model.kind == PredictionKind.LOG_SECONDS
    known = rows >= 0
    return Predicted(
        split,
        model.model,
        of_time,
        rows[known],
        np.clip(predicted[known], -60.0, 60.0) if of_time else None,
        ranked[known],
    )


def ranked_as(
    log_seconds: Float64[np.ndarray, "tested"], predicted: Float64[np.ndarray, "tested"], workloads: Sequence[str]
) -> Float64[np.ndarray, "tested"]:
    """For each program the time of the one that truly has its predicted place in the workload.

    Programs with equal predictions share the middle of their places.
    """
    claimed = np.empty(len(predicted))
    _, number = np.unique(np.asarray(workloads, dtype=object), return_inverse=True)
    for workload in range(number.max() + 1 if len(number) else 0):
        rows = np.flatnonzero(number == workload)
        _, group, counts = np.unique(predicted[rows], return_inverse=True, return_counts=True)
        place = (np.cumsum(counts) - (counts + 1) / 2)[group]
        claimed[rows] = np.interp(place, np.arange(len(rows)), np.sort(log_seconds[rows]))
    return claimed
