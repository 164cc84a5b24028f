"""What `evaluate` found, as records; `results.json` holds all of it and the tables are views of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.aggregation import Aggregation
from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.comparisons import Comparison
from kernelcast.evaluation.noise import Noise, Source, WorkloadNoise
from kernelcast.evaluation.summary import WorkloadScores
from kernelcast.files import read_json, write_json

RESULTS_FILE = "results.json"
RESULTS_VERSION = 3
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
class NetworkScores:
    """The metrics of one network, each workload weighted by how often the network runs it.

    Attributes:
        network: its name.
        workloads: of it that were tested.
        programs: of these that were scored.
        metrics: estimate by metric name.
    """

    network: str
    workloads: int
    programs: int
    metrics: dict[str, Estimate]


@dataclass(frozen=True)
class ModelResult:
    """One model, or the noise ceiling, on the test programs of one split.

    Attributes:
        model: its name.
        role: learned, baseline or ceiling.
        kind: what its predictions mean, a `PredictionKind`.
        loss: what it minimised; empty where it learned nothing.
        programs: test programs that were scored.
        metrics: estimate by metric name, workloads with equal weight; a metric that is not defined is absent.
        per_workload: the same without intervals, for every workload.
        train_seconds: how long `fit` took, mean over the seeds; None where there was nothing to learn.
        predict_microseconds: time of one prediction, per program; None for the ceiling.
        seeds: it was trained with, in order; empty for the ceiling.
        folders: of these, by name.
        train_seconds_deviation: standard deviation over the seeds; None for one seed.
        predict_microseconds_deviation: likewise.
        by_task_weight: estimates with each workload as often as all networks run it; empty where no network runs any.
        over_networks: mean over the networks of their own figures; empty likewise.
        per_network: by network.
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
    seeds: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()
    train_seconds_deviation: float | None = None
    predict_microseconds_deviation: float | None = None
    by_task_weight: dict[str, Estimate] = field(default_factory=dict)
    over_networks: dict[str, Estimate] = field(default_factory=dict)
    per_network: tuple[NetworkScores, ...] = ()

    def aggregated(self, aggregation: Aggregation) -> dict[str, Estimate]:
        """The estimates of one way to count workloads."""
        return {
            Aggregation.WORKLOADS: self.metrics,
            Aggregation.TASK_WEIGHT: self.by_task_weight,
            Aggregation.NETWORKS: self.over_networks,
        }[aggregation]


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
        comparisons: every pair of models in every metric that both have.
    """

    split: str
    known_workloads: bool
    train_programs: int
    test_programs: int
    test_workloads: tuple[str, ...]
    unranked: tuple[str, ...]
    resampling: str
    models: tuple[ModelResult, ...]
    comparisons: tuple[Comparison, ...] = ()

    @property
    def ceiling(self) -> ModelResult | None:
        """The noise ceiling of this split; None where no program has two measurements."""
        return next((model for model in self.models if model.role is Role.CEILING), None)


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
    models = tuple(_model(entry) for entry in raw["models"])
    comparisons = tuple(Comparison(**entry) for entry in raw["comparisons"])
    return SplitResult(**{**raw, **lists, "models": models, "comparisons": comparisons})


def _model(raw: dict[str, Any]) -> ModelResult:
    per_network = (NetworkScores(**{**entry, "metrics": _estimates(entry["metrics"])}) for entry in raw["per_network"])
    return ModelResult(
        **{
            **raw,
            **{name: _estimates(raw[name]) for name in ("metrics", "by_task_weight", "over_networks")},
            **{name: tuple(raw[name]) for name in ("seeds", "folders")},
            "role": Role(raw["role"]),
            "per_workload": tuple(WorkloadScores(**scores) for scores in raw["per_workload"]),
            "per_network": tuple(per_network),
        }
    )


def _estimates(raw: dict[str, Any]) -> dict[str, Estimate]:
    return {name: Estimate(**estimate) for name, estimate in raw.items()}
