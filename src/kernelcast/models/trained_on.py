"""What a model was trained on, as far as whoever predicts new programs needs it: kept with the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelcast.errors import ConfigError, MalformedDataError, MissingInputError
from kernelcast.files import read_json, write_json
from kernelcast.graphs.dataset.store import Description, StoredTarget, feature_version
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Programs, Source
from kernelcast.models.protocol import CostModel, PredictionKind

TRAINED_ON_FILE = "trained_on.json"
TRAINED_ON_VERSION = 1
"""Version of the file; a change of its entries or of their meaning raises it."""

LEAST_SPREAD = 1e-12
"""Below this, predictions of a workload's programs do not differ, and no line goes through them."""


@dataclass(frozen=True)
class TrainedOn:
    """From what programs a model has learned, and what its predictions were worth there.

    Attributes:
        views: those that the model looks at.
        options: how all views were built.
        columns: column names by view and field, of all views.
        feature_version: of the programs.
        targets: what they were measured on.
        slope: what a unit of the prediction was in ln(seconds), within workloads; 1 for seconds that are right, 0 for
            predictions that do not differ.
        residual: standard deviation of ln(seconds) around that line, within workloads.
        typical_factor: that half of the predicted times are within of the measured ones, at least 1; None for a model
            that predicts no times.
    """

    views: tuple[str, ...]
    options: ViewOptions
    columns: Mapping[str, Mapping[str, tuple[str, ...]]]
    feature_version: str
    targets: tuple[StoredTarget, ...]
    slope: float
    residual: float
    typical_factor: float | None = None

    @classmethod
    def of(cls, model: CostModel, judges: Programs, description: Description) -> TrainedOn:
        """What `model` was trained on.

        Args:
            model: fitted.
            judges: programs to tell `slope` and `residual` from: those that it was validated by, or where there were
                none those that it learned from; at least one.
            description: of the data set that they are of.
        """
        predicted = model.predict(judges)
        slope, residual = _line(predicted, judges)
        return cls(
            views=_views_of(model, judges),
            options=description.options,
            columns={name: judges.columns(name) for name in judges.sources},
            feature_version=judges.feature_version,
            targets=description.targets,
            slope=slope,
            residual=residual,
            typical_factor=_typical_factor(predicted, judges) if model.kind is PredictionKind.LOG_SECONDS else None,
        )

    def write(self, directory: Path) -> None:
        """Writes the file into the folder of a model."""
        write_json(directory / TRAINED_ON_FILE, {"version": TRAINED_ON_VERSION, **dataclasses.asdict(self)})

    @classmethod
    def read(cls, directory: Path) -> TrainedOn:
        """Reads what `write` wrote into the folder of a model.

        Raises:
            MissingInputError: the model was saved without it.
            MalformedDataError: it is torn, of another version, or of views that this kernelcast builds otherwise.
        """
        path = directory / TRAINED_ON_FILE
        if directory.is_dir() and not path.is_file():
            raise MissingInputError(
                f"{path} does not exist: the model does not say what it was trained on, so that no new program can be "
                "shown to it; train it again with `dvc repro train`"
            )
        raw = read_json(path, "train")
        version = raw.pop("version", None) if isinstance(raw, dict) else None
        if version != TRAINED_ON_VERSION:
            raise MalformedDataError(
                f"{path} has version {version}, this kernelcast reads {TRAINED_ON_VERSION}; run `dvc repro train`"
            )
        try:
            found = cls(
                **raw
                | {
                    "views": tuple(raw["views"]),
                    "options": ViewOptions(**raw["options"]),
                    "columns": {
                        view: {name: tuple(names) for name, names in fields.items()}
                        for view, fields in raw["columns"].items()
                    },
                    "targets": tuple(StoredTarget.from_json(entry) for entry in raw["targets"]),
                    "slope": float(raw["slope"]),
                    "residual": float(raw["residual"]),
                }
            )
        except (AttributeError, ConfigError, KeyError, TypeError, ValueError) as error:
            raise MalformedDataError(f"{path} is not what was saved ({error}); run `dvc repro train`") from error
        built = feature_version(found.options, found.columns)
        if built != found.feature_version:
            raise MalformedDataError(
                f"{path}: the model was trained on features of version {found.feature_version}, this kernelcast builds "
                f"{built}; run `dvc repro graphs` and train it again with `dvc repro train`"
            )
        return found


class _NotedSources(dict[str, Source]):
    """The sources of programs, which remembers those that were asked for."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        super().__init__(sources)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Source:
        self.asked.add(name)
        return super().__getitem__(name)


def _views_of(model: CostModel, programs: Programs) -> tuple[str, ...]:
    """The views that the model looks at when it predicts a program."""
    sources = _NotedSources(programs.sources)
    model.predict(dataclasses.replace(programs.select(np.zeros(1, dtype=np.int64)), sources=sources))
    return tuple(name for name in programs.sources if name in sources.asked)


def _typical_factor(predicted: np.ndarray, programs: Programs) -> float:
    return float(np.exp(np.median(np.abs(predicted - programs.log_seconds))))


def _line(predicted: np.ndarray, programs: Programs) -> tuple[float, float]:
    """Slope of ln(seconds) on predictions, and what is left, both around the means of the workloads."""
    groups, group = np.unique(programs.workload, return_inverse=True)
    counts = np.bincount(group, minlength=len(groups))

    def centred(values: np.ndarray) -> np.ndarray:
        return np.asarray(values - (np.bincount(group, values, len(groups)) / counts)[group])

    x, y = centred(predicted), centred(programs.log_seconds)
    slope = float(x @ y / (x @ x)) if x @ x > LEAST_SPREAD * len(x) else 0.0
    # worse than nothing: an order that is no better than chance
    slope = max(slope, 0.0)
    return slope, float(np.sqrt(np.mean((y - slope * x) ** 2)))
