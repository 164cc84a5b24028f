"""An analytical model: what the machine allows at best, from counts alone, with nothing learned."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import ConfigError
from kernelcast.files import read_json, write_json
from kernelcast.graphs.features import (
    FLOPS,
    MOVED_BYTES,
    PARALLEL_EXTENT,
    PARALLEL_SHARE,
    UNIQUE_BYTES,
    VECTOR_SHARE,
    natural,
)
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.models.checks import require_version
from kernelcast.models.description import saved_value
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.trainer import TrainerSettings

SETTINGS_FILE = "settings.json"

LEAST_SECONDS = 1e-9
"""No prediction is below this: a program that neither computes nor moves anything still takes time."""


UNUSED = Machine(1, 1, 1.0, 1.0, 1)
"""In the place of a machine that no program needs."""


class RooflineModel:
    """The longer of the time to compute and the time to move the bytes.

    With peak P and bandwidth B of the machine, its cores c and vector lanes v, and of the program the operations f, the
    bytes m past the cache of one core (at least the distinct ones), the vectorised share a, the parallel share p and
    the parallel extent e::

        cores helping = e / ceil(e / c)                       a core without work waits for the last round
        compute = f / (P / c) * (a + (1 - a) * v) * (p / cores helping + 1 - p)
        memory  = m / B
        ln(seconds) = ln(max(compute, memory))

    Williams et al. 2009 (the roofline); Kaufman et al. 2021 (arXiv 2008.01040) compare with a far more detailed
    analytical model.

    Args:
        loss: not used, there is nothing to minimise; every model takes it.
        trainer: not used, as `loss`.
        seed: not used, nothing is random.
    """

    learned = False

    def __init__(self, loss: Loss | None, trainer: TrainerSettings | None, seed: int) -> None:
        self._feature_version: str | None = None

    @property
    def kind(self) -> PredictionKind:
        """Logarithm of the seconds."""
        return PredictionKind.LOG_SECONDS

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Learns nothing but the version of the features.

        Raises:
            ConfigError: the machine that measured is unknown.
        """
        _known_machines(train)
        self._feature_version = train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """Natural logarithm of the seconds on the machine of `programs`."""
        require_version(self._feature_version, programs, "the roofline model")
        features = programs.features
        known = _known_machines(programs)
        figures = {
            name: np.array([getattr(machine, name) for machine in known], dtype=np.float64)[programs.target]
            for name in ("cores", "vector_lanes", "peak_flops_per_second", "bytes_per_second")
        }
        cores, lanes = figures["cores"], figures["vector_lanes"]
        parallel_extent = np.maximum(natural(features, PARALLEL_EXTENT).round(), 1.0)
        cores_helping = parallel_extent / np.ceil(parallel_extent / cores)
        parallel_share = natural(features, PARALLEL_SHARE).clip(0.0, 1.0)
        vector_share = natural(features, VECTOR_SHARE).clip(0.0, 1.0)
        compute_seconds = (
            natural(features, FLOPS)
            / (figures["peak_flops_per_second"] / cores)
            * (vector_share + (1.0 - vector_share) * lanes)
            * (parallel_share / cores_helping + 1.0 - parallel_share)
        )
        moved_bytes = np.maximum(natural(features, MOVED_BYTES), natural(features, UNIQUE_BYTES))
        memory_seconds = moved_bytes / figures["bytes_per_second"]
        seconds: Float64[np.ndarray, "programs"] = np.maximum(compute_seconds, memory_seconds)
        return np.log(np.maximum(seconds, LEAST_SECONDS))

    def save(self, directory: Path) -> None:
        """Writes the version of the features into an existing folder; the machine comes with the programs."""
        write_json(directory / SETTINGS_FILE, {"feature_version": self._feature_version})

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote."""
        model = cls(None, None, 0)
        settings = read_json(directory / SETTINGS_FILE, "train")
        model._feature_version = saved_value(settings, "feature_version", directory)
        return model


def _known_machines(programs: Programs) -> tuple[Machine, ...]:
    """The machine of each target; one that no program needs may be unknown."""
    used = set(np.unique(programs.target).tolist())
    if any(programs.machines[number] is None for number in used):
        raise ConfigError(
            "model=roofline needs the peaks of the machine that measured, and of these programs nobody knows it; train "
            "another model or, if they were measured on this machine, import them again with `host=this` and run "
            "`dvc repro graphs`"
        )
    return tuple(machine or UNUSED for machine in programs.machines)
