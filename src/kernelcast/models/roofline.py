"""The roofline: what the machine allows at best, from counts alone, with nothing learned."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.graphs.features import FLOPS, PARALLEL_EXTENT, PARALLEL_SHARE, VECTOR_SHARE, natural
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import FlatFeatures
from kernelcast.models.machine_model import MachineModel
from kernelcast.models.speeds import calibration_of, cores_helping, memory_seconds


class RooflineModel(MachineModel):
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
    """

    name = "roofline"

    def seconds(
        self, programs: Programs, rows: Int64[np.ndarray, "rows"], machine: Machine
    ) -> Float64[np.ndarray, "rows"]:
        """See the class."""
        return _seconds(programs.view("features", rows), machine)


def _seconds(features: FlatFeatures, machine: Machine) -> Float64[np.ndarray, " programs"]:
    calibration = calibration_of(machine)
    helping = cores_helping(natural(features, PARALLEL_EXTENT), machine)
    parallel_share = natural(features, PARALLEL_SHARE).clip(0.0, 1.0)
    vector_share = natural(features, VECTOR_SHARE).clip(0.0, 1.0)
    core_seconds = natural(features, FLOPS) * (
        vector_share / calibration.vector_flops_per_second + (1.0 - vector_share) / calibration.scalar_flops_per_second
    )
    compute = core_seconds * (parallel_share / helping + 1.0 - parallel_share)
    return np.maximum(compute, memory_seconds(features, machine, calibration).max(axis=1))
