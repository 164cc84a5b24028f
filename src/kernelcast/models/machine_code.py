"""The time of a program from the machine code that LLVM made of it: nothing is learned, and the program is not run."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.graphs.features import PARALLEL_EXTENT, natural
from kernelcast.graphs.machine_code.columns import CYCLES, PARALLEL_CYCLES
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import MACHINE_CODE, FlatFeatures
from kernelcast.models.machine_model import MachineModel
from kernelcast.models.speeds import (
    LEAST_SECONDS,
    calibration_of,
    cores_helping,
    memory_seconds,
    pieces_by_machine,
    starting_seconds,
)
from kernelcast.models.statement_seconds import overlapped

FLOPS_PER_CYCLE = 4
"""Of a core that makes multiply-adds one by one: it has two units for them."""

START = "machine_code_log_seconds"
"""The column with the natural logarithm of the seconds of `machine_code_seconds`."""


class MachineCodeModel(MachineModel):
    """Cycles of the loops that LLVM made, then the memory, then the threads.

    The view `machine_code` has the cycles of all loops with everything in the first cache, of which a share p lies in
    parallel loops of extent e. With the clock f, the cores c and the bytes m_i past each cache as in the analytical
    model::

        cores helping = e / ceil(e / c)
        core    = (p / cores helping + 1 - p) * cycles / f
        memory  = sum over i of m_i / B_i
        seconds = overlapped(core, memory) + starts of parallel loops + the call

    After the static analysers of throughput (Abel and Reineke 2022, uiCA; Mendis et al. 2019, arXiv 1808.07412), which
    take one basic block: here whole nests are weighed by how often they turn.
    """

    name = "machine_code"

    def seconds(
        self, programs: Programs, rows: Int64[np.ndarray, "rows"], machine: Machine
    ) -> Float64[np.ndarray, "rows"]:
        """See the class."""
        return machine_code_seconds(programs.view(MACHINE_CODE, rows), programs.view("features", rows), machine)


def machine_code_seconds(
    code: FlatFeatures, features: FlatFeatures, machine: Machine
) -> Float64[np.ndarray, " programs"]:
    """Seconds of each program on one machine.

    Args:
        code: the view `machine_code`.
        features: the view `features` of the same programs.
        machine: what they run on.
    """
    calibration = calibration_of(machine)
    cycles, parallel = natural(code, CYCLES), natural(code, PARALLEL_CYCLES)
    helping = cores_helping(natural(features, PARALLEL_EXTENT), machine)
    clock = calibration.scalar_flops_per_second / FLOPS_PER_CYCLE
    core = (parallel / helping + np.maximum(cycles - parallel, 0.0)) / clock
    memory = memory_seconds(features, machine, calibration).sum(axis=1)
    return overlapped(core, memory) + starting_seconds(features, calibration)


def machine_code_table(programs: Programs, model: str) -> FlatFeatures:
    """The columns of the view, and in front of them what `machine_code_seconds` makes of them, for models that learn.

    Args:
        programs: with the views `machine_code` and `features`.
        model: whose columns they are, for messages.

    Raises:
        ConfigError: a view or the machine is not there.
    """
    code = programs.view(MACHINE_CODE)
    start = np.zeros((len(programs), 1), dtype=np.float32)
    for rows, machine in pieces_by_machine(programs, model):
        seconds = machine_code_seconds(code.select(rows), programs.view("features", rows), machine)
        start[rows, 0] = np.log(np.maximum(seconds, LEAST_SECONDS))
    names = tuple(f"{MACHINE_CODE}_{name}" for name in code.names)
    return FlatFeatures((START, *names), np.concatenate([start, code.values], axis=1))
