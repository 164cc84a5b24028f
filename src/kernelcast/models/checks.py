"""Checks of the programs that a model is about to learn from or to predict."""

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


def require_version(trained_on: str | None, programs: Programs, model: str) -> None:
    """Makes sure that `programs` are what the model was fitted to.

    Raises:
        KernelcastError: the model has not been fitted.
        MalformedDataError: the programs have features of another version.
    """
    if trained_on is None:
        raise KernelcastError(f"{model} has not been fitted: call fit, or load a saved model with load_model(FOLDER)")
    if programs.feature_version != trained_on:
        raise MalformedDataError(
            f"{model} was fitted to features of version {trained_on}, the programs have version "
            f"{programs.feature_version}; run `dvc repro train` to fit it to these"
        )
