"""An Optuna study as the sweeper and its jobs, in whatever process, know it: where it is kept and what its trials say.

Optuna is imported when used: Hydra imports its plug-ins, and with them this module, at every start.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelcast.errors import ConfigError, StorageError
from kernelcast.files import storage_errors
from kernelcast.stages.tracking.address import shown_address

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage

PACKAGES = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
"""Kinds of database with the driver that the extra of the same name installs."""

SUMMARY_FILE = "summary.json"
RECORD_FOLDER = "study"
"""In the sweep's folder: what it leaves of its study, and a summary of it for the parent run."""

SWEEPER_VARIABLE = "KERNELCAST_SWEEPER"
"""Environment variable by which a job knows the process of its sweep."""

STUDY_TAG = "kernelcast.study"
TRIAL_TAG = "kernelcast.trial"
STATE_TAG = "kernelcast.trial_state"
"""Tags of a run that is a trial: where its study is, its number, how it stands."""

LOCK_SECONDS = 120
"""How long a process waits for another one that writes into the same SQLite file."""


class TrialNote(StrEnum):
    """What we note on a trial, as user attributes."""

    PROCESS = "process"
    """Where its job runs: host, process, start."""

    RUN = "mlflow_run_id"
    VALUE = "job_value"
    """What the job returned; for a sweeper that was killed before it could tell the study."""

    REASON = "reason"
    """Why it failed."""

    INTERRUPTED = "interrupted"
    """Its process went away before it ended; such a trial is not counted."""

    AGAIN = "again_of"
    """Number of the interrupted trial whose parameters it has."""

    ATTEMPT = "attempt"
    """How often its parameters were tried before."""


def is_url(storage: str) -> bool:
    """Whether a study is in a database; else `storage` is the path of a journal."""
    return "://" in storage


def storage_file(storage: str) -> Path | None:
    """The local file that holds the studies; None where a server does."""
    if not is_url(storage):
        return Path(storage)
    from sqlalchemy.engine import make_url

    url = make_url(storage)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def check_storage(storage: str) -> None:
    """Makes sure that `storage` can be one.

    Raises:
        ConfigError: it is no address of a database, or of one in this process alone, or empty.
    """
    ways = "use a file's path, sqlite:///FILE, postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
    if is_url(storage):
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            url = make_url(storage)
        except (ArgumentError, ValueError) as error:
            raise ConfigError(
                f"hydra.sweeper.storage={storage} is no address of a database ({error}); {ways}"
            ) from error
        if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
            raise ConfigError(f"hydra.sweeper.storage={storage} is in the memory of one process; {ways}")
    elif not storage.strip():
        raise ConfigError(f"hydra.sweeper.storage is empty; {ways}")


def open_storage(storage: str) -> BaseStorage:
    """A journal file, or the database at a URL; makes what is not there.

    Raises:
        StorageError: the file is broken, or the database cannot be opened.
        ConfigError: the database's driver is not installed.
    """
    from optuna.storages import JournalStorage, RDBStorage

    from kernelcast.stages.study_journal import WholeLines

    check_storage(storage)
    if file := storage_file(storage):
        with storage_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not is_url(storage):
            return JournalStorage(WholeLines(Path(storage)))
        return RDBStorage(_with_driver(storage), engine_kwargs=_engine_options(storage))
    except ImportError as error:
        kind = storage.partition("://")[0].partition("+")[0]
        install = f"run `pip install 'kernelcast[{kind}]'`" if kind in PACKAGES else "install it with pip"
        raise ConfigError(
            f"hydra.sweeper.storage={shown_address(storage)} needs a driver that is not there "
            f"({error.__cause__ or error}); {install}"
        ) from error
    except Exception as error:
        reason = (str(error.__cause__ or error).strip().splitlines() or [type(error).__name__])[0]
        raise StorageError(
            f"cannot open the studies in {shown_address(storage)}: {reason}; check hydra.sweeper.storage, or move the "
            "file away if it is broken, then run the same command again"
        ) from error


def _with_driver(url: str) -> str:
    kind, _, rest = url.partition("://")
    return f"{PACKAGES.get(kind, kind)}://{rest}"


def _engine_options(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": LOCK_SECONDS}}
    # a server may have been started anew, or have dropped a connection, between two trials
    return {"pool_pre_ping": True}


def load_study(storage: str, name: str, pruner: Any = None) -> Study:
    """The study `name`, for one of its jobs."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # a job samples nothing
    sampler = optuna.samplers.RandomSampler()
    return optuna.load_study(study_name=name, storage=open_storage(storage), sampler=sampler, pruner=pruner)


def note(study: Study, number: int, key: TrialNote, value: Any) -> None:
    """Notes `value` on a trial that has not ended."""
    study._storage.set_trial_user_attr(trial_id(study, number), key.value, value)


def trial_id(study: Study, number: int) -> int:
    """The storage's own name of a trial."""
    return study._storage.get_trial_id_from_study_id_trial_number(study._study_id, number)
