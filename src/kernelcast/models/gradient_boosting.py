"""What the libraries of gradient-boosted trees share: settings, checks, groups, when to stop, and the saved model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float32, Float64, Int64, Integer

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError
from kernelcast.files import read_json, require, write_json
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.views import FlatFeatures
from kernelcast.models.checks import require_learnable, require_version
from kernelcast.models.description import describe, revive, saved_value
from kernelcast.models.estimate_table import ESTIMATE, ESTIMATE_VERSION, estimate_table, require_estimate_version
from kernelcast.models.losses import Aim, Loss
from kernelcast.models.machine_code import START, machine_code_table
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.rounds import Rounds
from kernelcast.models.setting_checks import require_counts, require_flag, require_numbers, require_shares
from kernelcast.models.tables import require_views, side_by_side, table_of
from kernelcast.models.trainer import TrainerSettings

SETTINGS_FILE = "settings.json"


@dataclass(frozen=True)
class BoostingSettings:
    """How the trees are grown, as far as the libraries agree.

    Attributes:
        rounds: trees at most.
        patience: rounds without a better validation metric before training stops.
        learning_rate: share of each tree that is added.
        subsample: share of the programs that each tree sees.
        colsample_bytree: share of the columns that each tree sees.
        reg_lambda: L2 penalty on the leaves.
        threads: of the library.

    Raises:
        ConfigError: a value that cannot work.
    """

    rounds: int
    patience: int
    learning_rate: float
    subsample: float
    colsample_bytree: float
    reg_lambda: float
    threads: int

    def __post_init__(self) -> None:
        require_counts(self, "rounds", "patience", "threads")
        require_shares(self, "learning_rate", "subsample", "colsample_bytree")
        require_numbers(self, "reg_lambda")


@dataclass(frozen=True)
class Table:
    """One part of the programs as the libraries take it; programs of a workload stand together.

    Attributes:
        columns: names of the columns.
        values: a row a program.
        labels: what the objective takes.
        group_sizes: programs of each workload, in the order of the rows.
        log_seconds: the times, for the metrics.
        workload: of each row.
        start: what learning starts from, in the unit of the library's output; None starts from nothing.
    """

    columns: tuple[str, ...]
    values: Float32[np.ndarray, "programs columns"]
    labels: Float32[np.ndarray, "programs"]
    group_sizes: Int64[np.ndarray, "workloads"]
    log_seconds: Float64[np.ndarray, "programs"]
    workload: Integer[np.ndarray, "programs"]
    start: Float64[np.ndarray, "programs"] | None


class BoostedTrees(ABC):
    """Gradient-boosted trees over a table of the programs, with the objective that the loss aims at.

    Args:
        settings: how the trees are grown.
        loss: what to minimise; it decides what the predictions mean.
        trainer: not used: epochs and batches mean nothing for trees; every model takes it.
        seed: of the samples of programs, columns and pairs.
        view: where the columns come from: `features`, or `trace`, which programs without a module have too.
        pooled: views with several rows a program (`statements`, `per_store`) whose columns are added, as sum and as
            maximum over the rows.
        estimate: learn how far the analytical model is off: start from its estimate, with `estimate_table` as further
            columns.
        machine_code: learn how far the machine code's cycles are off: start from their time, with
            `machine_code_table` as further columns; with `estimate` too, the columns of both.

    Raises:
        ConfigError: the library has nothing like the loss, there is no such view, or a flag is none.
    """

    learned = True

    package: ClassVar[str]
    """Its name, for messages."""

    trees_file: ClassVar[str]
    """Name of the file of the trees, in the library's own format."""

    objectives: ClassVar[Mapping[Aim, Mapping[str, Any]]]
    """What the library calls the aims that it can minimise, with what belongs to each."""

    def __init__(
        self,
        settings: Any,
        loss: Loss,
        trainer: TrainerSettings | None,
        seed: int,
        view: str = "features",
        pooled: Sequence[str] = (),
        estimate: bool = False,
        machine_code: bool = False,
    ) -> None:
        if loss.aim is None or loss.aim not in self.objectives:
            raise ConfigError(
                f"{self.package} cannot minimise {type(loss).__name__}; use loss=rank, loss=log_mse or another loss "
                f"that aims at one of {', '.join(self.objectives)}"
            )
        require_views(view, pooled)
        require_flag("model.estimate", estimate)
        require_flag("model.machine_code", machine_code)
        self._settings = settings
        self._loss = loss
        self._aim: Aim = loss.aim
        self._seed = seed
        self._view, self._pooled = view, tuple(pooled)
        self._estimate, self._machine_code = estimate, machine_code
        self._columns: tuple[str, ...] = ()
        self._feature_version: str | None = None
        self._trees: Any = None

    @property
    def kind(self) -> PredictionKind:
        """What the loss makes the trees predict."""
        return self._loss.predicts

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Grows trees until the validation metric stops getting better, and keeps those up to the best round.

        Raises:
            KernelcastError: there is nothing to learn from.
            MalformedDataError: a label is not a finite number.
            ConfigError: the programs have no columns.
        """
        require_learnable(train, self._loss)
        parts = {"train": train, "valid": valid}
        tables = {name: self._labelled(programs) for name, programs in parts.items() if len(programs)}
        rounds = Rounds(self._settings.rounds, self._settings.patience, self._loss, log, tables)
        self._trees = self._grow(tables, rounds)
        self._columns, self._feature_version = tables["train"].columns, train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """One number a program, lower is faster, in the unit that `kind` tells."""
        require_version(self._feature_version, programs, f"the {self.package} model")
        table = self._table(programs)
        if table.names != self._columns:
            raise MalformedDataError(
                f"the programs have other features than the {self.package} model was fitted to; train it again"
            )
        if len(programs) == 0:
            return np.zeros(0, dtype=np.float64)
        return as_prediction(self._aim, self._output(table.values, self._start(table)))

    def save(self, directory: Path) -> None:
        """Writes the trees in the library's own format; settings in a file of our own, since it does not keep all."""
        if self._trees is None:
            raise KernelcastError(f"the {self.package} model has not been fitted: there is nothing to save")
        settings = {
            "settings": describe(self._settings),
            "loss": describe(self._loss),
            "seed": self._seed,
            "view": self._view,
            "pooled": list(self._pooled),
            "estimate_version": ESTIMATE_VERSION if self._estimate else None,
            "machine_code": self._machine_code,
            "columns": list(self._columns),
            "feature_version": self._feature_version,
        }
        write_json(directory / SETTINGS_FILE, settings)
        self._trees.save_model(directory / self.trees_file)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            MissingInputError: a file is not there.
            MalformedDataError: a file is torn or lacks an entry.
        """
        settings = read_json(directory / SETTINGS_FILE, "train")
        require(directory / cls.trees_file, "train")
        require_estimate_version(saved_value(settings, "estimate_version", directory), directory)
        try:
            model = cls(
                revive(settings["settings"]),
                revive(settings["loss"]),
                None,
                settings["seed"],
                settings["view"],
                settings["pooled"],
                settings["estimate_version"] is not None,
                settings["machine_code"],
            )
            model._columns = tuple(settings["columns"])
            model._feature_version = settings["feature_version"]
            model._trees = model._read(directory / cls.trees_file)
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            raise MalformedDataError(
                f"{directory} is not a whole saved model ({error}); run `dvc repro train`"
            ) from error
        return model

    @abstractmethod
    def _grow(self, tables: Mapping[str, Table], rounds: Rounds) -> Any:
        """The trees up to the best round; `tables` has `train`, and `valid` unless there are no such programs."""

    @abstractmethod
    def _output(
        self, values: Float32[np.ndarray, "programs columns"], start: Float64[np.ndarray, "programs"] | None
    ) -> np.ndarray:
        """What the trees say of each row, see `as_prediction`, with what they start from."""

    @abstractmethod
    def _read(self, path: Path) -> Any:
        """The trees of a file.

        Raises:
            ValueError: it is torn.
        """

    def _table(self, programs: Programs) -> FlatFeatures:
        parts = [table_of(programs, self._view, self._pooled)]
        if self._estimate:
            parts.append(estimate_table(programs, f"{self.package} with model.estimate=true"))
        if self._machine_code:
            parts.append(machine_code_table(programs, f"{self.package} with model.machine_code=true"))
        return side_by_side(parts)

    def _start(self, table: FlatFeatures) -> Float64[np.ndarray, "programs"] | None:
        """The better estimate as an output of the trees, see `as_prediction`; none where they start from nothing."""
        if not (self._machine_code or self._estimate):
            return None
        return as_prediction(self._aim, table.column(START if self._machine_code else ESTIMATE))

    def _labelled(self, programs: Programs) -> Table:
        programs = programs.select(np.argsort(programs.workload, kind="stable"))
        table = self._table(programs)
        if not table.names:
            raise ConfigError(
                f"{self.package} has no column to learn from: features.leave_out leaves all groups out; keep one and "
                "run `dvc repro graphs`"
            )
        labels = self._loss.boosting_labels(programs.log_seconds, programs.workload)
        if self._aim is not Aim.SQUARED_ERROR:
            labels = relevance(labels, programs.workload)
        sizes = np.unique(programs.workload, return_counts=True)[1].astype(np.int64)
        return Table(
            table.names,
            table.values,
            labels,
            sizes,
            programs.log_seconds,
            programs.workload,
            self._start(table),
        )


def relevance(
    slowness: Float32[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
) -> Float32[np.ndarray, "programs"]:
    """Whole numbers as rankers want them: how many of the different labels of its workload are slower than this one."""
    found = np.zeros(len(slowness), dtype=np.float32)
    for index in np.unique(workload):
        rows = np.flatnonzero(workload == index)
        places = np.unique(slowness[rows], return_inverse=True)[1]
        found[rows] = places.max() - places
    return found


def as_prediction(aim: Aim, output: np.ndarray) -> Float64[np.ndarray, "programs"]:
    """What the trees say, lower is faster: trees that learned `relevance` give the fastest the most."""
    output = np.asarray(output, dtype=np.float64)
    return output if aim is Aim.SQUARED_ERROR else -output
