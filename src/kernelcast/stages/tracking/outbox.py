"""What a run could not tell its store is kept in a folder, in order, until the store takes it: nothing is lost."""

from __future__ import annotations

import json
import logging
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from kernelcast.errors import MalformedDataError
from kernelcast.files import LOCK_SUFFIX, read_json, storage_errors, write_json
from kernelcast.stages.tracking.address import answers, is_server, shown_address
from kernelcast.stages.tracking.delivery import Call, Delivery, as_one, merged
from kernelcast.stages.tracking.store import is_passing

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

FOLDER = "unsent"
"""Below `paths.runs`: one folder a run with something that its store does not know yet."""

RECORD_FILE = "run.json"
CALLS_FILE = "calls.jsonl"
SENT_FILE = "sent.json"
FILES_FOLDER = "files"

RECORD_TAG = "kernelcast.record"
"""Tag of a run at a server: the name under which it was begun, by which it is found whatever happened in between."""

UNSENT = "unsent-"
"""What names of runs begin with that their store does not know."""

PARENT_TAG = "mlflow.parentRunId"

RETRY_SECONDS = 30.0
"""Between two looks whether a server is back."""


@dataclass(frozen=True)
class Record:
    """What a store must know to have a run.

    Attributes:
        uri: of the store.
        experiment: in which the run is, by name.
        name: of the run.
        start_time: in milliseconds since 1970.
        tags: from its beginning.
        unsent_id: its name until the store gives it an id.
        run_id: that the store gave it; empty: it does not know of it.
    """

    uri: str
    experiment: str
    name: str
    start_time: int
    tags: dict[str, str]
    unsent_id: str
    run_id: str = ""

    @classmethod
    def new(cls, uri: str, experiment: str, name: str, tags: dict[str, str], run_id: str = "") -> Record:
        """Of a run that begins now, or with `run_id` of one that goes on."""
        unsent_id = f"{UNSENT}{uuid.uuid4().hex[:16]}"
        known_as = {RECORD_TAG: unsent_id} if is_server(uri) else {}
        return cls(uri, experiment, name, now(), {**tags, **known_as}, unsent_id, run_id)


class Outbox:
    """Tells the store of a run, or keeps what the store does not take now.

    Args:
        client: of the store.
        record: of the run.
        runs: `paths.runs`.
    """

    def __init__(self, client: MlflowClient, record: Record, runs: Path) -> None:
        self.client = client
        self.record = record
        self._folder = runs / FOLDER / record.unsent_id
        self._delivery = Delivery(client, record.run_id)
        self._resumed = False
        self._held: FileLock | None = None
        self._files = 0
        self._retry_at = 0.0

    @property
    def run_id(self) -> str:
        """The id that the store gave the run, or the name that it has until then."""
        return self.record.run_id or self.record.unsent_id

    @property
    def is_away(self) -> bool:
        """Whether calls are kept, at the last look."""
        return self._held is not None

    def tell(self, call: Call, source: Path | None = None) -> None:
        """Tells the store of `call`, or keeps it, with what is in `source`.

        Raises:
            MlflowException: the call itself is wrong.
        """
        self._resumed |= call["call"] == "resumed"
        if self._held is not None and not self._caught_up():
            self._keep(call, source)
            return
        try:
            self._delivery(call, source)
        except KeyboardInterrupt:
            # while it waits for a server that hangs: what comes next, how the run ended, must not wait as well
            if is_server(self.record.uri):
                self.go_away("interrupted")
                self._keep(call, source)
            raise
        except Exception as error:
            if not self._is_kept_after(error, call):
                raise
            self.go_away(" ".join(str(error).split())[:300])
            self._keep(call, source)

    def go_away(self, reason: str) -> None:
        """From now on calls are kept."""
        if self._held is None:
            self._hold()
        write_json(self._folder / RECORD_FILE, asdict(self.record))
        self._retry_at = time.monotonic() + RETRY_SECONDS
        logger.warning(
            "the run goes on, but %s does not take what it records (%s); that is kept in %s and sent as soon as the "
            "store answers: by this run, the next one or `python scripts/sync.py`",
            shown_address(self.record.uri), reason, self._folder,
        )  # fmt: skip

    def go_on(self, reason: str) -> bool:
        """Goes on with what a process that was killed has kept; says whether there is such, and nobody else at it."""
        if not (self._folder / RECORD_FILE).is_file():
            return False
        try:
            self._hold()
        except Timeout:
            return False
        path = self._folder / CALLS_FILE
        if path.exists():
            # it may have been killed in the middle of a line
            whole = path.read_bytes().rpartition(b"\n")
            path.write_bytes(b"".join(whole[:2]))
        self.go_away(reason)
        return True

    def close(self) -> None:
        """Tries a last time to tell what is kept, whenever the last look was."""
        if self._held is None:
            return
        self._retry_at = 0.0
        if not self._caught_up():
            logger.warning(
                "%s still does not take it; `python scripts/sync.py` sends what is in %s",
                shown_address(self.record.uri),
                self._folder,
            )
            assert self._held is not None
            self._held.release()

    def _is_kept_after(self, error: Exception, call: Call) -> bool:
        """Whether an error is no fault of the call: a token that has run out, a run that somebody deleted, too.

        None of these is a reason to lose hours of training.
        """
        from mlflow.exceptions import MlflowException

        if is_passing(error):
            return True
        if isinstance(error, MlflowException):
            wrong = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST")
            return error.error_code not in wrong or "'active' state" in str(error)
        # stores of artifacts beside the server have errors of their own
        return is_server(self.record.uri) and call["call"] == "artifact"

    def _caught_up(self) -> bool:
        """Whether the store knows all that was kept, after a try if it is time for one."""
        if time.monotonic() < self._retry_at:
            return False
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if not answers(self.record.uri):
            return False
        try:
            self.record = send(self._folder, self.client)
        # whatever the store refuses now, the folder keeps
        except Exception as error:
            logger.debug("not sent: %s", error)
            return False
        self._delivery = Delivery(self.client, self.record.run_id, self._resumed)
        shutil.rmtree(self._folder)
        assert self._held is not None
        self._held.release()
        self._held = None
        logger.info("%s answers again and has all that was kept of this run", shown_address(self.record.uri))
        return True

    def _hold(self) -> None:
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = _lock(self._folder)
            lock.acquire(timeout=0)
        self._held = lock

    def _keep(self, call: Call, source: Path | None) -> None:
        with storage_errors(self._folder):
            if source is not None:
                self._files += 1
                name = f"{FILES_FOLDER}/{now()}-{self._files}/{source.name}"
                copy = self._folder / name
                copy.parent.mkdir(parents=True)
                (shutil.copytree if source.is_dir() else shutil.copy2)(source, copy)
                call = {**call, "source": name} if call["call"] == "artifact" else call
            with (self._folder / CALLS_FILE).open("a") as stream:
                stream.write(json.dumps(call) + "\n")


def send(folder: Path, client: MlflowClient) -> Record:
    """Tells the store all that is kept in `folder`; called again after an error, it goes on.

    Raises:
        MlflowException: the store does not answer, or refuses a call.
        MalformedDataError: what is kept is not what a run keeps.
    """
    record = read_record(folder)
    if not record.run_id:
        record = replace(record, run_id=_created(client, record))
        write_json(folder / RECORD_FILE, asdict(record))
    calls, sent = read_calls(folder), _sent(folder)
    delivery = Delivery(client, record.run_id, any(call["call"] == "resumed" for call in calls[:sent]))
    try:
        for group in merged(calls[sent:]):
            call = as_one(group)
            delivery(call, folder / call["source"] if call["call"] == "artifact" else None)
            sent += len(group)
    finally:
        write_json(folder / SENT_FILE, sent)
    return record


def read_record(folder: Path) -> Record:
    """What is known of the run whose calls are in `folder`.

    Raises:
        MalformedDataError: it cannot be told.
    """
    try:
        return Record(**read_json(folder / RECORD_FILE, "train"))
    except (TypeError, MalformedDataError) as error:
        raise MalformedDataError(
            f"{folder / RECORD_FILE} does not say which run this is ({error}); move {folder} away"
        ) from error


def read_calls(folder: Path) -> list[dict[str, Any]]:
    """All calls that are whole; a process that was killed may have left half a line.

    Raises:
        MalformedDataError: a line before the last one is not a call.
    """
    path = folder / CALLS_FILE
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    try:
        calls = [json.loads(line) for line in lines]
    except ValueError as error:
        raise MalformedDataError(f"{path} was changed: {error}; move {folder} away") from error
    return calls


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Holds the folder of a run, unless its process lives and does; yields which."""
    lock = _lock(folder)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def find_unsent(client: MlflowClient, experiment_id: str, unsent_id: str) -> str | None:
    """The id of the run that was begun under the name `unsent_id`, if the store has it."""
    found = client.search_runs([experiment_id], f"tags.`{RECORD_TAG}` = '{unsent_id}'", max_results=1)
    return str(found[0].info.run_id) if found else None


def with_known_parent(client: MlflowClient, experiment_id: str, tags: dict[str, str]) -> dict[str, str]:
    """The tags of a run with the id of its parent, if that was begun without the store and is there now."""
    parent = tags.get(PARENT_TAG, "")
    known = find_unsent(client, experiment_id, parent) if parent.startswith(UNSENT) else None
    return {**tags, PARENT_TAG: known} if known else tags


def now() -> int:
    """In milliseconds since 1970, as MLflow counts."""
    return int(time.time() * 1000)


def _created(client: MlflowClient, record: Record) -> str:
    """Makes the run, unless an earlier try did; parents and children find each other, whoever comes first."""
    experiment = client.get_experiment_by_name(record.experiment)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(record.experiment)
    run_id = find_unsent(client, experiment_id, record.unsent_id)
    if run_id is None:
        tags = with_known_parent(client, experiment_id, {**record.tags, RECORD_TAG: record.unsent_id})
        run_id = str(client.create_run(experiment_id, record.start_time, tags, record.name).info.run_id)
    for child in client.search_runs([experiment_id], f"tags.`{PARENT_TAG}` = '{record.unsent_id}'"):
        client.set_tag(child.info.run_id, PARENT_TAG, run_id)
    return run_id


def _sent(folder: Path) -> int:
    with suppress(MalformedDataError):
        path = folder / SENT_FILE
        return int(read_json(path, "train")) if path.exists() else 0
    return 0


def _lock(folder: Path) -> FileLock:
    return FileLock(folder.with_name(f".{folder.name}{LOCK_SUFFIX}"))
