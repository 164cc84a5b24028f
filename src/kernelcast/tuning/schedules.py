"""The schedules that a tuning ended with, one a workload: its winners, or the best of a MetaSchedule database."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.exchange.database import database_file, read_records, read_workloads
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, target_json
from kernelcast.exchange.set_aside import SetAside
from kernelcast.exchange.times import FAILURES_FROM_SECONDS
from kernelcast.records import Workload
from kernelcast.tuning.winners import Winner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChosenSchedule:
    """The schedule that a workload is compiled with.

    Attributes:
        workload: what it is a schedule of.
        trace: the schedule trace as JSON, postprocessing included.
        run_seconds: what it was measured with.
    """

    workload: Workload
    trace: str
    run_seconds: float


def winning_schedules(winners: Iterable[Winner]) -> dict[str, ChosenSchedule]:
    """The schedules of winners, by the key of the workload."""
    return {
        winner.task.workload.key: ChosenSchedule(winner.task.workload, winner.trace, winner.run_seconds)
        for winner in winners
    }


def best_schedules(database: Path, target: dict[str, Any]) -> dict[str, ChosenSchedule]:
    """The fastest schedule of each workload of a MetaSchedule database, by the workload's key.

    As TVM ranks them: by the mean of the run times. Unlike TVM's look-up, records of another target do not count, and
    neither does a mark of a failure. Lines that cannot be read are left out with a warning.

    Args:
        database: a folder that TVM's `JSONDatabase` opens.
        target: complete.

    Raises:
        MissingInputError: there is no database.
    """
    aside = SetAside()
    workloads = read_workloads(database_file(database, DATABASE_WORKLOADS), aside)
    wanted = json.dumps(json.loads(target_json(target)), sort_keys=True)
    best: dict[str, ChosenSchedule] = {}
    others: set[str] = set()
    for record in read_records(database_file(database, DATABASE_RECORDS), aside):
        workload = workloads.get(record.workload)
        seconds = float(np.mean(record.run_seconds)) if record.run_seconds else FAILURES_FROM_SECONDS
        if workload is None or not workload.loadable or not 0 < seconds < FAILURES_FROM_SECONDS:
            continue
        if record.target != wanted:
            others.add(record.target)
            continue
        if workload.key not in best or seconds < best[workload.key].run_seconds:
            best[workload.key] = ChosenSchedule(workload, record.trace, seconds)
    if others:
        logger.warning("%s: records of %d other targets do not count", database, len(others))
    aside.warn()
    return best
