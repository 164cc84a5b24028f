"""Programs as one row each, for models that take a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float32

from kernelcast.errors import ConfigError
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.views import FlatFeatures, StatementRows
from kernelcast.models.trace_table import trace_table

TABLES: dict[str, Callable[[Programs], FlatFeatures]] = {
    "features": lambda programs: programs.features,
    "trace": lambda programs: trace_table(programs.view("trace")),
}
"""The views that make a row of a program."""

POOLED = ("statements", "per_store")
"""The views whose rows can be pooled."""


def require_views(view: str, pooled: Sequence[str]) -> None:
    """Makes sure that `table_of` knows the views.

    Raises:
        ConfigError: it does not.
    """
    if view not in TABLES:
        raise ConfigError(f"model.view={view}: use one of {', '.join(TABLES)}")
    for name in pooled:
        if name not in POOLED:
            raise ConfigError(f"model.pooled has {name}: use {' and '.join(POOLED)}, or none of them")


def table_of(programs: Programs, view: str, pooled: Sequence[str]) -> FlatFeatures:
    """The row that the view makes of each program, then the pooled rows of the others.

    Raises:
        ConfigError: the programs have no such view.
    """
    return side_by_side([TABLES[view](programs), *(_pooled(name, programs.view(name)) for name in pooled)])


def side_by_side(parts: Sequence[FlatFeatures]) -> FlatFeatures:
    """The columns of all parts, which are of the same programs."""
    if len(parts) == 1:
        return parts[0]
    return FlatFeatures(
        tuple(name for part in parts for name in part.names), np.concatenate([part.values for part in parts], axis=1)
    )


def _pooled(view: str, rows: StatementRows) -> FlatFeatures:
    """Sum and maximum of every column over the rows of a program; without rows zero and NaN."""
    names = [f"{view}_{how}_{name}" for how in ("sum", "max") for name in rows.names]
    filled = np.flatnonzero(rows.counts("row"))
    values: Float32[np.ndarray, "programs columns"] = np.zeros((len(rows), len(names)), dtype=np.float32)
    width = len(rows.names)
    values[:, width:] = np.nan
    if len(filled):
        # empty programs left out, each program's rows end where the next one's begin
        starts = rows.row_offset[:-1][filled]
        values[filled, :width] = np.add.reduceat(rows.values, starts, axis=0)
        values[filled, width:] = np.maximum.reduceat(rows.values, starts, axis=0)
    return FlatFeatures(tuple(names), values)
