"""Scores one model on the test programs of one split: all seeds of it that can be used."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import KernelcastError

if TYPE_CHECKING:
    import pyarrow as pa

    from kernelcast.evaluation.bootstrap import Resampled
    from kernelcast.evaluation.comparisons import Standing
    from kernelcast.evaluation.results import MissingModel, ModelResult
    from kernelcast.evaluation.scoring import NetworkWeights
    from kernelcast.graphs.programs import Programs

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Predicted:
    """What one training predicts for the test programs.

    Attributes:
        kind: a `PredictionKind`.
        values: one a program.
        microseconds: of one prediction, per program.
    """

    kind: str
    values: Float64[np.ndarray, "programs"]
    microseconds: float


def score_model(
    directories: list[Path],
    split: str,
    name: str,
    split_hash: str,
    test: Programs,
    resampled: Resampled,
    networks: NetworkWeights,
    missing: list[MissingModel],
) -> tuple[ModelResult, dict[str, Standing], list[pa.Table]] | None:
    """Loads every seed of one model and scores the predictions for `test`.

    Seeds that cannot be used are added to `missing`, with the reason: they are not there, torn, of another version or
    split, not of this model, or predict what is no number.

    Returns:
        None where no seed can be used.
    """
    from kernelcast.evaluation.predictions import prediction_table
    from kernelcast.evaluation.results import MissingModel, ModelResult, Role
    from kernelcast.evaluation.scoring import score
    from kernelcast.evaluation.trained import Training, check_new_seed, check_same_model, read_training

    trainings: dict[str, Training] = {}
    predicted: list[Predicted] = []
    for directory in directories:
        folder = directory.name
        try:
            training = read_training(directory, split, split_hash)
            check_new_seed(training, [other.seed for other in trainings.values()], folder)
            own = predicted_by(directory, test)
            for first in list(trainings.values())[:1]:
                check_same_model(training, own.kind, first, predicted[0].kind, folder)
        except KernelcastError as error:
            logger.warning("%s on the %s split is left out: %s", folder, split, error)
            missing.append(MissingModel(split, folder, str(error)))
            continue
        trainings[folder] = training
        predicted.append(own)
    if not trainings:
        return None
    kind = predicted[0].kind
    scores = score(test, np.stack([own.values for own in predicted]), kind, name, resampled, networks)
    seconds = [training.seconds for training in trainings.values()]
    microseconds = [own.microseconds for own in predicted]
    learned = next(iter(trainings.values())).learned
    result = ModelResult(
        model=name,
        role=Role.LEARNED if learned else Role.BASELINE,
        kind=kind,
        loss=next(iter(trainings.values())).loss if learned else "",
        programs=len(test),
        metrics=scores.metrics,
        per_workload=scores.per_workload,
        train_seconds=float(np.mean(seconds)) if learned else None,
        predict_microseconds=float(np.mean(microseconds)),
        seeds=tuple(training.seed for training in trainings.values()),
        folders=tuple(trainings),
        train_seconds_deviation=deviation(seconds) if learned else None,
        predict_microseconds_deviation=deviation(microseconds),
        by_task_weight=scores.by_task_weight,
        over_networks=scores.over_networks,
        per_network=scores.per_network,
    )
    tables = [
        prediction_table(split, name, test, own.values, training.seed)
        for own, training in zip(predicted, trainings.values(), strict=True)
    ]
    return result, scores.standings, tables


def predicted_by(directory: Path, test: Programs) -> Predicted:
    """What the model in a folder of `train` predicts for `test`, or predicted once where that was recorded instead.

    Raises:
        KernelcastError: there is neither, it is torn or of another version, or predicts what is no number.
    """
    from kernelcast.evaluation.recorded_predictions import RECORDED_FILE, is_recorded, read_recorded
    from kernelcast.evaluation.scoring import checked, predict_microseconds
    from kernelcast.models.saved import load_model

    if is_recorded(directory):
        (row,) = read_recorded(directory / RECORDED_FILE)
        return Predicted(row.kind, checked(row.predictions, len(test), directory.name), row.predict_microseconds)
    model = load_model(directory / "model")
    values = checked(model.predict(test), len(test), directory.name)
    return Predicted(str(model.kind), values, predict_microseconds(model.predict, test))


def deviation(values: list[float]) -> float | None:
    """Standard deviation over the seeds; None for one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
