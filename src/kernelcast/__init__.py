"""kernelcast: learned cost models for tensor programs, measured on the user's own machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelcast.prediction import Predictor

__version__ = "0.1.0"


def load(model: str | Path = "champion", *, tracking_uri: str | None = None, any_target: bool = False) -> Predictor:
    """A trained model that predicts programs; needs no configuration, in any process and folder.

    Args:
        model: `champion`, `models:/NAME@ALIAS`, `models:/NAME/VERSION`, the id of the MLflow run that trained it, or a
            folder that `train` wrote.
        tracking_uri: of MLflow; by default what `mlflow.set_tracking_uri` or `MLFLOW_TRACKING_URI` says, else the
            database of the checkout.
        any_target: whether it may predict programs for targets that it was not trained for.

    Raises:
        ConfigError: it is none of these.
        MissingInputError: there is no such model.
        MalformedDataError: it is torn, or of another version of kernelcast.
        StorageError: MLflow's database or server cannot be read.
    """
    from kernelcast.stages.loading import load_predictor

    return load_predictor(model, tracking_uri=tracking_uri, any_target=any_target)
