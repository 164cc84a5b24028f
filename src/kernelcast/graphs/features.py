"""Our flat features: one row a statement, and one row a program of the same width whatever the program.

`flat_columns` is the table of all columns.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import ConfigError
from kernelcast.graphs import flat_columns
from kernelcast.graphs.columns import columns_of
from kernelcast.graphs.facts import Facts, moved_bytes
from kernelcast.graphs.flat_columns import (
    CACHE_KIB,
    FLOPS,
    LOOP_ITERATIONS,
    LOOP_STARTS,
    MOVED_BYTES,
    PARALLEL_EXTENT,
    PARALLEL_SHARE,
    PARALLEL_STARTS,
    UNIQUE_BYTES,
    VECTOR_SHARE,
)
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.views import FlatFeatures, StatementRows

__all__ = [
    "FLOPS",
    "LOOP_ITERATIONS",
    "LOOP_STARTS",
    "MOVED_BYTES",
    "PARALLEL_EXTENT",
    "PARALLEL_SHARE",
    "PARALLEL_STARTS",
    "UNIQUE_BYTES",
    "VECTOR_SHARE",
    "natural",
    "program_row",
    "program_rows",
    "statement_rows",
    "statement_table",
]


def natural(features: FlatFeatures, name: str) -> Float64[np.ndarray, " programs"]:
    """The values of column `name` before scaling.

    Raises:
        ConfigError: these features have no such column.
    """
    if name not in features.names:
        raise ConfigError(
            f"the flat features of these programs have no column {name}: its group is one of features.leave_out; "
            "keep all groups for this model and run `dvc repro graphs`"
        )
    values: Float64[np.ndarray, " programs"] = np.expm1(features.column(name).astype(np.float64))
    return values


def statement_table(table: ProgramTable, facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Natural values of all statements of a program in program order, and the row of the table of each."""
    from kernelcast.graphs.kernels.statement_values import buffer_sizes, statement_values

    buffers = table.buffers
    return statement_values(
        table.kind,
        table.role,
        table.parent,
        table.end,
        table.extent,
        facts.loop,
        facts.statement,
        facts.executions,
        facts.reduction,
        facts.lanes,
        facts.unroll_limit,
        facts.unrolled,
        facts.flops,
        facts.transcendental,
        facts.touched,
        facts.access_row,
        facts.access_buffer,
        facts.elements,
        facts.access_bytes,
        facts.strides,
        facts.reuse,
        facts.runs,
        facts.repeated,
        facts.removable,
        buffer_sizes(buffers.shape, buffers.shape_offset, buffers.dtype_bytes),
    )


def program_row(
    table: ProgramTable, facts: Facts, statements: tuple[np.ndarray, np.ndarray], cache_bytes: int
) -> Float64[np.ndarray, " features"]:
    """Natural values of a program's row.

    Args:
        table: the program.
        facts: what is known of its rows.
        statements: what `statement_table` gave.
        cache_bytes: the cache of one core, for `moved_bytes`.
    """
    from kernelcast.graphs.kernels.program_values import program_values

    caches = np.array([cache_bytes, *(size * 1024 for size in CACHE_KIB)], dtype=np.int64)
    return program_values(
        *statements,
        moved_bytes(table, facts, caches),
        table.kind,
        table.role,
        table.end,
        table.extent,
        facts.loop,
        facts.statement,
        facts.executions,
        facts.scalar,
        facts.unrolled,
        facts.access_row,
        facts.access_buffer,
        facts.elements,
        facts.access_bytes,
        facts.strides,
        table.buffers.dtype_bytes,
        table.buffers.temporary,
    )


def statement_rows(parts: list[np.ndarray], options: ViewOptions) -> StatementRows:
    """The view of many programs from the natural values of their statements, see `statement_table`."""
    columns = columns_of(flat_columns.STATEMENT_FEATURES, options)
    offset = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=offset[1:])
    values = np.concatenate([np.zeros((0, len(flat_columns.STATEMENT_FEATURES))), *parts])
    return StatementRows(names=columns.names, row_offset=offset, values=columns.scaled(values))


def program_rows(parts: list[np.ndarray], options: ViewOptions) -> FlatFeatures:
    """The view of many programs from their natural values, see `program_row`.

    All columns are `log1p` whatever `log_scale` says: `natural` gives the values back, and trees do not care.
    """
    columns = columns_of(flat_columns.PROGRAM_FEATURES, options)
    values = np.stack(parts) if parts else np.zeros((0, len(flat_columns.PROGRAM_FEATURES)))
    return FlatFeatures(names=columns.names, values=np.log1p(values[:, columns.kept]).astype(np.float32))
