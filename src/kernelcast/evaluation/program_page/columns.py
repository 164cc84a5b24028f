"""What the columns of every view say: units, meanings and how a value is undone to what it was before scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.vocabulary import Feature

KERNEL_PREFIX = "kernel_"
"""Columns of the program as a whole begin so where they stand at every node."""


class Described(Protocol):
    """A row of a table of features."""

    @property
    def name(self) -> str:
        """Of the column."""

    @property
    def unit(self) -> str:
        """Before scaling, or how it is scaled."""

    @property
    def meaning(self) -> str:
        """What it says."""


@dataclass(frozen=True)
class Column:
    """One column as a reader sees it.

    Attributes:
        name: of the column.
        unit: of the natural value; empty where nobody says.
        meaning: empty where nobody says.
        scale: `log1p` or `log2` where the model gets sign(x) times that logarithm of 1 + |x|; else empty.
    """

    name: str
    unit: str = ""
    meaning: str = ""
    scale: str = ""


def described(names: Sequence[str], view: str, options: ViewOptions) -> list[Column]:
    """The columns `names` of a view; unknown ones come without unit and meaning.

    Args:
        names: in order.
        view: a name of `views.VIEW_TYPES`, or `kernel` for the features of the program as a whole.
        options: `log_scale` counts.
    """
    tables = _tables()
    rows: dict[str, Described] = {KERNEL_PREFIX + row.name: row for row in tables["kernel"]}
    rows |= {row.name: row for row in tables[view]}
    return [_column(name, rows[name], view, options) if name in rows else Column(name) for name in names]


def _column(name: str, row: Described, view: str, options: ViewOptions) -> Column:
    for logarithm in ("log1p", "log2"):
        # the trace and TVM's features are scaled whatever the options say, and their units tell how
        if row.unit.startswith(logarithm):
            return Column(
                name, row.unit.removeprefix(logarithm).removeprefix(" of").strip("; "), row.meaning, logarithm
            )
    # a row of a program has all its columns scaled, flags too
    logged = view == "features" or (isinstance(row, Feature) and row.unit != "flag" and options.log_scale)
    return Column(name, row.unit, row.meaning, "log1p" if logged else "")


def _tables() -> dict[str, Sequence[Described]]:
    from kernelcast.graphs import dataflow, flat_columns, kernel_features, per_store, trace_columns, vocabulary
    from kernelcast.graphs.machine_code import columns as machine_code

    return {
        "ast": vocabulary.NODE_FEATURES,
        "dataflow": dataflow.NODE_FEATURES,
        "kernel": kernel_features.KERNEL_FEATURES,
        "features": flat_columns.PROGRAM_FEATURES,
        "statements": flat_columns.STATEMENT_FEATURES,
        "per_store": per_store.COLUMNS,
        "trace": trace_columns.COLUMNS,
        "machine_code": machine_code.COLUMNS,
    }
