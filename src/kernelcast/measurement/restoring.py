"""From a finished table back to the journal, so that `measure` goes on with a data set that was shipped without one."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelcast.files import remove_leftovers, storage_errors
from kernelcast.measurement.journal import JOURNAL_FILE, Ending, Journal
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import CAMPAIGN_FILE, MEASUREMENTS_FILE, Origin, Outcome, read_measurements

logger = logging.getLogger(__name__)

PIECE = 1024
"""Rows that are Python objects at a time."""

_RAW = ("visit", "round_index", "calls", "run_seconds", "reference_seconds", "ended_at")


def restore_journal(directory: Path) -> None:
    """Writes the journal that the folder's table was made from, where there is a table and no journal.

    What the table does not say is lost: programs that were drawn and not measured (they are drawn again), and which
    spaces were exhausted (they are searched again).

    Raises:
        MalformedDataError: the table is torn or of another version.
        StorageError: the disk refused.
    """
    path = directory / JOURNAL_FILE
    is_there = path.exists() and path.stat().st_size > 0
    if is_there or not all((directory / name).exists() for name in (CAMPAIGN_FILE, MEASUREMENTS_FILE)):
        return
    table = read_measurements(directory).table
    # in a folder of its own until it is whole: half a journal would be gone on with
    remove_leftovers(directory / "restoring")
    with storage_errors(path), tempfile.TemporaryDirectory(prefix=".restoring.", dir=directory) as temporary:
        with Journal(Path(temporary)) as journal:
            for piece in table.to_batches(max_chunksize=PIECE):
                rows = piece.to_pylist()
                journal.plan(_candidate(row) for row in rows)
                for row in rows:
                    _note(journal, row)
            journal.sync()
        Path(temporary, JOURNAL_FILE).rename(path)
    logger.info(
        "%s has no %s: made it of the table's %d rows, to go on from there", directory, JOURNAL_FILE, len(table)
    )


def _candidate(row: Mapping[str, Any]) -> Candidate:
    return Candidate(row["workload_key"], row["program_key"], row["trace"], Origin(row["origin"]))


def _note(journal: Journal, row: Mapping[str, Any]) -> None:
    entry = journal.tries[row["workload_key"], row["program_key"]]
    if row["build_seconds"] is not None:
        journal.built(entry, row["build_seconds"])
    repeats = [TimedRepeat(*raw) for raw in zip(*(row[name] for name in _RAW), strict=True)]
    for repeat in repeats:
        journal.repeat(entry, repeat)
    ended = {"message": row["message"], "device": row["device"], "cut_short": row["cut_short"]}
    journal.finish(
        entry, 0, Ending(Outcome(row["outcome"]), checked=row["checked"], ended_at=row["finished_at"], **ended)
    )
    if again := [repeat for repeat in repeats if repeat.visit]:
        last = max(repeat.ended_at for repeat in again)
        journal.finish(
            entry, 1, Ending(Outcome.MEASURED, "", row["device"], checked=False, cut_short=False, ended_at=last)
        )
