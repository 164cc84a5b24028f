"""One sweep at a time works on a study: another would take its running trials for those of a dead process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from optuna import Study

from kernelcast.errors import ConfigError
from kernelcast.stages.process_identity import process_identity, process_may_live
from kernelcast.stages.studies import storage_file
from kernelcast.stages.tracking.address import shown_address

logger = logging.getLogger(__name__)

SWEEPER = "sweeper"
"""Attribute of a study on a server: the process that sweeps, and when it last said so."""

BEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""After so long without a sign a sweeper on another machine counts as dead."""


@contextmanager
def locked_file(name: str, storage: str) -> Iterator[None]:
    """Holds the file that the study is in; does nothing for a study on a server.

    Raises:
        ConfigError: another sweep holds it.
    """
    file = storage_file(storage)
    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(Path(f"{file}.{name}.sweep"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise taken(name, storage) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def claimed(study: Study, storage: str) -> Iterator[None]:
    """Says on a study that is on a server, again and again, that this process sweeps.

    Raises:
        ConfigError: another one has said so not long ago.
    """
    if storage_file(storage) is not None:
        yield
        return
    own = process_identity()
    noted = study.user_attrs.get(SWEEPER)
    if noted and process_may_live(noted[0]) and time.time() - noted[1] < SILENT_SECONDS:
        raise taken(study.study_name, storage)
    study.set_user_attr(SWEEPER, [own, time.time()])
    # of two that come at once, the later one stays
    time.sleep(1.0)
    if study.user_attrs[SWEEPER][0] != own:
        raise taken(study.study_name, storage)
    done = threading.Event()
    beats = threading.Thread(target=_beat, args=(study, own, done), daemon=True, name="study heartbeat")
    beats.start()
    try:
        yield
    finally:
        done.set()
        beats.join()
        study.set_user_attr(SWEEPER, None)


def _beat(study: Study, own: str, done: threading.Event) -> None:
    while not done.wait(BEAT_SECONDS):
        try:
            study.set_user_attr(SWEEPER, [own, time.time()])
        except Exception as error:  # of whatever driver: the sweep itself says when the server stays away
            logger.warning("the study's server does not answer: %s", error)


def taken(name: str, storage: str) -> ConfigError:
    """What to tell when somebody else is at work."""
    return ConfigError(
        f"another sweep is at work on the study {name} ({shown_address(storage)}); wait for it, or name another "
        "hydra.sweeper.study"
    )
