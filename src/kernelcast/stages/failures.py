"""A training that fails leaves its name behind, so that evaluation and report say which model is missing, and why."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernelcast.files import write_json
from kernelcast.models.protocol import TrainingPruned

FAILED_FILE = "failed.json"
"""The one file in a folder where a model should be and is not."""


@contextmanager
def noted_failure(folder: Path) -> Iterator[None]:
    """Writes why the body failed to `folder`, unless a model is there; removes what an earlier failure left."""
    if folder.is_dir() and [path.name for path in folder.iterdir()] == [FAILED_FILE]:
        shutil.rmtree(folder)
    try:
        yield
    except TrainingPruned:
        raise
    except Exception as error:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            # the error itself says more than that it cannot be written down
            with suppress(Exception):
                write_json(folder / FAILED_FILE, {"error": f"{type(error).__name__}: {error}"})
        raise
