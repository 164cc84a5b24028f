"""What earlier runs could not tell their store, sent when it answers again."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelcast.stages.tracking.address import shown_address
from kernelcast.stages.tracking.outbox import (
    CALLS_FILE,
    FOLDER,
    RECORD_FILE,
    Record,
    held,
    read_calls,
    read_record,
    send,
)
from kernelcast.stages.tracking.stale import is_abandoned
from kernelcast.stages.tracking.store import is_passing

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backlog:
    """What became of the runs that were kept.

    Attributes:
        sent: those that the store has now.
        at_work: how many wait for a process that still works at them, as far as can be told from here.
        elsewhere: how many are for another store.
        refused: how many the store does not take, or are not whole; the log says why.
    """

    sent: tuple[Record, ...] = ()
    at_work: int = 0
    elsewhere: int = 0
    refused: int = 0


def send_backlog(client: MlflowClient, uri: str, runs: Path) -> Backlog:
    """Sends what runs that have ended have kept below `runs`; one that was killed is closed as KILLED.

    A run that the store refuses stays where it is and does not hold up the others; a store that is away ends it.
    """
    sent: list[Record] = []
    at_work = elsewhere = refused = 0
    for folder in kept_folders(runs):
        with held(folder) as mine:
            if not mine:
                at_work += 1
                continue
            try:
                record = read_record(folder)
                if record.uri != uri:
                    elsewhere += 1
                    continue
                ended = any(call["call"] == "end" for call in read_calls(folder))
                if not ended and not is_abandoned(record.tags):
                    at_work += 1
                    continue
                record = send(folder, client)
                if not ended:
                    client.set_terminated(record.run_id, "KILLED", _last_call(folder))
            # of whatever driver; none may hold up what comes after
            except Exception as error:
                if is_passing(error):
                    logger.warning(
                        "%s does not answer any more; the rest waits in %s", shown_address(uri), runs / FOLDER
                    )
                    break
                refused += 1
                logger.warning("what is kept in %s cannot be sent: %s", folder, " ".join(str(error).split())[:300])
                continue
            shutil.rmtree(folder)
        sent.append(record)
        logger.info("sent what was kept of run %s: it is %s now", record.name, record.run_id)
    return Backlog(tuple(sent), at_work, elsewhere, refused)


def kept_folders(runs: Path) -> list[Path]:
    """The folders of runs with something unsent, parents before their children."""
    folders = [path.parent for path in (runs / FOLDER).glob(f"*/{RECORD_FILE}")]
    return sorted(folders, key=lambda folder: (folder / RECORD_FILE).stat().st_mtime)


def _last_call(folder: Path) -> int:
    """When the last call was kept, in milliseconds since 1970."""
    path = folder / CALLS_FILE
    return int((path if path.exists() else folder / RECORD_FILE).stat().st_mtime * 1000)
