"""Static performance figures of a program as a whole, and its heaviest statement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int16, Int32, Int64

from kernelcast.graphs.facts import Facts
from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.computations import Rows
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX

_STORE = NODE_KIND_INDEX["store"]


@dataclass(frozen=True)
class Figures:
    """Figures of one run of a program.

    Attributes:
        heaviest: row of the store with the most operations of any type, of equals the one that runs most often; -1
            without stores.
        flops: floating-point operations.
        transcendental: those of them that are exp, sqrt, tanh, ...
        integer: operations with integers.
        read: distinct bytes read of tensors that the program is given.
        written: distinct bytes written of its results.
        temporary: distinct bytes touched of all others.
    """

    heaviest: int
    flops: float
    transcendental: float
    integer: float
    read: float
    written: float
    temporary: float


def figures(table: ProgramTable, facts: Facts, rows: Rows) -> Figures:
    """The figures of a program."""
    return Figures(
        *_figures(
            table.kind,
            facts.statement,
            facts.executions,
            facts.flops,
            facts.transcendental,
            rows.integer_operations,
            facts.access_row,
            facts.access_buffer,
            facts.access_bytes,
            table.buffers.temporary,
        )
    )


@compiled
def _figures(
    kind: Int16[np.ndarray, " nodes"],
    statement: Int32[np.ndarray, " nodes"],
    executions: Int64[np.ndarray, " nodes"],
    flops: Int64[np.ndarray, " nodes"],
    transcendental: Int64[np.ndarray, " nodes"],
    integer_operations: Int64[np.ndarray, " nodes"],
    access_row: Int32[np.ndarray, " accesses"],
    access_buffer: Int32[np.ndarray, " accesses"],
    access_bytes: Int64[np.ndarray, "accesses 2"],
    temporary: Bool[np.ndarray, " buffers"],
) -> tuple[int, float, float, float, float, float, float]:
    heaviest, most = -1, -1.0
    total, special, integer = 0.0, 0.0, 0.0
    for row in range(len(kind)):
        if statement[row] != row:
            continue
        times = float(executions[row])
        total += flops[row] * times
        special += transcendental[row] * times
        integer += integer_operations[row] * times
        work = (flops[row] + integer_operations[row]) * times
        more = work > most or (work == most and executions[row] > executions[heaviest])
        if kind[row] == _STORE and more:
            heaviest, most = row, work

    loaded = np.zeros(len(temporary), dtype=np.int64)
    stored = np.zeros(len(temporary), dtype=np.int64)
    for access in range(len(access_row)):
        touched = stored if kind[access_row[access]] == _STORE else loaded
        touched[access_buffer[access]] = max(touched[access_buffer[access]], access_bytes[access, 1])
    read, written, between = 0.0, 0.0, 0.0
    for tensor in range(len(temporary)):
        if temporary[tensor]:
            between += max(loaded[tensor], stored[tensor])
        elif stored[tensor] > 0:
            written += stored[tensor]
        else:
            read += loaded[tensor]
    return heaviest, total, special, integer, read, written, between
