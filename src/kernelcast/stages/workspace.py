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
from kernelcast.stages.provenance import decisive_settings, models_code_hash
from kernelcast.stages.tracking import TrackedRun

logger = logging.getLogger(__name__)

FOLDER = "trainings"
"""Below `paths.runs`: one folder a training that has not finished."""

PROGRESS_FILE = "progress.json"
RESUMED_TAG = "kernelcast.resumed_from"
"""Tag of a run: the id of the run that was killed and that it goes on from."""


class TrainingWorkspace:
    """What the stage itself keeps of a training that may be killed: which run it was and how long it took.

    Args:
        folder: of this training alone; None keeps nothing.
        run: of this process.
    """

    def __init__(self, folder: Path | None, run: TrackedRun) -> None:
        self.folder = folder
        self._run = run
        self._earlier = _progress(folder) if folder else {}
        self._resumed = False
        self._noted = False
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the training has taken, in all processes that worked on it."""
        earlier = float(self._earlier.get("seconds", 0.0)) if self._resumed else 0.0
        return earlier + time.perf_counter() - self._started

    def note(self) -> None:
        """Keeps how far the training is; called with every value that it logs."""
        if self.folder is None:
            return
        if not self._noted:
            # a model that begins anew has nothing there before its first value; hidden files are of killed writers
            names = {file.name for file in self.folder.iterdir() if not file.name.startswith(".")}
            self._resumed = names > {PROGRESS_FILE}
            self._noted = True
            if self._resumed and "run_id" in self._earlier:
                self._run.tags({RESUMED_TAG: str(self._earlier["run_id"])})
        write_json(self.folder / PROGRESS_FILE, {"run_id": self._run.run_id, "seconds": self.seconds})


@contextmanager
def training_workspace(
    config: DictConfig, split_hash: str, data_hash: str, run: TrackedRun
) -> Iterator[TrainingWorkspace]:
    """Holds the folder of the training that `config` describes, and removes it when the body ends without an error.

    The folder's name is a hash of all that decides how the training goes, so that only the same training finds it.
    While another process is at the same one, this one trains too but keeps nothing.
    """
    settings = decisive_settings(OmegaConf.to_container(config, resolve=True, enum_to_str=True))  # type: ignore[arg-type]
    key = json_hash([settings, split_hash, data_hash, models_code_hash()])
    folder = Path(config.paths.runs, FOLDER, key)
    taken = KernelcastError(f"another process is at the same training, in {folder}")
    with ExitStack() as held:
        try:
            held.enter_context(only_process(folder, taken))
        except KernelcastError as error:
            if error is not taken:
                raise
            logger.info("%s: this one begins anew and keeps nothing to go on from", error)
            yield TrainingWorkspace(None, run)
            return
        folder.mkdir(exist_ok=True)
        yield TrainingWorkspace(folder, run)
        shutil.rmtree(folder)


def _progress(folder: Path) -> dict[str, Any]:
    """What a killed process has noted; nothing if it is not whole."""
    path = folder / PROGRESS_FILE
    try:
        noted = read_json(path, "train") if path.exists() else {}
    except MalformedDataError:
        return {}
    return noted if isinstance(noted, dict) else {}
