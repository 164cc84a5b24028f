"""A trained model that predicts whatever a user has: modules, schedules, databases, networks, operators."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelcast.errors import ConfigError, MalformedDataError, MeasurementError
from kernelcast.exchange.foreign import trace_key
from kernelcast.measurement.sampling import draw_candidates
from kernelcast.measurement.settings import require_positive_integer
from kernelcast.models.protocol import PredictionKind
from kernelcast.prediction.answer import Answer
from kernelcast.prediction.asking import asked
from kernelcast.prediction.graphs import answer_of_graphs
from kernelcast.prediction.names import InPython
from kernelcast.prediction.subjects import Origin, Subject
from kernelcast.tuning.trained import TrainedModel
from kernelcast.tvm_compat import make_target, prepare_for, resolve_target, structural_key

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

PIECE = 256
"""Programs that are held in memory at once."""

SAMPLES = 64
"""Schedules that are drawn of a workload that comes without one."""

WITHOUT_TRACE = (
    "the model looks at the schedule's trace, and a module alone has none: give the workload with its trace, a tuning "
    "database, or an unscheduled workload"
)


def _silent(done: int, total: int) -> None:
    """Shows nothing."""


@dataclass(frozen=True)
class Predictor:
    """A trained model and where it came from; `kernelcast.load` makes one.

    Attributes:
        trained: the model, with what it was trained on.
        source: where it came from, for messages.
    """

    trained: TrainedModel
    source: str

    @property
    def kind(self) -> PredictionKind:
        """Whether it predicts times or only an order within a workload."""
        return self.trained.model.kind

    @property
    def targets(self) -> list[dict[str, Any]]:
        """What it was trained for."""
        return [dict(stored.target) for stored in self.trained.trained_on.targets]

    def predict(
        self,
        what: Any,
        *,
        samples: int = SAMPLES,
        seed: int = 0,
        target: Mapping[str, Any] | None = None,
        shape: Mapping[str, Any] | None = None,
        example: Any = None,
        module: str | None = None,
        function: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        trust_python: bool = False,
    ) -> pd.DataFrame:
        """Predicts programs: one row each, in their order, with the columns of `prediction.answer.SCHEMA`.

        A workload that comes without a schedule stands for its search space: `samples` random schedules of it are
        drawn, as MetaSchedule does, and predicted.

        Args:
            what: a TVM `IRModule`, `PrimFunc` or `Schedule`; a pair of an unscheduled module and a schedule trace; a
                `torch.nn.Module`, with `example`; a path to a module in JSON, a MetaSchedule database, measurements,
                graphs or a Python file; the name of an operator, with `shape`, or of a network; or a list of those.
            samples: schedules to draw of each workload without one; 0 predicts it as it stands.
            seed: of the draws.
            target: entries of the target, where the model was trained for several.
            shape: sizes of an operator or network that is given by name.
            example: the input of a `torch.nn.Module`; of one in a Python file, a name in that file.
            module: in a Python file, the name of a `torch.nn.Module`, its class or a function that makes one.
            function: in a Python file, the name of a tensor program.
            arguments: given to `module` or `function` in a Python file.
            trust_python: whether a Python file may run.

        Raises:
            ConfigError: something that cannot be predicted, or is of another target.
            MissingInputError: there is no such file.
            MalformedDataError: a file cannot be read, or none of the programs can be predicted.
        """
        example_name = example if isinstance(example, str) else None
        code = InPython(module, example_name, function, arguments or {}, trust_python)
        subjects = asked(what, shape or {}, example, code, self.trained.stored_target)
        if isinstance(subjects, Path):
            return answer_of_graphs(self.trained, subjects).frame()
        return self.answer(subjects, samples=samples, seed=seed, target=target).frame()

    def target(self, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The target to predict for: the model's own, or of several the one with these entries.

        Raises:
            ConfigError: it was trained for several or for others.
        """
        entries = dict(wanted or {})
        fitting = [target for target in self.targets if entries.items() <= target.items()]
        if len(fitting) == 1:
            return fitting[0]
        listed = "; ".join(json.dumps(target) for target in self.targets)
        if fitting:
            raise ConfigError(
                f"the model was trained for several targets ({listed}); name entries that only one has, for example "
                "'target={num-cores: 1}'"
            )
        if self.trained.any_target:
            return resolve_target(entries)
        raise ConfigError(
            f"target={json.dumps(entries)}: the model was trained for {listed}; train one on measurements of this "
            "target, or set any_target=true to use it all the same"
        )

    def answer(
        self,
        subjects: Sequence[Subject],
        *,
        samples: int = SAMPLES,
        seed: int = 0,
        target: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], None] = _silent,
    ) -> Answer:
        """Predicts programs.

        Args:
            subjects: the programs.
            samples: see `predict`.
            seed: see `predict`.
            target: see `predict`; of the programs that do not say what they were measured on.
            progress: called with programs done and in all.

        Raises:
            ConfigError: a target that the model does not know, or TVM can schedule none of the workloads.
            MalformedDataError: none of the programs can be predicted.
        """
        if samples:
            require_positive_integer("samples", samples)
        recorded = subjects[0].target if subjects and all(one.target for one in subjects) else None
        chosen = self.target(target) if recorded is None else recorded
        total = sum(samples if samples and one.unscheduled else 1 for one in subjects)
        parts: list[tuple[Subject, float, str]] = []
        for piece in _pieces(self._expanded(subjects, samples, seed, chosen)):
            parts += self._judged(piece, chosen)
            # a space may hold fewer than were asked for
            progress(min(len(parts), total - 1), total)
        progress(len(parts), len(parts))
        found, predicted, faults = zip(*parts, strict=True) if parts else ((), (), ())
        if not np.isfinite(predicted).any():
            raise MalformedDataError(
                f"none of {len(parts)} programs can be predicted: {faults[0]}"
                if parts
                else "there is nothing to predict"
            )
        _warn(faults)
        trained_on = self.trained.trained_on
        return Answer(
            found, np.array(predicted), faults, self.kind, trained_on.slope, chosen, trained_on.typical_factor
        )

    def _expanded(
        self, subjects: Sequence[Subject], samples: int, seed: int, target: Mapping[str, Any]
    ) -> Iterable[Subject]:
        """The programs; for a workload without a schedule those that are drawn of it."""
        refused: MeasurementError | None = None
        drawn = 0
        for subject in subjects:
            if not (samples and subject.unscheduled):
                drawn += 1
                yield subject
                continue
            try:
                for candidate in draw_candidates(subject.workload, dict(target), samples, seed):
                    drawn += 1
                    yield Subject(subject.workload, candidate.trace, candidate.program_key, origin=Origin.DRAWN)
            except MeasurementError as error:
                refused = refused or error
                logger.warning("%s", error)
        if refused is not None and not drawn:
            raise ConfigError(f"{refused}; samples=0 predicts it as it stands") from refused

    def _judged(self, piece: Sequence[Subject], asked_target: Mapping[str, Any]) -> list[tuple[Subject, float, str]]:
        """Each program, with its prediction and why there is none."""
        targets = [json.dumps(dict(one.target or asked_target), sort_keys=True) for one in piece]
        told: dict[int, tuple[Subject, float, str]] = {}
        for target in dict.fromkeys(targets):
            rows = [row for row, text in enumerate(targets) if text == target]
            told.update(zip(rows, self._judged_of([piece[row] for row in rows], json.loads(target)), strict=True))
        return [told[row] for row in range(len(piece))]

    def _judged_of(self, subjects: Sequence[Subject], entries: dict[str, Any]) -> list[tuple[Subject, float, str]]:
        self.trained.stored_target(entries)
        target = make_target(entries)
        if self.trained.trained_on.views == ("trace",) and all(one.trace for one in subjects):
            # no program is made, so that those of another TVM can be predicted too
            keys = [one.program_key or trace_key(one.workload.key, one.trace) for one in subjects]
            predicted = self.trained.judge_traces([one.trace for one in subjects], keys, target)
            named = [replace(one, program_key=key) for one, key in zip(subjects, keys, strict=True)]
            return [(one, float(value), "") for one, value in zip(named, predicted, strict=True)]
        prepare_for(entries)
        schedules, rows, faults = [], [], [""] * len(subjects)
        for row, subject in enumerate(subjects):
            if "trace" in self.trained.trained_on.views and not subject.has_trace:
                faults[row] = WITHOUT_TRACE
                continue
            try:
                schedules.append(subject.schedule())
                rows.append(row)
            except MalformedDataError as error:
                faults[row] = str(error)
        known = list(subjects)
        keys = [structural_key(schedule.mod) for schedule in schedules]
        for row, key in zip(rows, keys, strict=True):
            known[row] = replace(known[row], program_key=key)
        judged = self.trained.judge(schedules, keys, target, with_rows=False)
        values = np.full(len(subjects), np.inf)
        values[rows] = judged.predicted
        unread = iter(judged.faults)
        for row in rows:
            if not np.isfinite(values[row]):
                faults[row] = next(unread, "the model has no prediction")
        return [(one, float(value), fault) for one, value, fault in zip(known, values, faults, strict=True)]


def _pieces(subjects: Iterable[Subject]) -> Iterable[list[Subject]]:
    piece: list[Subject] = []
    for subject in subjects:
        piece.append(subject)
        if len(piece) == PIECE:
            yield piece
            piece = []
    if piece:
        yield piece


def _warn(faults: Sequence[str]) -> None:
    unread = [fault for fault in faults if fault]
    if unread:
        logger.warning("%d of %d programs cannot be predicted; the first: %s", len(unread), len(faults), unread[0])
