"""An analytical model of tiles, vectors, registers, caches and threads: nothing is learned, the machine is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Float64

from kernelcast.files import read_json, write_json
from kernelcast.graphs.features import PARALLEL_STARTS, natural
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import FlatFeatures, StatementRows
from kernelcast.models.checks import require_version
from kernelcast.models.description import saved_value
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.speeds import LEAST_SECONDS, calibration_of, known_machine, memory_seconds, used_targets
from kernelcast.models.statement_seconds import core_seconds, natural_columns, overlapped
from kernelcast.models.trainer import TrainerSettings

SETTINGS_FILE = "settings.json"

NAME = "analytical"

PIECE = 8192
"""Programs that are looked at together, so that any number of them fits into memory."""


class AnalyticalModel:
    """Instructions of every statement on the units of a core, then the memory, then the threads.

    A statement keeps three parts of a core busy, which overlap (`statement_seconds.overlapped`, a p-norm)::

        compute = instructions * operations / rate            in vectors, or one by one
        access  = loads and stores that no register saves / rate of the first cache
        waiting = steps / (rate of dependent additions * chains at once)

    Iterations of loops that stay loops and conditions come on top. With the cores helping as in the roofline, the bytes
    m_i past each cache (none where it holds all) and the bandwidth B_i of the next level::

        core    = sum over statements of (compute, access, waiting + loops) / cores helping
        memory  = sum over i of m_i / B_i                      one level after the other
        seconds = overlapped(core, memory) + starts of parallel loops + the call

    Kaufman et al. 2021 (arXiv 2008.01040) compare with a model of this kind; the sum over levels is that of the
    execution-cache-memory model (Stengel et al. 2015, arXiv 1410.5010). What is measured of the machine stands in
    `records.Calibration`; where it was not, `speeds.calibration_of` says what is taken. The few constants in
    `statement_seconds` are properties of compilers and cores in general.

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
        require_version(self._feature_version, programs, "the analytical model")
        seconds = np.zeros(len(programs))
        for target in used_targets(programs):
            machine = known_machine(programs, target, NAME)
            of_target = np.flatnonzero(programs.target == target)
            for start in range(0, len(of_target), PIECE):
                rows = of_target[start : start + PIECE]
                seconds[rows] = program_seconds(
                    programs.view("statements", rows), programs.view("features", rows), machine
                )
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


def program_seconds(
    statements: StatementRows, features: FlatFeatures, machine: Machine
) -> Float64[np.ndarray, " programs"]:
    """Seconds of each program on one machine.

    Args:
        statements: the `statements` view.
        features: the `features` view of the same programs.
        machine: what they run on.
    """
    calibration = calibration_of(machine)
    columns = natural_columns(statements)
    parallel = np.maximum(np.round(columns["parallel_extent"]), 1.0)
    helping = parallel / np.ceil(parallel / machine.cores)
    counts = statements.counts("row")
    program = np.repeat(np.arange(len(counts)), counts)
    shared = core_seconds(columns, machine.vector_lanes, calibration) / helping
    core = np.bincount(program, shared, len(counts))
    memory = memory_seconds(features, machine, calibration).sum(axis=1)
    seconds: Float64[np.ndarray, " programs"] = overlapped(core, memory) + calibration.call_seconds
    if calibration.parallel_start_seconds > 0:
        seconds += natural(features, PARALLEL_STARTS) * calibration.parallel_start_seconds
    return seconds
