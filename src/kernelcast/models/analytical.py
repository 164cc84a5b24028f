"""An analytical model of tiles, vectors, registers, caches and threads: nothing is learned, the machine is measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import FlatFeatures, StatementRows
from kernelcast.models.compiled_nest import natural_columns
from kernelcast.models.machine_model import MachineModel
from kernelcast.models.speeds import calibration_of, cores_helping, memory_seconds, starting_seconds
from kernelcast.models.statement_seconds import StatementSeconds, core_seconds, overlapped


class AnalyticalModel(MachineModel):
    """Instructions of every statement on the units of a core, then the memory, then the threads.

    A statement keeps three parts of a core busy, which overlap (`statement_seconds.overlapped`, a p-norm)::

        compute = instructions * operations / rate            in vectors, or one by one
        access  = loads and stores that no register saves / rate of the first cache
        waiting = steps / (rate of dependent additions * chains at once)

    Iterations of loops that stay loops and conditions come on top, and what some lanes and strides cost. The loops are
    those of the compiled program (`compiled_nest`): LLVM unrolls short ones, makes vectors of the innermost one that
    stays, and does once what a loop would repeat. With the cores helping as in the roofline, the bytes
    m_i past each cache (none where it holds all) and the bandwidth B_i of the next level::

        core    = sum over statements of (overlapped(compute, access, waiting) + overhead) / cores helping
        memory  = sum over i of m_i / B_i                      one level after the other
        seconds = overlapped(core, memory) + starts of parallel loops + the call

    Kaufman et al. 2021 (arXiv 2008.01040) compare with a model of this kind; the sum over levels is that of the
    execution-cache-memory model (Stengel et al. 2015, arXiv 1410.5010). What is measured of the machine stands in
    `machine.Calibration`; where it was not, `speeds.calibration_of` says what is taken. The few constants in
    `statement_seconds` are properties of compilers and cores in general.
    """

    name = "analytical"

    def seconds(
        self, programs: Programs, rows: Int64[np.ndarray, "rows"], machine: Machine
    ) -> Float64[np.ndarray, "rows"]:
        """See the class."""
        return estimate(programs.view("statements", rows), programs.view("features", rows), machine).seconds


@dataclass(frozen=True)
class Estimate:
    """What the analytical model makes of programs.

    Attributes:
        seconds: of each program.
        memory: the part of the memory behind the first cache.
        statements: seconds of one core for each statement.
        helping: cores that share a statement.
        counts: statements of each program.
    """

    seconds: Float64[np.ndarray, " programs"]
    memory: Float64[np.ndarray, " programs"]
    statements: StatementSeconds
    helping: Float64[np.ndarray, " statements"]
    counts: Int64[np.ndarray, " programs"]

    def of_programs(self, seconds: Float64[np.ndarray, " statements"]) -> Float64[np.ndarray, " programs"]:
        """Sums over the statements of each program, the cores sharing the work."""
        return _summed(seconds / self.helping, self.counts)


def estimate(statements: StatementRows, features: FlatFeatures, machine: Machine) -> Estimate:
    """Seconds of each program on one machine, and what they are made of.

    Args:
        statements: the `statements` view.
        features: the `features` view of the same programs.
        machine: what they run on.
    """
    calibration = calibration_of(machine)
    columns = natural_columns(statements)
    helping = cores_helping(columns["parallel_extent"], machine)
    of_statements = core_seconds(columns, machine.vector_lanes, calibration)
    memory, counts = memory_seconds(features, machine, calibration).sum(axis=1), statements.counts("row")
    core = _summed(of_statements.total / helping, counts)
    seconds = overlapped(core, memory) + starting_seconds(features, calibration)
    return Estimate(seconds, memory, of_statements, helping, counts)


def _summed(
    values: Float64[np.ndarray, " statements"], counts: Int64[np.ndarray, " programs"]
) -> Float64[np.ndarray, " programs"]:
    return np.bincount(np.repeat(np.arange(len(counts)), counts), values, len(counts))
