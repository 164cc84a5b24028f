"""A trained model with what it was trained on: enough to predict candidates that no stage made graphs of."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from jaxtyping import Float32, Float64

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.dataset.plan import ASSUMED_CACHE_BYTES
from kernelcast.graphs.dataset.store import StoredTarget
from kernelcast.graphs.machine_code.rows import machine_code_features
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.ragged import View
from kernelcast.graphs.trace import trace_view
from kernelcast.graphs.views import MACHINE_CODE
from kernelcast.models.protocol import CostModel
from kernelcast.models.saved import load_model, save_model
from kernelcast.models.trained_on import TrainedOn
from kernelcast.tuning.candidates import Reading, read_candidates, require_columns

logger = logging.getLogger(__name__)

MODEL_FOLDER = "model"
"""Where the stage `train` puts the model within its own folder."""

DECISIVE = {"llvm": ("mcpu", "num-cores"), "cuda": ("arch",)}
"""Entries of a target, by its kind, on which run times depend most: a model of others knows nothing of these."""


@dataclass(frozen=True)
class Judged:
    """What a judge says of candidates.

    Attributes:
        predicted: one number a candidate, lower is faster; infinite where the candidate cannot be read.
        rows: the flat features of each, NaN where it cannot be read; without columns unless they were asked for.
        faults: why candidates cannot be read.
    """

    predicted: Float64[np.ndarray, " candidates"]
    rows: Float32[np.ndarray, "candidates features"]
    faults: tuple[str, ...]


class Judge(Protocol):
    """Predicts candidates of a search."""

    @property
    def slope(self) -> float:
        """What a unit of the prediction is in ln(seconds); see `TrainedOn`."""

    @property
    def residual(self) -> float:
        """Standard deviation of ln(seconds) around the prediction; see `TrainedOn`."""

    def require_target(self, target: Any) -> None:
        """Makes sure that the judge knows programs for a TVM target.

        Raises:
            ConfigError: it was trained for another one.
        """

    def judge(self, schedules: Sequence[Any], keys: Sequence[str], target: Any, with_rows: bool) -> Judged:
        """Predicts TVM's schedules with the structural hashes `keys` for a TVM target.

        Raises:
            ConfigError: it was trained for another target.
            MalformedDataError: its features are of another version.
        """

    def save(self, directory: Path) -> None:
        """Writes itself into an existing folder."""

    def loaded(self, directory: Path) -> Self:
        """One with the same settings and the models that `save` wrote there."""


UNIT_OF_NOTHING = 1.0
"""Taken for the slope of a model whose predictions said nothing."""


@dataclass(frozen=True)
class TrainedModel:
    """One model.

    Attributes:
        model: fitted.
        trained_on: what to.
        any_target: whether it may predict programs for targets that it was not trained for.
        codes: machine code of programs that were built elsewhere, as rows of `machine_code_row` by structural hash; a
            program without one cannot be read. None: where the model looks at machine code, it builds programs itself.
    """

    model: CostModel
    trained_on: TrainedOn
    any_target: bool = False
    codes: dict[str, Float64[np.ndarray, " columns"]] | None = None

    @classmethod
    def load(cls, folder: str | Path, any_target: bool = False) -> Self:
        """Reads a model of the stage `train`.

        Args:
            folder: what `train` wrote, or the folder of the model in it.
            any_target: see the class.

        Raises:
            MissingInputError: there is no model, or it does not say what it was trained on.
            MalformedDataError: it is torn, or of another version.
        """
        directory = Path(folder)
        if (directory / MODEL_FOLDER).is_dir():
            directory = directory / MODEL_FOLDER
        return cls(load_model(directory), TrainedOn.read(directory), any_target)

    @property
    def slope(self) -> float:
        """See `Judge`."""
        return self.trained_on.slope

    @property
    def residual(self) -> float:
        """See `Judge`."""
        return self.trained_on.residual

    def require_target(self, target: Any) -> None:
        """See `Judge`."""
        self.stored_target(target_entries(target))

    def judge(self, schedules: Sequence[Any], keys: Sequence[str], target: Any, with_rows: bool) -> Judged:
        """See `Judge`."""
        entries = target_entries(target)
        stored = self.stored_target(entries)
        known = self.trained_on
        if with_rows and "features" not in known.columns:
            raise ConfigError(
                "to learn from trials needs the view `features`, and the model was trained on programs without it; add "
                "it to features.views, run `dvc repro graphs` and train again, or freeze the model"
            )
        views = dict.fromkeys([*known.views, *(["features"] if with_rows else [])])
        codes = self.codes
        if codes is not None:
            del views[MACHINE_CODE]
        machine = stored.machine
        reading = Reading(
            tuple(views),
            known.options,
            ASSUMED_CACHE_BYTES if machine is None else machine.cache_bytes,
            entries,
        )
        built = np.array([row for row, key in enumerate(keys) if codes is None or key in codes], dtype=np.int64)
        read = read_candidates([schedules[row] for row in built], reading)
        kept = built[read.kept]
        found = read.views
        if codes is not None:
            found |= {MACHINE_CODE: machine_code_features(codes[keys[row]] for row in kept)}
        require_columns(found, known.columns)
        predicted = np.full(len(schedules), np.inf)
        width = len(known.columns["features"]["names"]) if with_rows else 0
        rows = np.full((len(schedules), width), np.nan, dtype=np.float32)
        if not len(kept):
            return Judged(predicted, rows, read.faults)
        programs = self._programs(found, np.array(keys, dtype=np.str_)[kept], stored, entries)
        predicted[kept] = self._predicted(programs)
        if with_rows:
            rows[kept] = programs.features.values
        return Judged(predicted, rows, read.faults)

    def judge_traces(self, traces: Sequence[str], keys: Sequence[str], target: Any) -> Float64[np.ndarray, " traces"]:
        """Predicts schedule traces in JSON with the keys `keys` for a TVM target; for a model that looks at no more.

        Raises:
            ConfigError: it was trained for another target.
            MalformedDataError: its features are of another version.
        """
        entries = target_entries(target)
        stored = self.stored_target(entries)
        views = {"trace": trace_view(list(traces))}
        require_columns(views, self.trained_on.columns)
        return self._predicted(self._programs(views, np.array(keys, dtype=np.str_), stored, entries))

    def save(self, directory: Path) -> None:
        """See `Judge`."""
        save_model(self.model, directory / MODEL_FOLDER, self.trained_on)

    def loaded(self, directory: Path) -> Self:
        """See `Judge`."""
        return replace(self.load(directory, self.any_target), codes=self.codes)

    def _programs(
        self, views: Mapping[str, View], keys: np.ndarray, stored: StoredTarget, entries: dict[str, Any]
    ) -> Programs:
        count = len(keys)
        return Programs.in_memory(
            views,
            log_seconds=np.zeros(count),
            workload=np.zeros(count, dtype=np.int32),
            workload_names=("candidates",),
            program_key=keys,
            targets=(stored.label,),
            machines=(_of_cores(stored.machine, entries),),
            feature_version=self.trained_on.feature_version,
        )

    def _predicted(self, programs: Programs) -> Float64[np.ndarray, " programs"]:
        predicted = self.model.predict(programs)
        if np.isnan(predicted).any():
            raise MalformedDataError("the model's prediction of a candidate is no number; train it again")
        return predicted

    def stored_target(self, entries: Mapping[str, Any]) -> StoredTarget:
        """That of the model's targets that is this one; the most similar one of its kind where any will do.

        Args:
            entries: a target as a plain dict.

        Raises:
            ConfigError: it was trained for another one.
        """
        names = ("kind", *DECISIVE.get(str(entries["kind"]), ()))
        targets = self.trained_on.targets

        def agreement(stored: StoredTarget) -> int:
            return sum(stored.target.get(name) == entries.get(name) for name in names)

        best = max(targets, key=agreement)
        if agreement(best) == len(names) or (self.any_target and best.target.get("kind") == entries["kind"]):
            return best
        trained = " or ".join(json.dumps({name: one.target.get(name) for name in names}) for one in targets)
        wanted = json.dumps({name: entries.get(name) for name in names})
        raise ConfigError(
            f"the model was trained for {trained}, and these programs are for {wanted}, of which it knows "
            "nothing; train a model on measurements of this target"
            + ("" if self.any_target else ", or set any_target=true to use it all the same")
        )


def target_entries(target: Any) -> dict[str, Any]:
    """A TVM target as a plain dict."""
    entries: dict[str, Any] = json.loads(str(target))
    return entries


def _of_cores(machine: Machine | None, entries: dict[str, Any]) -> Machine | None:
    """The machine with as many cores as the target uses."""
    cores = entries.get("num-cores")
    if machine is None or not cores or cores == machine.cores:
        return machine
    return replace(machine, cores=cores, peak_flops_per_second=machine.peak_flops_per_second * cores / machine.cores)
