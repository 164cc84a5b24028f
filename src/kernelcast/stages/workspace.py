"""The folder of one training, where a killed one leaves what the same command goes on from."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import KernelcastError, MalformedDataError
from kernelcast.files import json_hash, only_process, read_json, write_json
from kernelcast.models.protocol import TrainingPruned
from kernelcast.stages.provenance import decisive_settings, models_code_hash
from kernelcast.stages.tracking import TrackedRun

logger = logging.getLogger(__name__)

FOLDER = "trainings"
"""Below `paths.runs`: one folder a training that has not finished."""

PROGRESS_FILE = "progress.json"
RESUMED_TAG = "kernelcast.resumed"
"""Tag of a run: how many times it was stopped or killed and gone on with."""


class TrainingWorkspace:
    """What the stage itself keeps of a training that may be killed: which run it is and how long it took.

    Args:
        folder: of this training alone; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._earlier = _progress(folder) if folder else {}
        self._run: TrackedRun | None = None
        self._resumed = False
        self._noted = False
        self._started = time.perf_counter()

    @property
    def earlier_run(self) -> str | None:
        """The run of the process that was stopped or killed, if it left something to go on from."""
        return str(self._earlier["run_id"]) if "run_id" in self._earlier and self._has_state() else None

    @property
    def seconds(self) -> float:
        """How long the training has taken, in all processes that worked on it."""
        earlier = float(self._earlier.get("seconds", 0.0)) if self._resumed else 0.0
        return earlier + time.perf_counter() - self._started

    @property
    def times_resumed(self) -> int:
        """How many times the training was gone on with in the run that it has now."""
        assert self._run is not None
        return int(self._earlier.get("resumed", 0)) + 1 if self._run.resumed else 0

    def begin(self, run: TrackedRun) -> None:
        """The training begins, or goes on, in `run`."""
        self._run = run
        self._started = time.perf_counter()
        if run.resumed:
            run.tags({RESUMED_TAG: str(self.times_resumed)})

    def note(self) -> None:
        """Keeps how far the training is; called with every value that it logs."""
        if self.folder is None:
            return
        assert self._run is not None
        if not self._noted:
            # a model that begins anew has nothing there before its first value
            self._resumed = self._has_state()
            self._noted = True
        noted = {"run_id": self._run.run_id, "seconds": self.seconds, "resumed": self.times_resumed}
        write_json(self.folder / PROGRESS_FILE, noted)

    def _has_state(self) -> bool:
        """Whether there is something of a model; hidden files are of killed writers."""
        if self.folder is None:
            return False
        names = {file.name for file in self.folder.iterdir() if not file.name.startswith(".")}
        return names > {PROGRESS_FILE}


@contextmanager
def training_workspace(config: DictConfig) -> Iterator[TrainingWorkspace]:
    """Holds the folder of the training that `config` describes, and removes it when the body ends without an error.

    The folder's name is a hash of all that decides how the training goes, so that only the same training finds it.
    While another process is at the same one, this one trains too but keeps nothing.
    """
    key = training_key(config)
    if key is None:
        yield TrainingWorkspace(None)
        return
    folder = Path(config.paths.runs, FOLDER, key)
    taken = KernelcastError(f"another process is at the same training, in {folder}")
    with ExitStack() as held:
        try:
            held.enter_context(only_process(folder, taken))
        except KernelcastError as error:
            if error is not taken:
                raise
            logger.info("%s: this one begins anew and keeps nothing to go on from", error)
            yield TrainingWorkspace(None)
            return
        folder.mkdir(exist_ok=True)
        try:
            yield TrainingWorkspace(folder)
        except TrainingPruned:
            # nobody goes on with it
            shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)


def training_key(config: DictConfig) -> str | None:
    """A hash of settings, code, split and programs; None where the programs or the split cannot be read."""
    from kernelcast.graphs.dataset.store import read_data_hash
    from kernelcast.graphs.splits import read_split_hash

    settings = decisive_settings(OmegaConf.to_container(config, resolve=True, enum_to_str=True))  # type: ignore[arg-type]
    graphs = Path(config.paths.graphs)
    try:
        data_hash = read_data_hash(graphs)
        # the split of another run is known by that run's id, which is one of the settings
        split_hash = None if config.from_run else read_split_hash(graphs, config.split)
    except KernelcastError:
        # the training says so, in a run that has failed
        return None
    return json_hash([settings, split_hash, data_hash, models_code_hash()])


def _progress(folder: Path) -> dict[str, Any]:
    """What a killed process has noted; nothing if it is not whole."""
    path = folder / PROGRESS_FILE
    try:
        noted = read_json(path, "train") if path.exists() else {}
    except MalformedDataError:
        return {}
    return noted if isinstance(noted, dict) else {}
