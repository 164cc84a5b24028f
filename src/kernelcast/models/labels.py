"""Checks of what a model is about to learn from."""

from __future__ import annotations

import numpy as np

from kernelcast.errors import KernelcastError, MalformedDataError
from kernelcast.graphs.programs import Programs
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import PredictionKind


def require_learnable(train: Programs, loss: Loss) -> None:
    """Makes sure that there is something to learn.

    Raises:
        KernelcastError: no programs, or for a ranking no two programs of one workload with different times.
        MalformedDataError: a label is not a finite number.
    """
    labels = train.log_seconds
    if len(labels) == 0:
        raise KernelcastError("there are no programs to train on; measure more and run `dvc repro graphs`")
    if not np.isfinite(labels).all():
        raise MalformedDataError(
            "a training label is not a finite number; run `dvc repro graphs` to make the labels again"
        )
    if loss.predicts is PredictionKind.RANK and not any(
        np.ptp(labels[train.workload == index]) > 0 for index in np.unique(train.workload)
    ):
        raise KernelcastError(
            "no workload has two training programs of different times, so there is nothing to rank; "
            "measure more programs (samples_per_workload) or use loss=log_mse"
        )
