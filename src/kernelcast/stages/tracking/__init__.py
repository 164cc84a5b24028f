"""MLflow: every execution of a stage is a run, at a database or a server, whether or not that answers.

with tracked_run(config, "gcn on random", "train") as run:
    run.metrics({"train/loss": 0.1}, step=3)
"""

from kernelcast.stages.tracking.address import sqlite_file, without_password
from kernelcast.stages.tracking.backlog import Backlog, send_backlog
from kernelcast.stages.tracking.names import LONGEST_NAME, allowed_name, flatten
from kernelcast.stages.tracking.origin import environment, git_state, library_versions, provenance_tags
from kernelcast.stages.tracking.outbox import find_unsent
from kernelcast.stages.tracking.run import (
    PARENT_VARIABLE,
    REPEATS_VARIABLE,
    STAGE_TAG,
    TrackedRun,
    sigterm_as_interrupt,
    start_run,
    tracked_run,
)
from kernelcast.stages.tracking.stale import close_stale_runs
from kernelcast.stages.tracking.store import StoreAwayError, open_experiment

__all__ = [
    "LONGEST_NAME",
    "PARENT_VARIABLE",
    "REPEATS_VARIABLE",
    "STAGE_TAG",
    "Backlog",
    "StoreAwayError",
    "TrackedRun",
    "allowed_name",
    "close_stale_runs",
    "environment",
    "find_unsent",
    "flatten",
    "git_state",
    "library_versions",
    "open_experiment",
    "provenance_tags",
    "send_backlog",
    "sigterm_as_interrupt",
    "sqlite_file",
    "start_run",
    "tracked_run",
    "without_password",
]
