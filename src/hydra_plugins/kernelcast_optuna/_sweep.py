"""A sweep from its first trial to its last: ask, launch, tell; what is interrupted is left so that it can go on."""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import optuna
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from optuna import Study
from optuna.exceptions import StorageInternalError
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from hydra_plugins.kernelcast_optuna._ownership import claimed, locked_file
from hydra_plugins.kernelcast_optuna._record import Record, print_trials
from hydra_plugins.kernelcast_optuna._slots import Ended, Slots, signal_here
from hydra_plugins.kernelcast_optuna._space import Space, check_keys, space_of
from hydra_plugins.kernelcast_optuna._trials import (
    check_same,
    close_interrupted,
    close_left_over,
    fail,
    finished_trials,
)
from kernelcast.errors import ConfigError, KernelcastError, StorageError
from kernelcast.models.protocol import TrainingPruned
from kernelcast.stages.process_identity import process_identity
from kernelcast.stages.studies import RECORD_FOLDER, SWEEPER_VARIABLE, TrialNote, open_storage
from kernelcast.stages.sweep_job import set_in_jobs
from kernelcast.stages.tracking import sigterm_as_interrupt
from kernelcast.stages.tracking.address import shown_address

if TYPE_CHECKING:
    from hydra_plugins.kernelcast_optuna.sweeper import OptunaSweeper

logger = logging.getLogger(__name__)

LONGEST_REASON = 200
"""Characters of an error in a table; the job's own log has it whole."""

PATIENCE_SECONDS = (3.0, 20.0, 5.0)
"""How long running jobs get to end when the sweep is interrupted: by themselves, after SIGTERM, after SIGKILL."""


def run_sweep(sweeper: OptunaSweeper, arguments: list[str]) -> float | None:
    """See `OptunaSweeper.sweep`."""
    assert sweeper.hydra_context is not None
    assert sweeper.config is not None
    space = space_of(sweeper.hydra_context.config_loader, sweeper.space, arguments)
    config = sweeper.trial_config(space.fixed)
    check_keys(space, config)
    set_in_jobs(sweeper.config, {SWEEPER_VARIABLE: process_identity()})
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with locked_file(sweeper.study_name, sweeper.storage), sigterm_as_interrupt(), storage_told(sweeper.storage):
        study = optuna.create_study(
            study_name=sweeper.study_name,
            storage=open_storage(sweeper.storage),
            direction=optuna.study.StudyDirection[str(getattr(config.direction, "name", config.direction)).upper()],
            pruner=sweeper.pruner,
            load_if_exists=True,
        )
        require_same(study, space, config)
        with claimed(study, sweeper.storage):
            close_left_over(study)
            sweeper.write_settings()
            interrupted = True
            try:
                Sweep(sweeper, study, space).run()
                interrupted = False
            except Exception:
                interrupted = False
                raise
            finally:
                print_trials(study)
                kept = Record(study, sweeper.storage, config.objective, interrupted)
                kept.write(sweeper.folder / RECORD_FOLDER)
            return best_value(study, config.objective)


@contextmanager
def storage_told(storage: str) -> Iterator[None]:
    """Has what a database refuses in the middle of a sweep say which one it is, and that nothing is lost.

    Raises:
        StorageError: in place of the error of Optuna or of the driver.
    """
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        reason = (str(error.__cause__ or error).strip().splitlines() or [type(error).__name__])[0]
        raise StorageError(
            f"the studies in {shown_address(storage)} cannot be read or written now: {reason}; the same line goes "
            "on when they can"
        ) from error


def require_same(study: Study, space: Space, config: Any) -> None:
    """Makes sure that a study that goes on compares what can be compared.

    Raises:
        ConfigError: it was begun with another objective, direction or other fixed overrides.
    """
    marks = {"objective": config.objective, "fixed overrides": " ".join(sorted(space.fixed))}
    differs = check_same(study, marks)
    wanted = str(getattr(config.direction, "name", config.direction))
    if study.direction.name.lower() != wanted:
        differs = f"direction was {study.direction.name.lower()} and is {wanted} now"
    if differs:
        raise ConfigError(
            f"the study {study.study_name} was begun with other settings, so its trials cannot be compared with new "
            f"ones: {differs}; type the same line, or name another hydra.sweeper.study"
        )


class Sweep:
    """The loop over trials."""

    def __init__(self, sweeper: OptunaSweeper, study: Study, space: Space) -> None:
        assert sweeper.launcher is not None
        self._sweeper = sweeper
        self._study = study
        self._space = space
        self._slots = Slots(sweeper.launcher, sweeper.in_process)
        self._asked: set[int] = set()

    def run(self) -> None:
        """Runs trials until the study has enough.

        Raises:
            KernelcastError: a trial failed and the sweep was to stop then.
        """
        done = finished_trials(self._study)
        # the seed alone would draw the first trials a second time when a study goes on
        self._study.sampler = self._sweeper.sampler(seed=self._sweeper.seed + done)
        where = shown_address(self._sweeper.storage)
        logger.info(
            "study %s in %s: %d of %d trials finished", self._study.study_name, where, done, self._sweeper.trials
        )
        if done >= self._sweeper.trials:
            logger.warning("nothing to do: raise hydra.sweeper.trials or name another hydra.sweeper.study")
        try:
            while self._fill():
                ended = self._slots.wait()
                assert ended is not None
                self._take(ended)
        except BaseException:
            self._interrupt()
            raise

    def _fill(self) -> bool:
        """Starts trials in every free slot; whether any runs."""
        left = self._sweeper.trials - finished_trials(self._study)
        while len(self._asked) < min(self._sweeper.jobs, left):
            try:
                trial = self._study.ask(self._space.distributions)
            except ValueError as error:
                raise ConfigError(
                    f"the study {self._study.study_name} has trials from another space ({error}); name another "
                    "hydra.sweeper.study"
                ) from error
            self._asked.add(trial.number)
            overrides = self._space.overrides(trial.params)
            self._sweeper.validate_batch_is_legal([overrides])
            self._slots.start(trial.number, overrides)
        return bool(self._asked)

    def _take(self, ended: Ended) -> None:
        """Tells the study how a job ended."""
        if isinstance(ended.error, HydraException | OmegaConfBaseException | KernelcastError):
            # no trial can be composed or launched
            raise ended.error
        self._asked.discard(ended.number)
        if ended.returned is None:
            close_interrupted(self._study, ended.number, reason_of_error(ended.error), by_itself=True)
            return
        value = objective_of(ended.returned)
        if value is not None:
            self._study.tell(ended.number, value)
            logger.info("trial %d ended with %.4f", ended.number, value)
        elif isinstance(ended.returned._return_value, TrainingPruned):
            self._study.tell(ended.number, state=TrialState.PRUNED)
            logger.info("trial %d was pruned: %s", ended.number, ended.returned._return_value)
        else:
            fail(self._study, ended.number, reason_of(ended.returned))
            if self._sweeper.stop_on_failure:
                raise KernelcastError(
                    f"trial {ended.number} failed and hydra.sweeper.stop_on_failure is set; the same line goes on "
                    "with the next trial"
                )

    def _interrupt(self) -> None:
        """Ends the jobs that run and leaves no trial running."""
        for patience, number in zip(PATIENCE_SECONDS, (signal.SIGTERM, signal.SIGKILL, None), strict=True):
            while self._slots.running and (ended := self._slots.wait(patience)):
                if ended.returned is not None and objective_of(ended.returned) is not None:
                    self._take(ended)
            if self._slots.running and number is not None:
                signal_here(self._processes(), number)
        # also one that was only half drawn
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            close_interrupted(self._study, trial.number, "the sweep was interrupted")
        self._asked.clear()

    def _processes(self) -> list[str]:
        trials = self._study.get_trials(deepcopy=False)
        attributes = [trials[number].user_attrs for number in self._slots.running]
        return [each[TrialNote.PROCESS] for each in attributes if TrialNote.PROCESS in each]


def objective_of(returned: JobReturn) -> float | None:
    """The finite number that a job returned, or None when it failed."""
    if returned.status != JobStatus.COMPLETED:
        return None
    value = returned.return_value
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def reason_of(returned: JobReturn) -> str:
    """Why a job has no objective."""
    if returned.status != JobStatus.COMPLETED:
        return reason_of_error(returned._return_value)
    return f"its objective is {returned.return_value}, not a finite number"


def reason_of_error(error: Any) -> str:
    """An error in one line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:LONGEST_REASON]


def best_value(study: Study, objective: str) -> float | None:
    """The best value, which is also told.

    Raises:
        KernelcastError: no trial came to its end.
    """
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        raise KernelcastError(f"no trial of the study {study.study_name} came to its end; the reasons are above")
    best = study.best_trial
    typed = " ".join(f"{name}={value}" for name, value in best.params.items())
    logger.info("best trial %d: %s = %.4f with %s", best.number, objective, study.best_value, typed)
    return float(study.best_value)
