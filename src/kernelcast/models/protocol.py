"""The one interface that every cost model has, learned or not."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Protocol, Self

import numpy as np
from jaxtyping import Float64

from kernelcast.graphs.programs import Programs


class PredictionKind(StrEnum):
    """What the numbers of `CostModel.predict` mean; in both, lower is faster."""

    LOG_SECONDS = "log_seconds"
    """Natural logarithm of the run time in seconds."""

    RANK = "rank"
    """Only the order within one workload means something; no MAPE can be taken of it."""


class TrainingPruned(Exception):  # noqa: N818, it is no error
    """What a `MetricLog` raises to end a training that is not worth going on with; nothing has failed."""


class MetricLog(Protocol):
    """Where a model writes how its training goes."""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Records `values` (name to number) at `step` (epoch or boosting round, from 0).

        Raises:
            TrainingPruned: the training is to end; `fit` lets it through.
        """


class CostModel(Protocol):
    """Predicts how long a program runs, or which of several is faster."""

    learned: ClassVar[bool]
    """Whether `fit` learns from the programs, so that its loss means something."""

    @property
    def kind(self) -> PredictionKind:
        """What the predictions mean."""

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Learns from `train`; `valid` decides when to stop and which weights to keep.

        Args:
            train: programs to learn from.
            valid: programs that decide when to stop; may be none.
            log: gets the metrics of every epoch or round.
            workspace: a folder of this training alone. A model that takes long leaves there what it needs to go on
                after a kill, and goes on from what it finds; None keeps nothing.
        """

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """One number a program, lower is faster, in the unit that `kind` tells."""

    def save(self, directory: Path) -> None:
        """Writes weights, settings and feature version into an existing, empty folder; no pickle."""

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote, in any process, without the configuration folder."""
