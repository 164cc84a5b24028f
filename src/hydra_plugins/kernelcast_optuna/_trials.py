"""The trials of a study that may have been interrupted: which count, which are tried again."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from hydra_plugins.kernelcast_optuna._slots import living_here
from kernelcast.stages.studies import TrialNote, note

logger = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
"""Parameters whose process goes away so often, at a lack of memory for one, count as failed."""

ENDING_SECONDS = 30.0
"""How long the jobs of a sweep that was killed may take to see it."""


def finished_trials(study: Study) -> int:
    """Trials that ended by themselves, well or not."""
    return sum(
        trial.state.is_finished() and not trial.user_attrs.get(TrialNote.INTERRUPTED, False)
        for trial in study.get_trials(deepcopy=False)
    )


def close_interrupted(study: Study, number: int, reason: str, by_itself: bool = False) -> None:
    """Closes a trial whose process went away, and queues its parameters again.

    In this order, so that a sweeper killed in between does the rest at its next start and nothing twice.

    Args:
        study: its study.
        number: of the trial.
        reason: what happened.
        by_itself: its process went away while the sweep went on.
    """
    trials = study.get_trials(deepcopy=False)
    trial = trials[number]
    attempt = trial.user_attrs.get(TrialNote.ATTEMPT, 0) + by_itself
    if attempt >= MOST_ATTEMPTS:
        fail(study, number, f"its process went away {attempt} times: {reason}")
        return
    # a trial that was interrupted while it was drawn has a part of what was queued
    params = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
    if params and not any(other.user_attrs.get(TrialNote.AGAIN) == number for other in trials):
        attributes = {TrialNote.AGAIN.value: number, TrialNote.ATTEMPT.value: attempt}
        study.enqueue_trial(params, user_attrs=attributes)
    note(study, number, TrialNote.INTERRUPTED, True)
    note(study, number, TrialNote.REASON, reason)
    study.tell(number, state=TrialState.FAIL)
    logger.warning("trial %d was interrupted (%s): its parameters are tried again", number, reason)


def close_left_over(study: Study) -> None:
    """Closes the trials that a dead sweeper left running; one whose job had ended has its value."""
    left = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    wait_for_jobs(left)
    for trial in left:
        now = study.get_trials(deepcopy=False)[trial.number]
        value = now.user_attrs.get(TrialNote.VALUE)
        if value is not None and math.isfinite(value):
            study.tell(trial.number, value)
            logger.info("trial %d had ended with %.4f when its sweep was killed", trial.number, value)
        else:
            close_interrupted(study, trial.number, "its sweep was killed")


def wait_for_jobs(trials: list[FrozenTrial]) -> None:
    """Waits for jobs on this machine that have yet to see that their sweep is dead."""
    processes = [trial.user_attrs[TrialNote.PROCESS] for trial in trials if TrialNote.PROCESS in trial.user_attrs]
    deadline = time.monotonic() + ENDING_SECONDS
    if living_here(processes):
        logger.info("waiting for jobs of a sweep that was killed")
    while living_here(processes) and time.monotonic() < deadline:
        time.sleep(0.2)


def fail(study: Study, number: int, reason: str) -> None:
    """Marks a trial as failed and says why."""
    note(study, number, TrialNote.REASON, reason)
    study.tell(number, state=TrialState.FAIL)
    logger.warning("trial %d failed: %s", number, reason)


def check_same(study: Study, marks: Mapping[str, Any]) -> str | None:
    """Notes what a study is about when it is new; else what differs now, in words."""
    for key, value in marks.items():
        noted = study.user_attrs.get(key)
        if noted is None:
            study.set_user_attr(key, value)
        elif noted != value:
            return f"{key} was {noted!r} and is {value!r} now"
    return None
