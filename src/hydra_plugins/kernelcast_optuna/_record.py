"""What a sweep leaves beside its jobs: the study, its trials as a table, its plots, the best of them."""

from __future__ import annotations

import csv
import logging
import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna import Study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.table import Table

from kernelcast.files import atomic_directory, write_json
from kernelcast.stages.studies import SUMMARY_FILE, TrialNote
from kernelcast.stages.tracking.address import shown_address

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

logger = logging.getLogger(__name__)

JOURNAL_FILE = "study.journal"
TRIALS_FILE = "trials.csv"
PAGE_FILE = "study.html"

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title></head><body style="font-family: sans-serif; max-width: 70rem; margin: auto; padding: 1rem">
<h1>{title}</h1>
{plots}
</body></html>
"""


@dataclass(frozen=True)
class Record:
    """What is kept of a study when a sweep ends.

    Attributes:
        study: as it is then.
        storage: where it is.
        objective: what its trials are compared by.
        interrupted: whether the user ended the sweep, who does not wait for plots.
    """

    study: Study
    storage: str
    objective: str
    interrupted: bool

    def write(self, folder: Path) -> None:
        """Writes study, table, plots and summary into `folder`, whole or not at all."""
        with atomic_directory(folder) as temporary:
            copy = JournalStorage(JournalFileBackend(str(temporary / JOURNAL_FILE)))
            optuna.copy_study(from_study_name=self.study.study_name, from_storage=self.study._storage, to_storage=copy)
            write_table(self.study, temporary / TRIALS_FILE)
            if not self.interrupted:
                (temporary / PAGE_FILE).write_text(page(self.study, self.objective))
            write_json(temporary / SUMMARY_FILE, self.summary())
        logger.info("the study, %s and its plots are in %s", TRIALS_FILE, folder)

    def summary(self) -> dict[str, Any]:
        """What the parent run shows: where the study is, how its trials ended, the best of them."""
        trials = self.study.get_trials(deepcopy=False)
        found: dict[str, Any] = {
            "study": self.study.study_name,
            "storage": shown_address(self.storage),
            "objective": self.objective,
            "interrupted": self.interrupted,
            "states": {str(trial.number): state_of(trial) for trial in trials},
        }
        if any(trial.state == TrialState.COMPLETE for trial in trials):
            best = self.study.best_trial
            run = best.user_attrs.get(TrialNote.RUN)
            found["best"] = {"trial": best.number, "value": best.value, "params": best.params, "run_id": run}
        return found


def write_table(study: Study, path: Path) -> None:
    """Writes one row a trial, with the columns that Optuna's own table has."""
    trials = study.get_trials(deepcopy=False)
    params = sorted({key for trial in trials for key in trial.params})
    notes = sorted({key for trial in trials for key in trial.user_attrs})
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        head = ["number", "state", "value", "datetime_start", "datetime_complete"]
        writer.writerow([*head, *(f"params_{key}" for key in params), *(f"user_attrs_{key}" for key in notes)])
        for trial in trials:
            row = [trial.number, trial.state.name, trial.value, trial.datetime_start, trial.datetime_complete]
            writer.writerow([*row, *map(trial.params.get, params), *map(trial.user_attrs.get, notes)])


def page(study: Study, objective: str) -> str:
    """One page that needs no network: the history of the objective, how much each parameter matters, both by value."""
    title = f"study {study.study_name}: {objective}"
    # the library for the plots is on the page once, with the first
    plots = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(figures(study, objective))
    ]
    return PAGE.format(title=title, plots="\n".join(plots) or "<p>No trial has come to its end.</p>")


def figures(study: Study, objective: str) -> list[Figure]:
    """The plots that the trials so far allow."""
    from optuna import visualization
    from optuna.importance import PedAnovaImportanceEvaluator

    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        return []
    found = [visualization.plot_optimization_history(study, target_name=objective)]
    if any(trial.intermediate_values for trial in study.get_trials(deepcopy=False)):
        found.append(visualization.plot_intermediate_values(study))
    # of equal values no parameter explains the difference
    if len({trial.value for trial in complete}) > 1:
        # Watanabe et al. 2023 (arXiv 2304.10255): of getting among the best; costs no forest of trees
        evaluator = PedAnovaImportanceEvaluator()
        found.append(visualization.plot_param_importances(study, evaluator=evaluator, target_name=objective))
        found.append(visualization.plot_slice(study, target_name=objective))
    return found


def print_trials(study: Study) -> None:
    """A table of all trials: parameters, how each ended and why."""
    table = Table(title=f"trials of the study {study.study_name}")
    for column in ("trial", "state", "objective", "parameters", "reason"):
        table.add_column(column)
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.WAITING]
    for trial in trials:
        params = " ".join(f"{key}={number(value)}" for key, value in trial.params.items())
        value = "" if trial.value is None else number(trial.value)
        table.add_row(str(trial.number), state_of(trial), value, params, trial.user_attrs.get(TrialNote.REASON, ""))
    Console(file=sys.stderr).print(table)
    counts = Counter(state_of(trial) for trial in trials)
    logger.info("%s", ", ".join(f"{count} {state}" for state, count in sorted(counts.items())))


def state_of(trial: FrozenTrial) -> str:
    """The state of a trial; one that was interrupted does not count as failed."""
    return "INTERRUPTED" if trial.user_attrs.get(TrialNote.INTERRUPTED) else trial.state.name


def number(value: Any) -> str:
    """A number with the digits that matter."""
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value)
