"""The schema of every root configuration: a typo or a wrong type fails before any work and names the key.

Nodes with a `_target_` are `Any` here: the class they name checks its own arguments.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from kernelcast.exchange.times import Times
from kernelcast.stages.config_nodes import PathsConfig, RunnerConfig, TrackingConfig
from kernelcast.tuning.choices import Choice


@dataclass
class MeasureConfig:
    """Root of `scripts/measure.py`."""

    seed: int = MISSING
    probe: bool = MISSING
    samples_per_workload: int = MISSING
    evolved_share: float = MISSING
    max_failure_share: float = MISSING
    workload: dict[str, Any] = MISSING
    target: dict[str, Any] = MISSING
    runner: RunnerConfig = MISSING
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


@dataclass
class GraphsConfig:
    """Root of `scripts/graphs.py`."""

    seed: int = MISSING
    measurements: list[str] = MISSING
    programs_per_workload: int | None = None
    only_networks: list[str] = field(default_factory=list)
    only_kinds: list[str] = field(default_factory=list)
    shard_programs: int = MISSING
    label: str = MISSING
    reference_correction: str = MISSING
    spread_limit: float | None = None
    drop_flagged: bool = MISSING
    features: dict[str, Any] = MISSING
    builder: dict[str, Any] = MISSING
    split: dict[str, Any] = MISSING
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


class ExportFormat(StrEnum):
    """Which tool is to read the export."""

    metaschedule = "metaschedule"
    t4 = "t4"
    csv = "csv"
    dataset = "dataset"


@dataclass
class ExportConfig:
    """Root of `scripts/export.py`."""

    format: ExportFormat = MISSING
    times: Times = MISSING
    output: str | None = None
    overwrite: bool = MISSING
    paths: PathsConfig = MISSING


class KnownHost(StrEnum):
    """Which machine measured what is imported."""

    unknown = "unknown"
    this = "this"


@dataclass
class ImportConfig:
    """Root of `scripts/import.py`."""

    source: str | None = None
    target: Any = None  # a mapping; of a typed one Hydra takes no new keys
    host: KnownHost = MISSING
    overwrite: bool = MISSING
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


class Direction(StrEnum):
    """Which objective a sweep takes as better; OmegaConf knows the members by their names."""

    maximize = "maximize"
    minimize = "minimize"


@dataclass
class DebugConfig:
    """What a debug run of a training does otherwise; see `kernelcast.stages.debugging`."""

    workloads: int | None = None
    programs: int | None = None
    overfit: bool = False
    profile: bool = False


@dataclass
class TrainConfig:
    """Root of `scripts/train.py`."""

    seed: int = MISSING
    split: str = MISSING
    from_run: str | None = None
    objective: str = MISSING
    direction: Direction = MISSING
    output: str | None = None
    debug: DebugConfig | None = None
    model: Any = MISSING
    loss: Any = MISSING
    trainer: Any = MISSING
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


@dataclass
class EvaluateConfig:
    """Root of `scripts/evaluate.py`."""

    seed: int = MISSING
    measurements: list[str] = MISSING
    bootstrap_samples: int = MISSING
    confidence: float = MISSING
    paths: PathsConfig = MISSING
    tracking: TrackingConfig = MISSING


@dataclass
class SearchConfig:
    """How a tuning proposes programs; `kernelcast.tuning.search.SearchSettings` explains each."""

    trials_per_round: int = MISSING
    first_round: int | None = MISSING
    exploration: float = MISSING
    population: int = MISSING
    generations: int = MISSING
    choice: Choice = MISSING
    threads: int | None = MISSING


@dataclass
class LatencyConfig:
    """How a network is timed; `kernelcast.tuning.latency.LatencySettings` explains each."""

    rounds: int = MISSING
    repeat_seconds: float = MISSING


@dataclass
class TuneConfig:
    """Root of `scripts/tune.py`."""

    seed: int = MISSING
    trials: int = MISSING
    finalists: int = MISSING
    fusion: bool = MISSING
    workload: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    method: Any = MISSING
    search: SearchConfig = MISSING
    latency: LatencyConfig = MISSING
    target: dict[str, Any] = MISSING
    runner: RunnerConfig = MISSING
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


@dataclass
class CompareConfig:
    """Root of `scripts/compare.py`."""

    only: list[str] = MISSING
    seeds: list[int] = MISSING
    reference: str = MISSING
    within: float = MISSING
    published: str | None = None
    publish: str | None = None
    title: str | None = None
    seed: int = MISSING
    bootstrap_samples: int = MISSING
    confidence: float = MISSING
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


@dataclass
class ReportConfig:
    """Root of `scripts/report.py`."""

    paths: PathsConfig = MISSING
    tracking: TrackingConfig = MISSING


@dataclass
class LookConfig:
    """Root of `scripts/look.py`."""

    program: str | None = None
    workload_name: str | None = None
    rank: str | None = None
    other: str | None = None
    source: bool = MISSING
    measurements: list[str] = MISSING
    output: str | None = None
    paths: PathsConfig = MISSING


@dataclass
class DatabaseConfig:
    """A tuning database that becomes the measurements of an experiment."""

    source: str = MISSING
    target: Any = None


class TableColumns(StrEnum):
    """What the columns of a table of results are."""

    metrics = "metrics"
    splits = "splits"


@dataclass
class ExperimentConfig:
    """Root of `scripts/experiment.py`; a file of conf/experiment fills in the upper part."""

    name: str = MISSING
    title: str = MISSING
    question: str = MISSING
    source: str = MISSING
    measurements: list[str] = field(default_factory=list)
    database: DatabaseConfig | None = None
    graphs: dict[str, Any] = MISSING
    splits: dict[str, Any] = MISSING
    runs: dict[str, Any] = MISSING
    metrics: list[str] = MISSING
    columns: TableColumns = MISSING
    seeds: list[int] = MISSING
    train_overrides: list[str] = MISSING
    jobs: int | None = None
    retrain: bool = MISSING
    published: bool = MISSING
    page: bool = MISSING
    paths: PathsConfig = MISSING
    tracking: TrackingConfig = MISSING


@dataclass
class ResultsConfig:
    """Root of `scripts/results.py`."""

    paths: PathsConfig = MISSING


@dataclass
class RegisterConfig:
    """Root of `scripts/register.py`."""

    split: str = MISSING
    model_name: str | None = None
    metric: str = MISSING
    name: str | None = None
    replace: bool = MISSING
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


@dataclass
class PredictConfig:
    """Root of `scripts/predict.py`."""

    model_name: str = MISSING
    input: str | None = None
    shape: Any = None  # a mapping; of a typed one Hydra takes no new keys
    module: str | None = None
    example: str | None = None
    function: str | None = None
    arguments: Any = None
    trust_python: bool = MISSING
    workload: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    samples: int = MISSING
    seed: int = MISSING
    top: int = MISSING
    target: Any = None
    any_target: bool = MISSING
    output: str | None = None
    schedules: str | None = None
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


@dataclass
class SyncConfig:
    """Root of `scripts/sync.py`."""

    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


@dataclass
class RepeatConfig:
    """Root of `scripts/repeat.py`."""

    run: str | None = None
    compare_only: bool = MISSING
    output: str | None = None
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


@dataclass
class DoctorConfig:
    """Root of `scripts/doctor.py`."""

    timing_seconds: float = MISSING
    output: str | None = None
    target: dict[str, Any] = MISSING
    runner: RunnerConfig = MISSING
    tracking: TrackingConfig = MISSING
    paths: PathsConfig = MISSING


SCHEMAS: dict[str, type] = {
    "measure": MeasureConfig,
    "graphs": GraphsConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "tune": TuneConfig,
    "compare": CompareConfig,
    "report": ReportConfig,
    "look": LookConfig,
    "export": ExportConfig,
    "import": ImportConfig,
    "experiment": ExperimentConfig,
    "results": ResultsConfig,
    "register": RegisterConfig,
    "predict": PredictConfig,
    "sync": SyncConfig,
    "repeat": RepeatConfig,
    "doctor": DoctorConfig,
}


def register_schemas() -> None:
    """Makes the schemas known to Hydra as `schema/NAME`; every root configuration lists its own first."""
    store = ConfigStore.instance()
    for name, schema in SCHEMAS.items():
        store.store(group="schema", name=name, node=schema, package="_global_")
