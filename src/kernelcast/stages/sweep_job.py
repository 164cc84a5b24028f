"""One job of a sweep, in whatever process a launcher has put it: its trial, its trace, and the end of its sweeper."""

from __future__ import annotations

import logging
import math
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict, read_write

from kernelcast.errors import KernelcastError
from kernelcast.stages.process_identity import process_identity, process_may_live
from kernelcast.stages.studies import (
    STATE_TAG,
    STUDY_TAG,
    SWEEPER_VARIABLE,
    TRIAL_TAG,
    TrialNote,
    load_study,
    note,
    trial_id,
)
from kernelcast.stages.tracking import TrackedRun, tracked_run
from kernelcast.stages.tracking.address import shown_address

if TYPE_CHECKING:
    from optuna import Study

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
CLOSING_SECONDS = 5.0
"""How long a job may take to close its run when its sweep is dead."""


class SweepTrial:
    """The trial of this job.

    Args:
        study: with the pruner that the sweep has.
        number: of the trial.
        objective: the metric that the study compares; what a model logs under this name may end the trial.
        warmup: steps that every trial is given.
        storage: where the study is.
    """

    def __init__(self, study: Study, number: int, objective: str, warmup: int, storage: str) -> None:
        from optuna.trial import Trial

        self._study = study
        self._trial = Trial(study, trial_id(study, number))
        self._objective = objective
        self._warmup = warmup
        self._storage = storage
        self.number = number

    @property
    def tags(self) -> dict[str, str]:
        """Of its run, while it runs."""
        return {STUDY_TAG: shown_address(self._storage), TRIAL_TAG: str(self.number), STATE_TAG: "RUNNING"}

    def note(self, key: TrialNote, value: Any) -> None:
        """Notes something on the trial."""
        note(self._study, self.number, key, value)

    def is_wanted(self) -> bool:
        """Whether the sweep still waits for it."""
        return not self._study._storage.get_trial(self._trial._trial_id).state.is_finished()

    def report(self, values: Mapping[str, float], step: int) -> None:
        """Tells the study the metrics of a step, if the objective is among them.

        Raises:
            TrainingPruned: the trial is not worth going on with.
            KeyboardInterrupt: the sweep has given it up.
        """
        from optuna.exceptions import UpdateFinishedTrialError

        from kernelcast.models.protocol import TrainingPruned

        value = values.get(self._objective, math.nan)
        if not math.isfinite(value):
            return
        try:
            self._trial.report(value, step)
            prune = step >= self._warmup and self._trial.should_prune()
        except UpdateFinishedTrialError as error:
            raise KeyboardInterrupt("the sweep has given this trial up") from error
        # of whatever driver: a training of hours is worth more than the chance to end it early
        except Exception as error:
            logger.warning("the study cannot be told of step %d, so this trial is not pruned now: %s", step, error)
            return
        if prune:
            raise TrainingPruned(f"pruned at step {step} with {self._objective} = {value:.4g}")


def trial_of_this_job(objective: str) -> SweepTrial | None:
    """The trial that this job is; None where it is none of a study."""
    from hydra.utils import instantiate

    launch = HydraConfig.get()
    if launch.mode != RunMode.MULTIRUN or "kernelcast_optuna" not in str(launch.sweeper._target_):
        return None
    sweeper = launch.sweeper
    study = load_study(str(sweeper.storage), sweeper.study, instantiate(sweeper.pruner))
    return SweepTrial(study, launch.job.num, objective, sweeper.warmup, str(sweeper.storage))


@contextmanager
def trial_run(
    config: DictConfig, name: str, trial: SweepTrial | None, resume: str | None = None
) -> Iterator[TrackedRun]:
    """The tracked run of a training; of a trial it says which one it is and how it ended.

    A pruned one reads FINISHED, with the state in its name and on a tag: MLflow's page draws KILLED as it draws FAILED,
    and nothing went wrong.

    Args:
        config: the resolved root configuration.
        name: what the page shows.
        trial: None where the training is none.
        resume: id of the run of a process that was killed in the same training.
    """
    from kernelcast.models.protocol import TrainingPruned

    pruned: TrainingPruned | None = None
    with tracked_run(config, name, "train", resume, trial.tags if trial else None) as run:
        if trial is None:
            yield run
            return
        trial.note(TrialNote.RUN, run.run_id)
        try:
            yield run
        except TrainingPruned as error:
            pruned = error
            run.tags({STATE_TAG: "PRUNED"})
            with suppress(Exception):
                shown_name = run.client.get_run(run.run_id).info.run_name
                run.tags({"mlflow.runName": f"{shown_name}, {error}"})
        except BaseException as error:
            with suppress(Exception):
                run.tags({STATE_TAG: "INTERRUPTED" if isinstance(error, KeyboardInterrupt) else "FAIL"})
            raise
    if pruned is not None:
        raise pruned


def end_tags(trial: SweepTrial | None, objective: float) -> dict[str, str]:
    """Tags of a run that came to its end: a trial without a value has failed."""
    return {} if trial is None else {STATE_TAG: "COMPLETE" if math.isfinite(objective) else "FAIL"}


class SweptJob(Callback):
    """Hydra callback around each job of a multirun; does nothing around a single run."""

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Says where the trial runs, and watches over the sweep.

        Raises:
            KeyboardInterrupt: the sweep has given the trial up before it began.
        """
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        watch_sweeper()
        trial = trial_of_this_job(config.objective)
        if trial is None:
            return
        if not trial.is_wanted():
            raise KeyboardInterrupt("the sweep has given this trial up")
        trial.note(TrialNote.PROCESS, process_identity())

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Keeps what the job returned, or the trace of its error, before it travels to the sweep."""
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        value = job_return._return_value
        if job_return.status == JobStatus.COMPLETED:
            trial = trial_of_this_job(config.objective)
            if trial is not None and isinstance(value, int | float) and math.isfinite(value):
                trial.note(TrialNote.VALUE, float(value))
        elif isinstance(value, BaseException):
            write_trace(value, Path(config.hydra.runtime.output_dir))
            job_return.return_value = portable(value)


def write_trace(error: BaseException, folder: Path) -> None:
    """Writes the trace of a failed job into its own log; the terminal gets one line."""
    from kernelcast.models.protocol import TrainingPruned

    if isinstance(error, TrainingPruned):
        return
    # the stage has told what it explains
    if not isinstance(error, KernelcastError):
        logger.error("%s: %s; the trace is in the log in %s", type(error).__name__, error, folder)
    trace = (type(error), error, error.__traceback__)
    record = logger.makeRecord(logger.name, logging.ERROR, __file__, 0, "the job failed", (), trace)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)


def portable(error: BaseException) -> BaseException:
    """The error, or one that says the same where it cannot be sent to another process.

    One that arrives but cannot be read would take the launcher's other jobs with it.
    """
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def set_in_jobs(config: DictConfig, variables: dict[str, str]) -> None:
    """Sets environment variables in the jobs of a sweep: every launcher composes them with Hydra's own overrides."""
    overrides = config.hydra.overrides
    with read_write(overrides), open_dict(overrides):
        overrides.hydra.extend([f"++hydra.job.env_set.{name}='{value}'" for name, value in variables.items()])


def watch_sweeper() -> None:
    """Ends this process, its run closed as interrupted, when the process of its sweep is gone."""
    sweeper = os.environ.get(SWEEPER_VARIABLE)
    name = f"watch {sweeper}"
    if not sweeper or sweeper == process_identity() or any(thread.name == name for thread in threading.enumerate()):
        return
    threading.Thread(target=_watch, args=(sweeper,), daemon=True, name=name).start()


def _watch(sweeper: str) -> None:
    while process_may_live(sweeper):
        time.sleep(WATCH_SECONDS)
    print("the sweep is gone: this job ends", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(CLOSING_SECONDS)
    os._exit(130)
