"""What `evaluate` found, as records; `results.json` holds all of it and the tables are views of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.noise import Noise, Source, WorkloadNoise
from kernelcast.evaluation.summary import WorkloadScores
from kernelcast.files import read_json, write_json

RESULTS_FILE = "results.json"
RESULTS_VERSION = 2
"""Version of `results.json`; a change of its fields or of their meaning raises it."""

CEILINGS = {Source.VISITS: "measured again", Source.HALVES: "odd rounds"}
"""Name under which the noise ceiling stands among the models. Rounds of one visit are not measured again."""


class Role(StrEnum):
    """What a row of the table is."""

    LEARNED = "learned"
    BASELINE = "baseline"
    """Predicts without having learned."""

    CEILING = "ceiling"
    """A second measurement instead of a prediction."""


@dataclass(frozen=True)
class ModelResult:
    """One model, or the noise ceiling, on the test programs of one split.

    Attributes:
        model: its name.
        role: learned, baseline or ceiling.
        kind: what its predictions mean, a `PredictionKind`.
        loss: what it minimised; empty where it learned nothing.
        programs: test programs that were scored.
        metrics: estimate by metric name; a metric that is not defined is absent.
        per_workload: the same without intervals, for every workload.
        train_seconds: how long `fit` took; None where there was nothing to learn.
        predict_microseconds: time of one prediction, per program; None for the ceiling.
    """

    model: str
    role: Role
    kind: str
    loss: str
    programs: int
    metrics: dict[str, Estimate]
    per_workload: tuple[WorkloadScores, ...]
    train_seconds: float | None
    predict_microseconds: float | None


@dataclass(frozen=True)
class SplitResult:
    """All models on the test programs of one split.

    Attributes:
        split: its name.
        known_workloads: whether every tested workload was also trained on.
        train_programs: programs that models learned from.
        test_programs: programs that they are scored on.
        test_workloads: workloads of these.
        unranked: workloads without an order to get right, left out of the ranking metrics.
        resampling: what the intervals draw again, a `Resampling`.
        models: best Kendall's tau first, the ceiling among them.
    """

    split: str
    known_workloads: bool
    train_programs: int
    test_programs: int
    test_workloads: tuple[str, ...]
    unranked: tuple[str, ...]
    resampling: str
    models: tuple[ModelResult, ...]


@dataclass(frozen=True)
class MissingModel:
    """A model that could not be evaluated on a split, and why."""

    split: str
    model: str
    reason: str


@dataclass(frozen=True)
class Results:
    """Everything that `evaluate` found.

    Attributes:
        version: `RESULTS_VERSION` of the writer.
        confidence: share of the bootstrap draws inside the intervals.
        bootstrap_samples: number of draws.
        label: how the repeats of a program became the label that models are scored by, a key of `labels.LABELS`.
        reference_correction: whether it was corrected for the machine's state, one of `labels.CORRECTIONS`.
        spread_limit: programs whose repeats spread more were flagged; None where none were.
        noise: distance between two measurements of a program; None where none has two.
        splits: in order of their names.
        missing: models without a result.
    """

    version: int
    confidence: float
    bootstrap_samples: int
    label: str
    reference_correction: str
    spread_limit: float | None
    noise: Noise | None
    splits: tuple[SplitResult, ...]
    missing: tuple[MissingModel, ...]


def write_results(directory: Path, results: Results) -> None:
    """Writes `results.json`."""
    write_json(directory / RESULTS_FILE, dataclasses.asdict(results))


def read_results(directory: Path) -> Results:
    """Reads `results.json`.

    Raises:
        MissingInputError: `evaluate` has not run.
        MalformedDataError: the file is of another version or lacks a field.
    """
    path = directory / RESULTS_FILE
    raw = read_json(path, "evaluate")
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != RESULTS_VERSION:
        raise MalformedDataError(
            f"{path} has version {version}, this kernelcast reads {RESULTS_VERSION}; run `dvc repro -f -s evaluate`"
        )
    try:
        return Results(
            version=version,
            confidence=raw["confidence"],
            bootstrap_samples=raw["bootstrap_samples"],
            label=raw["label"],
            reference_correction=raw["reference_correction"],
            spread_limit=raw["spread_limit"],
            noise=None if raw["noise"] is None else _noise(raw["noise"]),
            splits=tuple(_split(entry) for entry in raw["splits"]),
            missing=tuple(MissingModel(**entry) for entry in raw["missing"]),
        )
    except (TypeError, KeyError, ValueError) as error:
        raise MalformedDataError(
            f"{path} lacks a field or has one too many ({error}); run `dvc repro -f -s evaluate`"
        ) from error


def _noise(raw: dict[str, Any]) -> Noise:
    return Noise(
        **{
            **raw,
            **{name: Estimate(**raw[name]) for name in ("ratio_median", "ratio_p90")},
            "kendall_tau": None if raw["kendall_tau"] is None else Estimate(**raw["kendall_tau"]),
            "workloads": tuple(WorkloadNoise(**entry) for entry in raw["workloads"]),
        }
    )


def _split(raw: dict[str, Any]) -> SplitResult:
    lists = {name: tuple(raw[name]) for name in ("test_workloads", "unranked")}
    return SplitResult(**{**raw, **lists, "models": tuple(_model(entry) for entry in raw["models"])})


def _model(raw: dict[str, Any]) -> ModelResult:
    return ModelResult(
        **{
            **raw,
            "role": Role(raw["role"]),
            "metrics": {name: Estimate(**estimate) for name, estimate in raw["metrics"].items()},
            "per_workload": tuple(WorkloadScores(**scores) for scores in raw["per_workload"]),
        }
    )
