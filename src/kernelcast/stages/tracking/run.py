"""One run a stage execution, true about how it ended.

Only MLflow's client is used, never its global "active run": nothing here depends on what the caller did before, and a
run that fails in set-up, in fitting or on Ctrl-C is closed as what it is.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from kernelcast.stages.tracking.address import shown_address, without_password
from kernelcast.stages.tracking.backlog import send_backlog
from kernelcast.stages.tracking.delivery import ERROR_TAG
from kernelcast.stages.tracking.names import LONGEST_PARAM, allowed_name, flatten, is_kept
from kernelcast.stages.tracking.note import NOTE_TAG, note_of
from kernelcast.stages.tracking.origin import environment, provenance_tags, source_difference
from kernelcast.stages.tracking.outbox import (
    FOLDER,
    PARENT_TAG,
    RECORD_FILE,
    UNSENT,
    Outbox,
    Record,
    find_unsent,
    now,
    read_record,
    with_known_parent,
)
from kernelcast.stages.tracking.stale import close_stale_runs
from kernelcast.stages.tracking.store import StoreAwayError, is_passing, make_client, open_experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

PARENT_VARIABLE = "KERNELCAST_PARENT_RUN"
"""Environment variable by which the jobs of a multirun, in whatever process, know their parent run."""

REPEATS_VARIABLE = "KERNELCAST_REPEATS_RUN"
"""Environment variable that names the run of which this one is a repetition."""

STAGE_TAG = "kernelcast.stage"


@dataclass(frozen=True)
class TrackedRun:
    """An open MLflow run; it is a `MetricLog`.

    Attributes:
        outbox: through which it tells the store.
        resumed: whether an earlier process began it.
    """

    outbox: Outbox
    resumed: bool = False
    _skipped: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def client(self) -> MlflowClient:
        """For what is asked of the store itself."""
        return self.outbox.client

    @property
    def run_id(self) -> str:
        """By which the run is found; of one that the store does not know yet, its name until then."""
        return self.outbox.run_id

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Records finite metrics at `step`; a NaN has no place on a chart and is left out. See `allowed_name`.

        Long curves are thinned (see `is_kept`), except for their last point.
        """
        finite = {allowed_name(name): float(value) for name, value in values.items() if abs(value) < float("inf")}
        points: dict[str, list[Any]] = {name: [name, value, now(), step] for name, value in finite.items()}
        if is_kept(step):
            for name in points:
                self._skipped.pop(name, None)
            self._tell_points(list(points.values()))
        else:
            self._skipped.update(points)

    def tags(self, values: Mapping[str, str]) -> None:
        """Sets tags."""
        self.outbox.tell({"call": "tags", "values": dict(values)})

    def params(self, values: Mapping[str, Any]) -> None:
        """Records parameters."""
        allowed = {allowed_name(name): str(value)[:LONGEST_PARAM] for name, value in values.items()}
        self.outbox.tell({"call": "params", "values": allowed})

    def figure(self, figure: Figure, name: str) -> None:
        """Stores a plot as `plots/NAME`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            figure.savefig(path, dpi=120)
            self.artifact(path, "plots")

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Stores a file, or a folder with all in it."""
        self.outbox.tell({"call": "artifact", "folder": folder}, path)

    def text(self, text: str, name: str) -> None:
        """Stores a text as the file `name`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, Path(name).name)
            path.write_text(text, encoding="utf-8")
            self.artifact(path, str(Path(name).parent) if "/" in name else None)

    def dataset(self, name: str, digest: str, source: Path, context: str = "input", rows: int | None = None) -> None:
        """Names data that went in, or came out; runs on equal data show equal digests.

        Args:
            name: what it is: measurements, graphs, a split.
            digest: a hash of it.
            source: where it is.
            context: what it is to the run: `input` or `output`.
            rows: how much there is.
        """
        self.outbox.tell(
            {
                "call": "dataset",
                "name": allowed_name(name),
                "digest": digest[:16],
                "source": json.dumps({"uri": str(source)}),
                "context": context,
                "profile": json.dumps({} if rows is None else {"num_rows": rows}),
            }
        )

    def note(self, *lines: str) -> None:
        """Adds lines of Markdown to what the run's page says of it."""
        self.tags({NOTE_TAG: note_of(self.outbox.record.tags, self.run_id, lines)})

    def require_store(self, why: str) -> None:
        """For what cannot be done later.

        Raises:
            StoreAwayError: the store does not answer.
        """
        if self.outbox.is_away:
            shown = shown_address(self.outbox.record.uri)
            raise StoreAwayError(f"{shown} does not answer, and {why}; run the same command later")

    def end(self, status: str) -> None:
        """Closes the run as FINISHED, FAILED or KILLED."""
        with suppress(Exception):
            # the last point of every curve that was thinned
            self._tell_points(list(self._skipped.values()))
        self.outbox.tell({"call": "end", "status": status, "time": now()})
        self.outbox.close()

    def _tell_points(self, points: list[list[Any]]) -> None:
        if points:
            self.outbox.tell({"call": "metrics", "points": points})


@contextmanager
def tracked_run(
    config: DictConfig, name: str, stage: str, resume: str | None = None, tags: Mapping[str, str] | None = None
) -> Iterator[TrackedRun]:
    """Opens a run and closes it as FINISHED, FAILED (any error) or KILLED (Ctrl-C, SIGTERM), with the trace on it.

    Args:
        config: the resolved root configuration, with `tracking` and `paths`.
        name: what the page shows.
        stage: the pipeline's stage, a tag to filter by.
        resume: id of a run that was stopped or killed and that this process goes on with; if it is no longer there, or
            not in this experiment, a new one begins.
        tags: that it has from its beginning.
    """
    # the code as it is now, whatever becomes of it meanwhile
    difference = source_difference(Path(config.paths.root))
    run = start_run(config, name, stage, tags, resume)
    status = "FAILED"
    try:
        with sigterm_as_interrupt():
            kept = without_password(config)
            run.text(OmegaConf.to_yaml(kept, resolve=True), "config.yaml")
            run.text(json.dumps(environment(), indent=2), "environment.json")
            if difference:
                run.text(difference, "source.diff")
            if not run.resumed:
                run.params(flatten(OmegaConf.to_container(kept, resolve=True)))
            yield run
        status = "FINISHED"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            status = "KILLED"
        # what goes wrong while the run is told must not hide why it failed
        with suppress(Exception):
            run.tags({ERROR_TAG: f"{type(error).__name__}: {error}"[:LONGEST_PARAM]})
            run.text(traceback.format_exc(), "error.txt")
        raise
    finally:
        run.end(status)


def start_run(
    config: DictConfig,
    name: str,
    stage: str,
    tags: Mapping[str, str] | None = None,
    resume: str | None = None,
) -> TrackedRun:
    """A run that reads RUNNING, at the store or, where that does not answer, in a folder of its own; see `tracked_run`.

    What earlier runs have kept is sent, and those whose process is gone are closed.
    """
    parent, repeated = os.environ.get(PARENT_VARIABLE), os.environ.get(REPEATS_VARIABLE)
    all_tags = {
        **provenance_tags(Path(config.paths.root)),
        STAGE_TAG: stage,
        **({PARENT_TAG: parent} if parent else {}),
        **({"kernelcast.repeats": repeated} if repeated else {}),
        **(tags or {}),
    }
    record = Record.new(config.tracking.uri, config.tracking.experiment, name, all_tags)
    run = _opened(config, record, resume)
    if run.resumed:
        run.outbox.tell({"call": "resumed"})
        run.tags(all_tags)
    run.note()
    return run


def _opened(config: DictConfig, record: Record, resume: str | None) -> TrackedRun:
    """The run of `record`, new or gone on with."""
    from mlflow.exceptions import MlflowException

    runs = Path(config.paths.runs)
    try:
        client, experiment_id = open_experiment(config)
        send_backlog(client, record.uri, runs)
        close_stale_runs(client, experiment_id)
        earlier = find_resumable(client, experiment_id, resume) if resume else None
        record = replace(record, tags=with_known_parent(client, experiment_id, record.tags))
        run_id = earlier or client.create_run(experiment_id, record.start_time, record.tags, record.name).info.run_id
        return TrackedRun(Outbox(client, replace(record, run_id=run_id), runs), resumed=earlier is not None)
    except (StoreAwayError, MlflowException) as error:
        if isinstance(error, MlflowException) and not is_passing(error):
            raise
        return _kept(record, resume, runs, str(error))


def _kept(record: Record, resume: str | None, runs: Path, reason: str) -> TrackedRun:
    """The same where the store is away."""
    client = make_client(record.uri)
    if resume and resume.startswith(UNSENT):
        folder = runs / FOLDER / resume
        if (folder / RECORD_FILE).is_file():
            outbox = Outbox(client, read_record(folder), runs)
            if outbox.go_on(reason):
                return TrackedRun(outbox, resumed=True)
        resume = None
    outbox = Outbox(client, replace(record, run_id=resume or ""), runs)
    outbox.go_away(reason)
    return TrackedRun(outbox, resumed=resume is not None)


def find_resumable(client: MlflowClient, experiment_id: str, run_id: str) -> str | None:
    """The id of the run `run_id`, also one that was begun without the store, if it can be gone on with."""
    from mlflow.exceptions import MlflowException

    try:
        known = find_unsent(client, experiment_id, run_id) if run_id.startswith(UNSENT) else run_id
        info = client.get_run(known).info if known else None
    except MlflowException as error:
        if is_passing(error):
            raise
        return None
    if info is None or info.experiment_id != experiment_id or info.lifecycle_stage != "active":
        return None
    return None if info.status == "FINISHED" else known


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Makes SIGTERM end the body like Ctrl-C does, so that clean-up runs; only possible in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
