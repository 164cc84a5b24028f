"""The roofline: what the machine allows at best, from counts alone, with nothing learned."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Float64

from kernelcast.files import read_json, write_json
from kernelcast.graphs.features import FLOPS, PARALLEL_EXTENT, PARALLEL_SHARE, VECTOR_SHARE, natural
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import FlatFeatures
from kernelcast.models.checks import require_version
from kernelcast.models.description import saved_value
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.speeds import LEAST_SECONDS, calibration_of, known_machine, memory_seconds, used_targets
from kernelcast.models.trainer import TrainerSettings

SETTINGS_FILE = "settings.json"

NAME = "roofline"


class RooflineModel:
    """The longer of the time to compute and the time to move the bytes.

    Of the machine: the peaks of one core in vectors V and one by one S, its cores c, and the bandwidth B_i of each
    level of the memory beyond the first cache. Of the program: the operations f, the bytes m_i past the cache before
    level i (none where the cache holds all that the program touches), the vectorised share a, the parallel share p and
    the parallel extent e::

        cores helping = e / ceil(e / c)                       a core without work waits for the last round
        compute = f * (a / V + (1 - a) / S) * (p / cores helping + 1 - p)
        memory  = max over i of m_i / B_i
        ln(seconds) = ln(max(compute, memory))

    Where the caches of the machine were not measured, the main memory is the only level (`speeds.calibration_of`).

    Williams et al. 2009 (the roofline); Ilic et al. 2014 (with cache levels).

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
        for target in used_targets(train):
            known_machine(train, target, NAME)
        self._feature_version = train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """Natural logarithm of the seconds on the machine of `programs`."""
        require_version(self._feature_version, programs, "the roofline model")
        seconds = np.zeros(len(programs))
        for target in used_targets(programs):
            rows = np.flatnonzero(programs.target == target)
            seconds[rows] = _seconds(programs.view("features", rows), known_machine(programs, target, NAME))
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


def _seconds(features: FlatFeatures, machine: Machine) -> Float64[np.ndarray, " programs"]:
    calibration = calibration_of(machine)
    parallel_extent = np.maximum(natural(features, PARALLEL_EXTENT).round(), 1.0)
    cores_helping = parallel_extent / np.ceil(parallel_extent / machine.cores)
    parallel_share = natural(features, PARALLEL_SHARE).clip(0.0, 1.0)
    vector_share = natural(features, VECTOR_SHARE).clip(0.0, 1.0)
    core_seconds = natural(features, FLOPS) * (
        vector_share / calibration.vector_flops_per_second + (1.0 - vector_share) / calibration.scalar_flops_per_second
    )
    compute = core_seconds * (parallel_share / cores_helping + 1.0 - parallel_share)
    return np.maximum(compute, memory_seconds(features, machine, calibration).max(axis=1))
