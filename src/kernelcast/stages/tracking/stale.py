"""Runs that nobody works at any more."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernelcast.stages.process_identity import process_may_live
from kernelcast.stages.tracking.origin import PROCESS_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)


def close_stale_runs(client: MlflowClient, experiment_id: str) -> None:
    """Closes as KILLED the runs that still read RUNNING though their process on this machine is gone.

    Whether a process of another machine lives nobody here can tell: its runs are left alone.
    """
    from mlflow.exceptions import MlflowException

    for run in client.search_runs([experiment_id], "attributes.status = 'RUNNING'", max_results=1000):
        if not is_abandoned(run.data.tags):
            continue
        try:
            client.set_terminated(run.info.run_id, "KILLED")
        except MlflowException:
            logger.warning("could not close run %s, left RUNNING by a process that is gone", run.info.run_id)
            continue
        logger.info("closed run %s as KILLED: its process is gone", run.info.run_name)


def is_abandoned(tags: Mapping[str, str]) -> bool:
    """Whether the process of a run was one of this machine and is gone."""
    return not process_may_live(tags.get(PROCESS_TAG, ""))
