"""Which trainings of an experiment are there already, with equal settings and of equal data."""

from __future__ import annotations

import logging
from typing import Any

from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import KernelcastError
from kernelcast.files import read_json
from kernelcast.stages.experiment_plan import Plan, Training, training_config
from kernelcast.stages.provenance import decisive_settings, models_code_hash

logger = logging.getLogger(__name__)


def split_hashes(plan: Plan) -> dict[tuple[str, str], str]:
    """The hashes of every split of every variant of the graphs, by the names of both."""
    from kernelcast.graphs.splits import read_split_hash

    return {
        (variant.name, split): read_split_hash(variant.graphs, split)
        for variant in plan.variants.values()
        for split in plan.splits
    }


def missing_trainings(plan: Plan, config: DictConfig) -> list[Training]:
    """The trainings without a model that equal settings made on equal data.

    Predictions that were published stand for a model only where `config.published` says so.
    """
    from kernelcast.evaluation.recorded_predictions import is_recorded

    hashes, code = split_hashes(plan), models_code_hash()
    missing, of_other_code = [], 0
    for training in plan.trainings:
        kept = kept_training(training)
        split_hash = hashes[training.variant.name, training.split]
        stands_in = is_recorded(training.output) and not config.published
        if stands_in or not is_of(kept, training_config(training, config), split_hash):
            missing.append(training)
        elif kept["code_hash"] != code:
            of_other_code += 1
            if config.retrain:
                missing.append(training)
    if of_other_code and not config.retrain:
        logger.warning(
            "%d models were trained by other code of kernelcast than this and are kept; retrain=true trains them again",
            of_other_code,
        )
    return missing


def kept_training(training: Training) -> dict[str, Any]:
    """How the model that is there was trained; empty where there is none that can be told."""
    path = training.output / "training.json"
    try:
        found = read_json(path, "train")
    except KernelcastError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("config"), dict) else {}


def is_of(kept: dict[str, Any], config: DictConfig, split_hash: str) -> bool:
    """Whether a model was trained with the settings of `config` on the same programs."""
    asked: dict[str, Any] = OmegaConf.to_container(config, enum_to_str=True)  # type: ignore[assignment]
    return (
        bool(kept)
        and kept["split_hash"] == split_hash
        and decisive_settings(kept["config"]) == decisive_settings(asked)
    )
