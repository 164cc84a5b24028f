"""The parent run of a multirun: its jobs nest under it in MLflow, and it carries the best value and parameters."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.console import Console
from rich.table import Table

from kernelcast.stages.tracking import PARENT_VARIABLE, close_stale_runs, open_experiment, provenance_tags

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
        self.client: MlflowClient | None = None
        self.run_id = ""
        self.experiment_id = ""
        self.maximize = True

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Opens the parent run and tells the jobs of it through the environment."""
        self.maximize = config.direction == "maximize"
        self.client, self.experiment_id = open_experiment(config)
        close_stale_runs(self.client, self.experiment_id)
        overrides = " ".join(config.hydra.overrides.task)
        study = OmegaConf.select(config, "hydra.sweeper.storage", default=None)
        tags = {
            **provenance_tags(Path(config.paths.root)),
            "kernelcast.stage": "sweep",
            OVERRIDES_TAG: overrides,
            **({"kernelcast.study": str(study)} if study else {}),
        }
        run = self.client.create_run(self.experiment_id, run_name=f"sweep {overrides}"[:200], tags=tags)
        self.run_id = run.info.run_id
        os.environ[PARENT_VARIABLE] = self.run_id
        atexit.register(self.close)
        settings = config.copy()
        with open_dict(settings):
            del settings["hydra"]
        self.client.log_text(self.run_id, OmegaConf.to_yaml(settings), "config.yaml")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Closes the parent run."""
        self.close(complete=True)

    def close(self, complete: bool = False) -> None:
        """Writes the best child's value and overrides on the parent, prints a table of all, ends the run.

        Args:
            complete: Hydra came to the end of the sweep; a study that had all its trials has no children then.
        """
        if self.client is None:
            return
        client, self.client = self.client, None
        os.environ.pop(PARENT_VARIABLE, None)
        atexit.unregister(self.close)
        status = "FAILED"
        try:
            children = child_runs(client, self.experiment_id, self.run_id)
            scored = [child for child in children if OBJECTIVE_METRIC in child.data.metrics]
            if scored:
                pick = max if self.maximize else min
                self._write_best(client, pick(scored, key=lambda child: child.data.metrics[OBJECTIVE_METRIC]))
            print_children(children)
            if {"KILLED", "RUNNING"} & {child.info.status for child in children}:
                status = "KILLED"
            elif scored or (complete and not children):
                status = "FINISHED"
        finally:
            client.set_terminated(self.run_id, status)

    def _write_best(self, client: MlflowClient, best: Run) -> None:
        client.log_metric(self.run_id, f"best/{OBJECTIVE_METRIC}", best.data.metrics[OBJECTIVE_METRIC])
        client.log_param(self.run_id, "best.run_id", best.info.run_id)
        for override in shlex.split(best.data.tags.get(OVERRIDES_TAG, "")):
            key, _, value = override.partition("=")
            # MLflow refuses what Hydra's keys may have besides: + ~ @
            client.log_param(self.run_id, "best." + re.sub(r"[^\w./-]", "", key), value)


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
    """A table of the jobs: what was set, how each ended, its objective."""
    table = Table(title="jobs of this sweep")
    for column in ("job", "overrides", "state", "objective"):
        table.add_column(column)
    for number, child in enumerate(children):
        objective = child.data.metrics.get(OBJECTIVE_METRIC)
        shown = "" if objective is None else f"{objective:.4f}"
        table.add_row(str(number), child.data.tags.get(OVERRIDES_TAG, ""), child.info.status, shown)
    Console(file=sys.stderr).print(table)
