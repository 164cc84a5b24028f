"""Many programs in a few flat arrays: what all views have in common.

A view holds arrays along *axes*. An array along the axis `node` has the rows of program p at
`node_offset[p]:node_offset[p + 1]`; one along the axis `program` has one row a program. Nothing here is a Python object
a program, so a million of them are sliced, gathered, joined and mapped into memory as fast as the arrays are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from jaxtyping import Int64

PROGRAM = "program"
"""The axis of arrays with one row a program."""


def along(axis: str) -> Any:
    """Declares a field of a view as an array along `axis`."""
    return dataclasses.field(metadata={"axis": axis})


def ragged_rows(
    offset: Int64[np.ndarray, " rows_plus_1"], rows: Int64[np.ndarray, " rows"]
) -> tuple[Int64[np.ndarray, " elements"], Int64[np.ndarray, " chosen_plus_1"]]:
    """Element numbers of the chosen rows of a ragged array, and the offsets of the gathered rows."""
    rows = np.asarray(rows, dtype=np.int64)
    starts = offset[rows]
    lengths = offset[rows + 1] - starts
    gathered = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=gathered[1:])
    elements = np.arange(gathered[-1], dtype=np.int64) + np.repeat(starts - gathered[:-1], lengths)
    return elements, gathered


@dataclass(frozen=True)
class View:
    """One way to look at many programs.

    A subclass is a frozen dataclass of arrays declared by `along`, of offsets named `AXIS_offset`, and of tuples of
    column names, which are the same for all programs. Column names stand first.
    """

    def __len__(self) -> int:
        for name, axis in self.array_axes().items():
            if axis == PROGRAM:
                return len(getattr(self, name))
            return len(getattr(self, offset_name(axis))) - 1
        raise AssertionError(f"{type(self).__name__} has no arrays")

    @classmethod
    def array_axes(cls) -> dict[str, str]:
        """The axis of every array but the offsets."""
        return {field.name: field.metadata["axis"] for field in dataclasses.fields(cls) if "axis" in field.metadata}

    @classmethod
    def ragged_axes(cls) -> tuple[str, ...]:
        """The axes that need offsets."""
        return tuple(dict.fromkeys(axis for axis in cls.array_axes().values() if axis != PROGRAM))

    @classmethod
    def column_names(cls) -> tuple[str, ...]:
        """The fields that are no arrays: names of columns."""
        arrays = {*cls.array_axes(), *map(offset_name, cls.ragged_axes())}
        return tuple(field.name for field in dataclasses.fields(cls) if field.name not in arrays)

    def columns(self) -> dict[str, tuple[str, ...]]:
        """The column names by field."""
        return {name: getattr(self, name) for name in self.column_names()}

    def counts(self, axis: str) -> Int64[np.ndarray, " programs"]:
        """Rows along `axis` of each program."""
        lengths: Int64[np.ndarray, " programs"] = np.diff(getattr(self, offset_name(axis)))
        return lengths

    def select(self, rows: Int64[np.ndarray, " rows"]) -> Self:
        """The programs of `rows`, in that order, repeats allowed."""
        rows = np.asarray(rows, dtype=np.int64)
        values: dict[str, Any] = self.columns()
        elements = {PROGRAM: rows}
        for axis in self.ragged_axes():
            elements[axis], values[offset_name(axis)] = ragged_rows(getattr(self, offset_name(axis)), rows)
        for name, axis in self.array_axes().items():
            values[name] = getattr(self, name)[elements[axis]]
        return type(self)(**values)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One view after the other; at least one, all with the same columns."""
        values: dict[str, Any] = parts[0].columns()
        for axis in cls.ragged_axes():
            lengths = np.concatenate([part.counts(axis) for part in parts])
            values[offset_name(axis)] = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        for name in cls.array_axes():
            values[name] = np.concatenate([getattr(part, name) for part in parts])
        return cls(**values)


def offset_name(axis: str) -> str:
    """The field that says where the rows of each program begin and end along `axis`."""
    return f"{axis}_offset"
