"""What a training leaves each epoch so that it can go on after a kill, and finding it again."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from kernelcast.files import atomic_file, json_hash, remove_leftovers
from kernelcast.graphs.programs import Programs

logger = logging.getLogger(__name__)

CHECKPOINT_FILE = "checkpoint.pt"
STATE = "kernelcast"
"""Key of our own entries in Lightning's checkpoint."""


@dataclass(frozen=True)
class ResumePoint:
    """Where a training goes on.

    Attributes:
        path: Lightning's checkpoint.
        history: the metrics of every epoch that is done.
    """

    path: Path
    history: list[dict[str, float]]


class SaveEveryEpoch(Checkpoint):
    """Keeps the newest state; Lightning's own callback cannot be kept from making names and lists of best ones."""

    def __init__(self, workspace: Path) -> None:
        self._path = workspace / CHECKPOINT_FILE

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Writes the state; the hooks of the training itself have run by now."""
        trainer.save_checkpoint(self._path)


class AtomicCheckpoints(TorchCheckpointIO):
    """Checkpoints that are whole or not there; Lightning's own pass through the temporary folder."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes one."""
        with atomic_file(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


def find_resume_point(workspace: Path, identity: str) -> ResumePoint | None:
    """What a killed training of this identity has left; None where there is nothing to go on from.

    A torn file, or one of another training, is told in one line and removed: then the training begins anew.
    """
    path = workspace / CHECKPOINT_FILE
    remove_leftovers(path)
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)[STATE]
        of_this_training = state["identity"] == identity
        history = [dict(row) for row in state["history"]]
    # torch tells of a torn file by errors of many kinds
    except Exception as error:
        logger.warning("%s cannot be read (%s): the training begins anew", path, type(error).__name__)
        path.unlink()
        return None
    if not of_this_training:
        logger.warning("%s is of another training (settings, data or code differ): this one begins anew", path)
        path.unlink()
        return None
    logger.info("going on after epoch %d, which an earlier process has left in %s", len(history), path)
    return ResumePoint(path, history)


def identity_of(settings: Any, *parts: Programs) -> str:
    """A hash over all that decides how a training goes.

    Args:
        settings: plain values.
        parts: programs to learn from and to validate on.
    """
    digests = []
    for programs in parts:
        digest = hashlib.sha256(programs.feature_version.encode())
        for column in (programs.program_key, programs.log_seconds, programs.workload):
            digest.update(np.ascontiguousarray(column).tobytes())
        digests.append(digest.hexdigest())
    return json_hash([settings, digests, torch.__version__, version("pytorch-lightning")])
