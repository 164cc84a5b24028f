"""The best schedules of an answer as a MetaSchedule database, to build or to measure them with TVM."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.exchange.metaschedule import NAMES_FILE, PREDICTED_FILE, described
from kernelcast.files import atomic_directory, require_replaceable, require_writable, write_json
from kernelcast.prediction.answer import Answer
from kernelcast.tuning.database import TuningDatabase


def check_schedules_folder(folder: Path) -> None:
    """Makes sure, before any work, that schedules can be written there.

    Raises:
        StorageError: something else than earlier predictions is there, or the disk refuses.
    """
    require_replaceable(folder, PREDICTED_FILE)
    require_writable(folder)


def write_schedules(answer: Answer, folder: Path, top: int, source: str) -> int:
    """Writes the `top` best programs of each workload as a folder that TVM's `JSONDatabase` opens.

    Its run times are the predicted ones; of a model that only ranks, times relative to the best, which is 1 s. A file
    beside says so, and `import` takes no such folder for measurements.

    Args:
        answer: predictions.
        folder: replaced if it holds earlier ones.
        top: programs of a workload.
        source: of the model.

    Returns:
        How many schedules were written.

    Raises:
        ConfigError: there is none whose trace is known.
        StorageError: something else is in the folder.
    """
    chosen = [
        row for rows in answer.groups.values() for row in [row for row in rows.tolist() if _known(answer, row)][:top]
    ]
    if not chosen:
        raise ConfigError(
            "schedules: of none of these programs the schedule trace is known, so there is nothing to write; give "
            "unscheduled workloads, of which schedules are drawn, or a database"
        )
    workloads = {answer.subjects[row].workload.key: answer.subjects[row].workload for row in chosen}
    seconds = np.exp(answer.predicted) if answer.times else answer.ratios
    with atomic_directory(folder, PREDICTED_FILE) as temporary:
        database = TuningDatabase(temporary, list(workloads.values()), dict(answer.target))
        for row in chosen:
            subject = answer.subjects[row]
            database.add(subject.workload, subject.trace, float(seconds[row]))
        database.sync()
        write_json(temporary / NAMES_FILE, [described(workload) for workload in workloads.values()])
        unit = "predicted seconds" if answer.times else "predicted time over that of the workload's best program"
        write_json(temporary / PREDICTED_FILE, {"model": source, "run_seconds": unit})
    return len(chosen)


def _known(answer: Answer, row: int) -> bool:
    subject = answer.subjects[row]
    return bool(subject.trace) and subject.workload.loadable and bool(np.isfinite(answer.predicted[row]))
