"""The parent run of a multirun: its jobs nest under it in MLflow, and it carries the best value and parameters."""

from __future__ import annotations

import atexit
import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.console import Console
from rich.table import Table

from kernelcast.files import read_json
from kernelcast.stages.process_identity import process_identity
from kernelcast.stages.studies import (
    RECORD_FOLDER,
    STATE_TAG,
    STUDY_TAG,
    SUMMARY_FILE,
    SWEEPER_VARIABLE,
    TRIAL_TAG,
)
from kernelcast.stages.sweep_job import set_in_jobs
from kernelcast.stages.tracking import PARENT_VARIABLE, TrackedRun, close_stale_runs, start_run, without_password
from kernelcast.stages.tracking.address import shown_address

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

OBJECTIVE_METRIC = "objective"
"""Metric of a child run that its parent compares by."""

OVERRIDES_TAG = "kernelcast.overrides"
"""Tag of a child run: what sets it apart from its siblings, quoted as for a shell."""


class ParentRun(Callback):
    """Hydra callback that opens a parent run before the first job and closes it after the last one.

    Hydra does not call `on_multirun_end` when a job failed or the sweep was interrupted; then the run is closed as the
    process ends.
    """

    def __init__(self) -> None:
        self.run: TrackedRun | None = None
        self.experiment = ""
        self.maximize = True
        self.record = Path()

    def __getstate__(self) -> dict[str, Any]:
        """Launchers send callbacks along with jobs, in which there is nothing to close."""
        return {**self.__dict__, "run": None}

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Opens the parent run and tells the jobs of it, in whatever process they run."""
        self.maximize = config.direction == "maximize"
        self.record = Path(config.hydra.sweep.dir) / RECORD_FOLDER
        self.experiment = config.tracking.experiment
        overrides = " ".join(config.hydra.overrides.task)
        storage = OmegaConf.select(config, "hydra.sweeper.storage", default=None)
        tags = {OVERRIDES_TAG: overrides, **({STUDY_TAG: shown_address(str(storage))} if storage else {})}
        run = self.run = start_run(config, f"sweep {overrides}"[:200], "sweep", tags)
        atexit.register(self.close)
        set_in_jobs(config, {PARENT_VARIABLE: run.run_id, SWEEPER_VARIABLE: process_identity()})
        settings = config.copy()
        with open_dict(settings):
            del settings["hydra"]
        run.text(OmegaConf.to_yaml(without_password(settings)), "config.yaml")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Closes the parent run."""
        self.close(complete=True)

    def close(self, complete: bool = False) -> None:
        """Writes the best and what the sweep has left on the parent, ends the run; of a grid also prints a table.

        Args:
            complete: Hydra came to the end of the sweep; a study that had all its trials has no children then.
        """
        if self.run is None:
            return
        run, self.run = self.run, None
        atexit.unregister(self.close)
        status = "FAILED"
        try:
            children = self._children(run)
            scored = [child for child in children if OBJECTIVE_METRIC in child.data.metrics]
            study = read_json(self.record / SUMMARY_FILE, "train") if self.record.is_dir() else None
            if study is not None:
                write_study(run, study, self.record)
            else:
                if scored:
                    pick = max if self.maximize else min
                    write_best(run, pick(scored, key=lambda child: child.data.metrics[OBJECTIVE_METRIC]))
                print_children(children)
            if complete and (study is not None or scored or not children):
                status = "FINISHED"
            elif (study or {}).get("interrupted") or {"KILLED", "RUNNING"} & {child.info.status for child in children}:
                status = "KILLED"
            elif scored and study is None:
                status = "FINISHED"
            if study is not None:
                self._close_trials(run, study)
        finally:
            run.end(status)

    def _experiment_id(self, run: TrackedRun) -> str:
        from mlflow.exceptions import MlflowException

        experiment = run.client.get_experiment_by_name(self.experiment)
        if experiment is None:
            raise MlflowException(f"there is no experiment {self.experiment}")
        return str(experiment.experiment_id)

    def _children(self, run: TrackedRun) -> list[Run]:
        """The runs of the jobs; none where the store does not answer."""
        from mlflow.exceptions import MlflowException

        try:
            experiment = self._experiment_id(run)
            # of jobs whose process was killed while the sweep went on
            close_stale_runs(run.client, experiment)
            return child_runs(run.client, experiment, run.run_id)
        except MlflowException as error:
            logger.warning("the runs of the jobs cannot be read: %s", error)
            return []

    def _close_trials(self, run: TrackedRun, study: dict[str, Any]) -> None:
        """Says on runs whose process was killed, also in an earlier sweep, how their trials stand."""
        from mlflow.exceptions import MlflowException

        query = f"tags.`{STUDY_TAG}` = '{study['storage']}' AND tags.`{STATE_TAG}` = 'RUNNING'"
        try:
            for child in run.client.search_runs([self._experiment_id(run)], query, max_results=1000):
                state = study["states"].get(child.data.tags.get(TRIAL_TAG, ""), "INTERRUPTED")
                run.client.set_tag(child.info.run_id, STATE_TAG, state)
        except MlflowException as error:
            logger.warning("the runs of the trials cannot be read: %s", error)


def write_best(run: TrackedRun, best: Run) -> None:
    """Writes the best job of a grid on the parent."""
    params = dict(override.partition("=")[::2] for override in shlex.split(best.data.tags.get(OVERRIDES_TAG, "")))
    _write_values(run, best.data.metrics[OBJECTIVE_METRIC], {"run_id": best.info.run_id, **params})


def write_study(run: TrackedRun, study: dict[str, Any], record: Path) -> None:
    """Writes the best trial of a study, maybe of an earlier sweep, on the parent, and what is kept of the study."""
    run.artifact(record, RECORD_FOLDER)
    run.tags({STUDY_TAG: study["storage"], "kernelcast.study_name": study["study"]})
    best = study.get("best")
    if best is not None:
        _write_values(run, best["value"], {"run_id": best["run_id"], "trial": best["trial"], **best["params"]})


def _write_values(run: TrackedRun, objective: float, params: dict[str, Any]) -> None:
    run.metrics({f"best/{OBJECTIVE_METRIC}": objective})
    # what Hydra's keys may have besides is no part of a name
    run.params({"best." + key.lstrip("+~"): value for key, value in params.items()})


def child_runs(client: MlflowClient, experiment_id: str, parent: str) -> list[Run]:
    """All runs nested under `parent`, oldest first."""
    query = f"tags.`mlflow.parentRunId` = '{parent}'"
    found: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], query, order_by=["attributes.start_time ASC"], page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return found


def print_children(children: list[Run]) -> None:
    """A table of the jobs, if there are any: what was set, how each ended, its objective."""
    if not children:
        return
    table = Table(title="jobs of this sweep")
    for column in ("job", "overrides", "state", "objective"):
        table.add_column(column)
    for number, child in enumerate(children):
        objective = child.data.metrics.get(OBJECTIVE_METRIC)
        shown = "" if objective is None else f"{objective:.4f}"
        table.add_row(str(number), child.data.tags.get(OVERRIDES_TAG, ""), child.info.status, shown)
    Console(file=sys.stderr).print(table)
