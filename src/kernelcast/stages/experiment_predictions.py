"""The predictions behind a published table: `docs/results/predictions/NAME/SPLIT@SEED.parquet`.

Whoever doubts a figure reckons it again without training for hours, and an experiment is gone on with where its models
are no longer there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from kernelcast.files import atomic_directory, write_json
from kernelcast.stages.experiment_plan import Plan, Training, training_config
from kernelcast.stages.experiment_trainings import is_of, kept_training, split_hashes
from kernelcast.stages.provenance import decisive_settings

if TYPE_CHECKING:
    from kernelcast.evaluation.recorded_predictions import Recorded

logger = logging.getLogger(__name__)

PREDICTIONS = "predictions"
"""Folder beside the records of the experiments."""

KEPT_OF_TRAINING = (
    "model", "loss", "kind", "split", "split_hash", "seed", "seconds", "learned", "unit", "feature_version",
    "data_hash", "code_hash",
)  # fmt: skip
"""Entries of `training.json` that are published; of its configuration only what decides, which names no folder."""


def predictions_file(records: Path, plan: Plan, split: str, seed: int) -> Path:
    """Where the predictions of one split and seed are."""
    return records / PREDICTIONS / plan.name / f"{split}@{seed}.parquet"


def restore_published(plan: Plan, config: DictConfig, records: Path) -> int:
    """Puts published predictions where models are missing that equal settings would make of equal graphs.

    Returns:
        How many trainings need not be made for that.

    Raises:
        MalformedDataError: a file is torn or of another version.
    """
    from kernelcast.evaluation.recorded_predictions import RECORDED_FILE, read_recorded, write_recorded
    from kernelcast.graphs.dataset.store import read_data_hash

    hashes, found = split_hashes(plan), 0
    data = {name: read_data_hash(variant.graphs) for name, variant in plan.variants.items()}
    rows: dict[tuple[str, int], dict[str, Recorded]] = {}
    for training in plan.trainings:
        place = training.split, training.seed
        if place not in rows:
            path = predictions_file(records, plan, *place)
            rows[place] = {row.label: row for row in read_recorded(path)} if path.is_file() else {}
        row = rows[place].get(training.label)
        if row is None or row.training["data_hash"] != data[training.variant.name]:
            continue
        asked, split_hash = training_config(training, config), hashes[training.variant.name, training.split]
        if is_of(kept_training(training), asked, split_hash) or not is_of(row.training, asked, split_hash):
            continue
        with atomic_directory(training.output) as temporary:
            write_recorded(temporary / RECORDED_FILE, [row])
            write_json(temporary / "training.json", row.training)
        found += 1
    return found


def publish_predictions(plan: Plan, trained: Sequence[Training], records: Path) -> None:
    """Writes what the evaluated models of `trained` predicted; rows of other labels stay as they are."""
    from kernelcast.evaluation.predictions import predictions_of, read_predictions
    from kernelcast.evaluation.recorded_predictions import Recorded, read_recorded, write_recorded
    from kernelcast.evaluation.results import read_results

    grouped: dict[tuple[str, int], list[Training]] = {}
    for training in trained:
        grouped.setdefault((training.split, training.seed), []).append(training)
    used = {training.variant.name: training.variant for training in trained}
    tables = {name: read_predictions(variant.evaluation) for name, variant in used.items()}
    scored = {
        (name, split.split, model.model): model
        for name, variant in used.items()
        for split in read_results(variant.evaluation).splits
        for model in split.models
    }
    for (split, seed), trainings in grouped.items():
        path = predictions_file(records, plan, split, seed)
        rows = {row.label: row for row in read_recorded(path)} if path.is_file() else {}
        for training in trainings:
            table = predictions_of(tables[training.variant.name], split, training.label, seed)
            model = scored.get((training.variant.name, split, training.label))
            if model is None or model.predict_microseconds is None or not len(table):
                continue  # it could not be scored, which the record says
            rows[training.label] = Recorded(
                training.label,
                published_training(kept_training(training)),
                model.kind,
                model.predict_microseconds,
                np.asarray(table["prediction"].to_numpy(), dtype=np.float64),
            )
        if rows:
            write_recorded(path, [rows[label] for label in sorted(rows)])
    logger.info("predictions: %s", records / PREDICTIONS / plan.name)


def published_training(training: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `training.json` that says what was trained of what, and names no place."""
    kept = {key: training[key] for key in KEPT_OF_TRAINING if key in training}
    return {**kept, "config": decisive_settings(training["config"])}
