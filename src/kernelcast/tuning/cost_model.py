"""Any kernelcast model as a cost model of TVM's MetaSchedule: in our own search, and in anyone else's.

from kernelcast.tuning import load_cost_model
model = load_cost_model("data/models/workload/ensemble-rank")
meta_schedule.tune_tir(..., cost_model=model)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import KernelcastError, MalformedDataError
from kernelcast.files import atomic_directory, read_json, unreadable, write_json
from kernelcast.tuning.draft_verify import BETTER_FOLDER, DRAFT_FOLDER, DraftThenVerify
from kernelcast.tuning.learning import Correction, Frozen, Learning, Trials, Unchanged, joined
from kernelcast.tuning.scores import as_scores, fastest_of, normal_draws, require_breadth
from kernelcast.tuning.trained import UNIT_OF_NOTHING, Judge, TrainedModel
from kernelcast.tvm_compat import load_tvm, structural_key

logger = logging.getLogger(__name__)

LEARNING_FILE = "learning.json"
TRIALS_FOLDER = "trials"
LEARNING_VERSION = 1
"""Version of the folder that `save` writes; a change that an older kernelcast cannot read raises it."""


def load_cost_model(
    folder: str | Path,
    learning: Learning | None = None,
    draft: str | Path | None = None,
    verify_share: float = 0.25,
    any_target: bool = False,
    breadth: float = 0.0,
    seed: int = 0,
) -> Any:
    """The MetaSchedule cost model of a trained model, used from the first trial on.

    Args:
        folder: what the stage `train` wrote, or what `save` of such a cost model did, with all it had learned.
        learning: how it goes on learning from trials; by default it stays as it is.
        draft: the folder of a cheaper model, which ranks all candidates, so that this one looks at the best of them
            alone; what `save` wrote has its own.
        verify_share: how many these are, as a share of all.
        any_target: whether it may be used for targets that it was not trained for.
        breadth: see `Scorer`.
        seed: likewise.

    Raises:
        MissingInputError: there is no model, or it does not say what it was trained on.
        MalformedDataError: it is torn, or of another version of the features.
    """
    directory = Path(folder)
    saved = (directory / LEARNING_FILE).is_file()
    if saved and (directory / DRAFT_FOLDER).is_dir():
        draft, better = directory / DRAFT_FOLDER, directory / BETTER_FOLDER
    else:
        better = directory
    judge: Judge = TrainedModel.load(better, any_target)
    if draft is not None:
        judge = DraftThenVerify(TrainedModel.load(draft, any_target), judge, verify_share)
    model = tvm_cost_model(judge, learning, breadth, seed)
    if saved:
        model.load(str(directory))
    logger.info("pretrained model used from trial 1: %s", directory)
    return model


def tvm_cost_model(judge: Judge, learning: Learning | None = None, breadth: float = 0.0, seed: int = 0) -> Any:
    """The MetaSchedule cost model of a judge.

    Beside MetaSchedule's methods it has `seconds`, spent in it so far, and `score_of(candidate)`, what it said of a
    candidate of the last search before that was measured, None where it said nothing.

    Args:
        judge: predicts candidates: `TrainedModel` or `DraftThenVerify`.
        learning: how it goes on learning from trials; by default it stays as it is.
        breadth: see `Scorer`.
        seed: likewise.
    """
    load_tvm()
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel
    from tvm_ffi import register_error

    # TVM gives errors from within its search by name: those that are known arrive as what they are
    errors: list[type[KernelcastError]] = [KernelcastError, *KernelcastError.__subclasses__()]
    for error in errors:
        register_error(error.__name__, error)

    @derived_object
    class KernelcastModel(PyCostModel):  # type: ignore[misc]
        """What MetaSchedule calls; all of it is passed on."""

        def __init__(self, scorer: Scorer) -> None:
            super().__init__()
            self.scorer = scorer

        @property
        def seconds(self) -> float:
            return self.scorer.seconds

        def score_of(self, candidate: Any) -> float | None:
            return self.scorer.score_of(candidate)

        def load(self, path: str) -> None:
            self.scorer.load(Path(path))

        def save(self, path: str) -> None:
            self.scorer.save(Path(path))

        def update(self, context: Any, candidates: Any, results: Any) -> None:
            self.scorer.update(context, candidates, results)

        def predict(self, context: Any, candidates: Any) -> np.ndarray:
            return self.scorer.predict(context, candidates)

    return KernelcastModel(Scorer(judge, Frozen() if learning is None else learning, breadth, seed))


@dataclass
class _Workload:
    """What is known of one workload.

    Attributes:
        known: prediction and flat features of the programs of this round of the search, by structural hash. Generations
            share programs, and all trials are among them.
        scores: the scores that were given in this round.
        fastest: the prediction that has the score 1 in this round; None before its first batch. Generations of a round
            are compared by their scores, so that all have the same.
        trials: by structural hash, in the order of the search.
        correction: what was learned of them.
        over: whether the round has ended, so that the next batch begins another one.
    """

    known: dict[str, tuple[float, np.ndarray]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    fastest: float | None = None
    trials: dict[str, Trials] = field(default_factory=dict)
    correction: Correction = field(default_factory=Unchanged)
    over: bool = False

    def begin_round(self) -> None:
        """Forgets what belongs to the last round."""
        if self.over:
            self.known = {key: (float(trial.predicted[0]), trial.rows[0]) for key, trial in self.trials.items()}
            self.scores, self.fastest, self.over = {}, None, False


class Scorer:
    """Scores candidates for MetaSchedule, and learns from trials.

    Args:
        judge: predicts candidates.
        learning: how it goes on from trials.
        breadth: how far scores may be off, in standard deviations of the model's error. Each program has its own draw,
            the same in all generations and rounds, so that a search finds what the model only may have wrong as well;
            for somebody who looks again.
        seed: of these draws.

    Raises:
        ConfigError: a breadth that is none.
    """

    def __init__(self, judge: Judge, learning: Learning, breadth: float = 0.0, seed: int = 0) -> None:
        require_breadth("breadth", breadth)
        self.seconds = 0.0
        self._judge = judge
        self._learning = learning
        self._breadth = breadth
        self._seed = seed
        self._workloads: dict[str, _Workload] = {}
        self._unreadable = 0

    def predict(self, context: Any, candidates: Sequence[Any]) -> Float64[np.ndarray, " candidates"]:
        """Scores of candidates of one workload, higher is faster; see `scores.as_scores`.

        One that cannot be read gets 0, the least that there is.

        Raises:
            ConfigError: the model was trained for another target.
            MalformedDataError: no candidate can be read, or the features are of another version.
        """
        with self._clock():
            workload = self._workloads.setdefault(structural_key(context.mod), _Workload())
            workload.begin_round()
            schedules = [candidate.sch for candidate in candidates]
            keys = [structural_key(schedule.mod) for schedule in schedules]
            predicted, rows = self._predictions(workload, schedules, keys, context.target)
            corrected = workload.correction.apply(predicted, rows) + self._doubts(workload, keys)
            if workload.fastest is None and np.isfinite(corrected).any():
                workload.fastest = fastest_of(corrected)
            scores = as_scores(corrected, workload.fastest)
            workload.scores.update(zip(keys, scores.tolist(), strict=True))
            return scores

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learns from the trials of a round; a failed one has no time and counts as none."""
        with self._clock():
            workload = self._workloads.setdefault(structural_key(context.mod), _Workload())
            workload.over = True
            schedules = [candidate.sch for candidate in candidates]
            keys = [structural_key(schedule.mod) for schedule in schedules]
            predicted, rows = self._predictions(workload, schedules, keys, context.target)
            for place, (key, result) in enumerate(zip(keys, results, strict=True)):
                times = [] if result.run_secs is None else [float(seconds) for seconds in result.run_secs]
                # the fastest repeat, as the labels that the model learned from
                log_seconds = np.log(min(times)) if times and min(times) > 0 else np.nan
                one = slice(place, place + 1)
                workload.trials[key] = Trials(predicted[one], rows[one], np.array([log_seconds]))
            self._learn(workload)

    def score_of(self, candidate: Any) -> float | None:
        """The score that a candidate has got in the last round of its workload; None where it has got none."""
        key = structural_key(candidate.sch.mod)
        found = (workload.scores.get(key) for workload in self._workloads.values())
        return next((score for score in found if score is not None), None)

    def save(self, directory: Path) -> None:
        """Writes models and trials into a folder, whole or not at all; no pickle.

        Raises:
            StorageError: something else is there.
        """
        with atomic_directory(directory, LEARNING_FILE) as temporary:
            self._judge.save(temporary)
            (temporary / TRIALS_FOLDER).mkdir()
            for workload_key, workload in self._workloads.items():
                if workload.trials:
                    trials = joined(list(workload.trials.values()))
                    np.savez(
                        temporary / TRIALS_FOLDER / f"{workload_key}.npz",
                        program_key=np.array(list(workload.trials), dtype=np.str_),
                        predicted=trials.predicted,
                        rows=trials.rows,
                        log_seconds=trials.log_seconds,
                    )
            write_json(temporary / LEARNING_FILE, {"version": LEARNING_VERSION})

    def load(self, directory: Path) -> None:
        """Takes the models and the trials that `save` wrote in the place of its own, and learns from them anew.

        Raises:
            MissingInputError: there is no such folder.
            MalformedDataError: it is torn, or of another version.
        """
        described = read_json(directory / LEARNING_FILE, "tune")
        version = described.get("version") if isinstance(described, dict) else None
        if version != LEARNING_VERSION:
            raise MalformedDataError(
                f"{directory / LEARNING_FILE} has version {version}, this kernelcast reads {LEARNING_VERSION}; "
                "tune again"
            )
        judge = self._judge.loaded(directory)
        workloads = {}
        for path in sorted((directory / TRIALS_FOLDER).glob("*.npz")):
            workloads[path.stem] = _Workload(trials=_read_trials(path), over=True)
        self._judge, self._workloads = judge, workloads
        for workload in workloads.values():
            self._learn(workload)

    def _predictions(
        self, workload: _Workload, schedules: Sequence[Any], keys: Sequence[str], target: Any
    ) -> tuple[Float64[np.ndarray, " candidates"], np.ndarray]:
        """The model's own predictions and the flat features; only new programs are read, each once."""
        new = {key: schedule for key, schedule in zip(keys, schedules, strict=True) if key not in workload.known}
        if new:
            judged = self._judge.judge(list(new.values()), list(new), target, self._learning.needs_rows)
            workload.known.update(zip(new, zip(judged.predicted.tolist(), judged.rows, strict=True), strict=True))
            self._count_unreadable(judged.faults)
            if not any(np.isfinite(each) for each, _ in workload.known.values()):
                # equal scores for all would be a search at random
                raise MalformedDataError(
                    f"none of the {len(new)} candidates can be read: {judged.faults[0]}; tune this workload with "
                    "another cost model"
                )
        else:
            self._judge.require_target(target)
        found = [workload.known[key] for key in keys]
        return np.array([each for each, _ in found], dtype=np.float64), np.array([row for _, row in found])

    def _doubts(self, workload: _Workload, keys: Sequence[str]) -> Float64[np.ndarray, " candidates"] | float:
        """What is added to the predictions of programs, by their hashes, in the model's units."""
        if not self._breadth:
            return 0.0
        # a correction predicts ln(seconds)
        unit = (self._judge.slope or UNIT_OF_NOTHING) if isinstance(workload.correction, Unchanged) else 1.0
        return self._breadth * self._judge.residual / unit * normal_draws(keys, self._seed)

    def _count_unreadable(self, faults: Sequence[str]) -> None:
        if faults and not self._unreadable:
            logger.warning("a candidate cannot be read and gets the worst score, as will all such ones: %s", faults[0])
        self._unreadable += len(faults)

    def _learn(self, workload: _Workload) -> None:
        if workload.trials:
            trials = joined(list(workload.trials.values()))
            workload.correction = self._learning.learn(trials, self._judge.slope, self._judge.residual)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started


def _read_trials(path: Path) -> dict[str, Trials]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            keys = stored["program_key"].tolist()
            columns = [stored[name] for name in Trials.__dataclass_fields__]
    except (ValueError, KeyError, OSError, EOFError) as error:
        raise unreadable(path, "tune", error) from error
    return {key: Trials(*(column[place : place + 1] for column in columns)) for place, key in enumerate(keys)}
