"""What a trained model keeps of how it came about, so that whoever finds it can tell and repeat it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from kernelcast.graphs.dataset.store import Description

UNITS = {
    "log_seconds": "natural logarithm of the run time in seconds; lower is faster",
    "rank": "a number without unit that orders the programs of one workload; lower is faster",
}
"""What a prediction means, by the kind of the model."""

DECISIVE = ("model", "loss", "trainer", "seed", "split", "from_run", "debug")
"""Keys of the training configuration on which the model depends, beside the data."""


def provenance(
    config: DictConfig,
    kind: str,
    description: Description,
    hashes: tuple[str, str],
    values: Mapping[str, float],
) -> dict[str, Any]:
    """The entries of `training.json` beside those that `evaluate` asks for.

    Args:
        config: the resolved configuration of the training.
        kind: what the predictions mean, a `PredictionKind`.
        description: of the programs.
        hashes: of the programs: version of the features, content.
        values: the last metrics of the run.
    """
    return {
        "config": OmegaConf.to_container(config, resolve=True, enum_to_str=True),
        "unit": UNITS[kind],
        "feature_version": hashes[0],
        "data_hash": hashes[1],
        "measurements_hash": description.measurements_hash,
        "features": dataclasses.asdict(description.options),
        "targets": [target.target for target in description.targets],
        "label": description.label,
        "reference_correction": description.reference_correction,
        "code_hash": models_code_hash(),
        # a value that is no number has no place in JSON
        "metrics": {name: value for name, value in sorted(values.items()) if abs(value) < float("inf")},
    }


def decisive_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a training's configuration on which the model depends."""
    return {key: config.get(key) for key in DECISIVE}


def models_code_hash() -> str:
    """A hash of the code of all models: what other code trained may differ."""
    import kernelcast.models

    return code_hash(Path(kernelcast.models.__file__).parent)


def code_hash(package: Path) -> str:
    """A hash of all Python files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]
