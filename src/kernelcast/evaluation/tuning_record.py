"""A comparison of tunings as the page of results shows it: `docs/results/tuning/NAME.json`.

Beside it lie all trials that it was made of (`NAME.parquet`), so that anyone can reckon again, and more tunings can
join them later, and its curves (`NAME.svg`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.evaluation.experiment_record import rounded
from kernelcast.evaluation.tuning_comparison import MethodResult, TuningComparison, censored_quantile, reach
from kernelcast.evaluation.tuning_curves import Tunings
from kernelcast.evaluation.tuning_table import caption
from kernelcast.files import read_json, write_json

RECORD_VERSION = 1
"""Version of the file; a change of its fields or of their meaning raises it."""


@dataclass(frozen=True)
class Span:
    """A figure and its interval; an end that is infinite is None.

    Attributes:
        value: None where fewer than half of the tunings get there.
        low: lower end.
        high: upper end.
    """

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class MethodRow:
    """One method on all subjects; see `tuning_comparison.MethodResult`.

    Attributes:
        method: its name.
        seeds: how many.
        most_trials: of its longest tuning.
        area: under the curve.
        final_speed: at the end of its trials.
        trials: until the reference's end is reached; None without a reference.
        ratio: wall time until then over that of the reference's whole tuning.
        reached: share of its tunings that get there.
        seconds: of a tuning.
        model_share: of these inside the model.
    """

    method: str
    seeds: int
    most_trials: int
    area: Span
    final_speed: Span
    trials: Span | None
    ratio: Span | None
    reached: float | None
    seconds: float
    model_share: float


@dataclass(frozen=True)
class SubjectCell:
    """One method on one workload or network.

    Attributes:
        best_seconds: at the end, the median of the seeds.
        made: trials until the end, the median of the seeds.
        trials: median until the reference's end is reached; None where fewer than half of the seeds get there.
    """

    best_seconds: float | None
    made: float
    trials: float | None


@dataclass(frozen=True)
class LatencyRow:
    """One contender that ran a whole network.

    Attributes:
        contender: what ran it.
        minimum_seconds: of a call.
        median_seconds: of a call.
    """

    contender: str
    minimum_seconds: float
    median_seconds: float


@dataclass(frozen=True)
class TuningRecord:
    """One published comparison.

    Attributes:
        version: `RECORD_VERSION` of the writer.
        name: of the file.
        title: heading of its section.
        caption: what stands behind the numbers.
        reference: the method whose end the others have to reach; None where it did not tune.
        methods: one row each.
        subjects: by name of the workload or network, and by method.
        latency: by name of the network, of the same method that published it; empty for workloads alone.
        measured_on: the processor.
        date: in UTC.
        revision: of the code.
        versions: of the libraries that decide.
    """

    version: int
    name: str
    title: str
    caption: str
    reference: str | None
    methods: tuple[MethodRow, ...]
    subjects: dict[str, dict[str, SubjectCell]]
    latency: dict[str, tuple[LatencyRow, ...]]
    measured_on: str
    date: str
    revision: str
    versions: dict[str, str]


def tuning_record(
    name: str,
    title: str,
    tunings: Tunings,
    comparison: TuningComparison,
    within: float,
    latency: Mapping[str, Sequence[LatencyRow]],
    made: Mapping[str, Any],
) -> TuningRecord:
    """The record of a comparison.

    Args:
        name: of the file.
        title: heading of its section.
        tunings: what was compared.
        comparison: what `compare_tunings` found.
        within: share above the target that counts as reaching it.
        latency: of whole networks, by name.
        made: the fields `measured_on`, `date`, `revision` and `versions`.
    """
    return TuningRecord(
        version=RECORD_VERSION,
        name=name,
        title=title,
        caption=caption(comparison),
        reference=None if comparison.reference_trials is None else comparison.reference,
        methods=tuple(_method_row(result, tunings) for result in comparison.methods),
        subjects=_subjects(tunings, comparison, within),
        latency={network: tuple(rows) for network, rows in latency.items()},
        **made,
    )


def _method_row(result: MethodResult, tunings: Tunings) -> MethodRow:
    found = result.reach
    return MethodRow(
        method=result.method,
        seeds=result.seeds,
        most_trials=max(len(run) for of_seed in tunings.of_method(result.method) for run in of_seed),
        area=_span(result.area),
        final_speed=_span(result.final_speed),
        trials=None if found is None else _span(found.trials),
        ratio=None if found is None else _span(found.ratio),
        reached=None if found is None else found.share.value,
        seconds=result.seconds,
        model_share=result.model_share,
    )


def _subjects(tunings: Tunings, comparison: TuningComparison, within: float) -> dict[str, dict[str, SubjectCell]]:
    cells: dict[str, dict[str, SubjectCell]] = {name: {} for name in tunings.subjects.values()}
    for method in tunings.methods:
        runs = tunings.of_method(method)
        found = None if comparison.reference_trials is None else reach(tunings, method, comparison.reference, within)
        for place, name in enumerate(tunings.subjects.values()):
            best = float(np.median([of_seed[place].best_seconds[-1] for of_seed in runs]))
            trials = math.inf
            if found is not None:
                once = np.ones((1, len(runs)))
                trials = float(censored_quantile(found.trials[:, place], found.reached[:, place], once, 0.5)[0])
            made = float(np.median([len(of_seed[place]) for of_seed in runs]))
            cells[name][method] = SubjectCell(_finite(best), made, _finite(trials))
    return cells


def _span(estimate: Any) -> Span:
    return Span(_finite(estimate.value), _finite(estimate.low), _finite(estimate.high))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write_tuning_record(directory: Path, record: TuningRecord) -> Path:
    """Writes the record, rounded: equal figures make equal files. Returns the file."""
    path = directory / f"{record.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, rounded(dataclasses.asdict(record)))
    return path


def published_trials_file(directory: Path, name: str) -> Path:
    """Where the trials of a published comparison are; of some older ones they are not there."""
    return directory / f"{name}.parquet"


def figure_file(directory: Path, name: str) -> Path:
    """Where the curves of a published comparison are; of some older ones they are not there."""
    return directory / f"{name}.svg"


def read_tuning_record(directory: Path, name: str) -> TuningRecord:
    """The record of one published comparison.

    Raises:
        MissingInputError: nothing was published under that name.
        MalformedDataError: as of `read_tuning_records`.
    """
    path = directory / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(other.stem for other in directory.glob("*.json")))
        raise MissingInputError(f"published={name}: there is no {path}; published are: {known or 'none'}")
    return _read(path)


def read_tuning_records(directory: Path) -> list[TuningRecord]:
    """The records of all published comparisons, by name.

    Raises:
        MalformedDataError: a file is of another version or lacks a field.
    """
    return [_read(path) for path in sorted(directory.glob("*.json"))]


def _read(path: Path) -> TuningRecord:
    stored = read_json(path, "compare")
    try:
        if stored["version"] != RECORD_VERSION:
            raise ValueError(f"version {stored['version']}, this kernelcast reads {RECORD_VERSION}")
        methods = tuple(_method_read(row) for row in stored["methods"])
        subjects = {
            name: {method: SubjectCell(**cell) for method, cell in cells.items()}
            for name, cells in stored["subjects"].items()
        }
        latency = {name: tuple(LatencyRow(**row) for row in rows) for name, rows in stored["latency"].items()}
        return TuningRecord(**{**stored, "methods": methods, "subjects": subjects, "latency": latency})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedDataError(
            f"{path}: not a record of tunings ({type(error).__name__}: {error}); publish the comparison again"
        ) from error


def _method_read(stored: dict[str, Any]) -> MethodRow:
    fields: dict[str, Any] = {key: Span(**value) if isinstance(value, dict) else value for key, value in stored.items()}
    return MethodRow(**fields)
