"""The figures of one experiment as the page of results shows them: `docs/results/NAME.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.results import ModelResult, Role, SplitResult
from kernelcast.evaluation.summary import METRIC_BY_NAME
from kernelcast.files import read_json, write_json

RECORD_VERSION = 1
"""Version of the file; a change of its fields or of their meaning raises it."""

DRAWS = 2000
"""Bootstrap draws of the paired test."""


@dataclass(frozen=True)
class Row:
    """One model, or the noise ceiling, on one split.

    Attributes:
        label: its name in the experiment.
        role: a `Role`.
        seeds: how many trainings stand behind the figures; 0 for the ceiling.
        metrics: estimate by metric name.
        best: metrics in which no other model is better.
        tied: metrics in which the data do not tell it from the best.
        train_seconds: of one training; None where there was nothing to learn.
        predict_microseconds: of one prediction, per program.
    """

    label: str
    role: str
    seeds: int
    metrics: dict[str, Estimate]
    best: tuple[str, ...]
    tied: tuple[str, ...]
    train_seconds: float | None
    predict_microseconds: float | None


@dataclass(frozen=True)
class RecordedSplit:
    """All rows on the test programs of one split.

    Attributes:
        split: its name.
        known_workloads: whether every tested workload was also trained on.
        train_programs: programs to learn from.
        test_programs: programs that are tested on.
        test_workloads: how many workloads these have.
        resampling: what the intervals draw again.
        rows: in the order of the experiment's file, the ceiling first.
    """

    split: str
    known_workloads: bool
    train_programs: int
    test_programs: int
    test_workloads: int
    resampling: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Record:
    """One experiment.

    Attributes:
        version: `RECORD_VERSION` of the writer.
        name: of its file in conf/experiment.
        title: heading of its table.
        question: what it asks, a sentence or two.
        source: the paper and its table that it stands for.
        command: makes all of it again.
        date: day of the evaluation, in UTC.
        measured_on: the processor or device of every target.
        trained_on: the processor that trained.
        programs: of the data.
        workloads: of the data.
        data: hash of the programs by variant of the graphs.
        seeds: of the trainings.
        confidence: share of the bootstrap draws inside an interval.
        label: how the repeats of a program became its time.
        versions: of the libraries that decide.
        revision: of the code; ends in `+` where files differed from it.
        metrics: those that the page shows, in order.
        columns: `metrics` or `splits`.
        splits: in the order of the file.
        failed: trainings without a result, and why.
    """

    version: int
    name: str
    title: str
    question: str
    source: str
    command: str
    date: str
    measured_on: tuple[str, ...]
    trained_on: str
    programs: int
    workloads: int
    data: dict[str, str]
    seeds: tuple[int, ...]
    confidence: float
    label: str
    versions: dict[str, str]
    revision: str
    metrics: tuple[str, ...]
    columns: str
    splits: tuple[RecordedSplit, ...]
    failed: tuple[str, ...]


def recorded_split(
    results: Sequence[SplitResult], labels: Sequence[str], seeds: Mapping[str, int], metrics: Sequence[str]
) -> RecordedSplit:
    """One split, joined over the variants of the graphs, which have the same test programs.

    Args:
        results: of every variant.
        labels: rows, in their order.
        seeds: trainings behind each label.
        metrics: those that are shown.
    """
    found: dict[str, ModelResult] = {}
    for result in results:
        for model in result.models:
            found.setdefault(model.model, model)
    ceilings = [model for model in found.values() if model.role == Role.CEILING]
    models = [found[label] for label in labels if label in found]
    best = {name: best_of(models, name) for name in metrics}
    rows = [
        Row(
            label=model.model,
            role=str(model.role),
            seeds=0 if model.role == Role.CEILING else seeds.get(model.model, 0),
            metrics={name: model.metrics[name] for name in metrics if name in model.metrics},
            best=tuple(name for name in metrics if model.role != Role.CEILING and best[name] is model),
            tied=tuple(
                name
                for name, first in best.items()
                if model.role != Role.CEILING and first is not None and first is not model
                and name in model.metrics and not told_apart(first, model, name)
            ),
            train_seconds=model.train_seconds,
            predict_microseconds=model.predict_microseconds,
        )
        for model in [*ceilings, *models]
    ]  # fmt: skip
    first = results[0]
    return RecordedSplit(
        first.split,
        first.known_workloads,
        first.train_programs,
        first.test_programs,
        len(first.test_workloads),
        str(first.resampling),
        tuple(rows),
    )


def best_of(models: Sequence[ModelResult], metric: str) -> ModelResult | None:
    """The model with the best value of the metric; None where none has one."""
    scored = [model for model in models if metric in model.metrics]
    sign = 1 if METRIC_BY_NAME[metric].higher_is_better else -1
    return max(scored, key=lambda model: sign * model.metrics[metric].value, default=None)


def told_apart(best: ModelResult, other: ModelResult, metric: str) -> bool:
    """Whether `best` beats `other` by more than chance: a paired bootstrap over the workloads that both were tested on.

    The workloads are drawn again 2,000 times; the models differ when at most 2.5% of the draws have a mean difference
    on the other side of zero. One workload tells nothing.
    """
    ours, theirs = (
        {scores.workload: scores.metrics[metric] for scores in model.per_workload if metric in scores.metrics}
        for model in (best, other)
    )
    common = sorted(set(ours) & set(theirs))
    if len(common) < 2:
        return False
    sign = 1 if METRIC_BY_NAME[metric].higher_is_better else -1
    differences = sign * np.array([ours[name] - theirs[name] for name in common])
    drawn = np.random.default_rng(0).integers(len(common), size=(DRAWS, len(common)))
    return bool(np.mean(differences[drawn].mean(axis=1) <= 0) <= 0.025)


def write_record(directory: Path, record: Record) -> None:
    """Writes the record, rounded to what the page can show: equal figures make equal files."""
    write_json(directory / f"{record.name}.json", rounded(dataclasses.asdict(record)))


def read_records(directory: Path) -> list[Record]:
    """The records of all experiments, by name.

    Raises:
        MalformedDataError: a file is of another version or lacks a field.
    """
    return [_read(path) for path in sorted(directory.glob("*.json"))]


def _read(path: Path) -> Record:
    raw = read_json(path, "experiment")
    try:
        if raw["version"] != RECORD_VERSION:
            raise ValueError(f"version {raw['version']}, this kernelcast reads {RECORD_VERSION}")
        lists = {name: tuple(raw[name]) for name in ("measured_on", "seeds", "metrics", "failed")}
        return Record(**{**raw, **lists, "splits": tuple(_split(entry) for entry in raw["splits"])})
    except (TypeError, KeyError, ValueError) as error:
        raise MalformedDataError(
            f"{path} is not what an experiment writes ({error}); run `python scripts/experiment.py "
            f"experiment={path.stem}`"
        ) from error


def _split(raw: dict[str, Any]) -> RecordedSplit:
    return RecordedSplit(**{**raw, "rows": tuple(_row(entry) for entry in raw["rows"])})


def _row(raw: dict[str, Any]) -> Row:
    estimates = {name: Estimate(**estimate) for name, estimate in raw["metrics"].items()}
    return Row(**{**raw, "metrics": estimates, "best": tuple(raw["best"]), "tied": tuple(raw["tied"])})


def rounded(value: Any) -> Any:
    """The value with all numbers in it cut to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list | tuple) else value
