"""The schemas of what several root configurations have in common."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import MISSING

import kernelcast
from kernelcast.measurement.settings import Cache, Way


def project_root() -> str:
    """The checkout that holds this package, or the current folder when the package is installed elsewhere."""
    checkout = Path(kernelcast.__file__).resolve().parents[2]
    return str(checkout if (checkout / "dvc.yaml").exists() else Path.cwd())


@dataclass
class PathsConfig:
    """Where things are, all below `root`."""

    root: str = field(default_factory=project_root)
    measurements: str = MISSING
    graphs: str = MISSING
    models: str = MISSING
    evaluation: str = MISSING
    tuning: str = MISSING
    report: str = MISSING
    look: str = MISSING
    runs: str = MISSING


@dataclass
class TrackingConfig:
    """MLflow."""

    uri: str = MISSING
    experiment: str = MISSING
    artifacts: str = MISSING


@dataclass
class TimingConfig:
    """How programs are timed; `kernelcast.measurement.settings.TimingSettings` explains each."""

    way: Way = MISSING
    cache: Cache = MISSING
    batch_size: int = MISSING
    least_rounds: int = MISSING
    most_rounds: int = MISSING
    uncertainty: float = MISSING
    budget_seconds: float = MISSING
    repeat_seconds: float = MISSING


@dataclass
class RunnerConfig:
    """How one campaign builds and checks; `kernelcast.measurement.settings.RunnerSettings` explains each."""

    devices: Any = MISSING
    builders: int | None = MISSING
    build_timeout_seconds: float = MISSING
    run_timeout_seconds: float = MISSING
    memory_limit_bytes: int = MISSING
    check_share: float = MISSING
    remeasure_share: float = MISSING
    timing: TimingConfig = MISSING
