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
        return type(self)(**gathered([(self, rows, np.arange(len(rows)))], len(rows)))

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


def gathered(parts: Sequence[tuple[View, np.ndarray, np.ndarray]], count: int) -> dict[str, Any]:
    """The fields of a view of `count` programs that are taken from several views of one kind, at least one.

    Args:
        parts: a view, which of its programs are taken, and their places in the new one.
        count: of the places together.
    """
    example = parts[0][0]
    values: dict[str, Any] = example.columns()
    # of each part, what is taken along each axis and where it goes
    taken: list[dict[str, np.ndarray]] = [{PROGRAM: rows} for _, rows, _ in parts]
    placed: list[dict[str, np.ndarray]] = [{PROGRAM: places} for _, _, places in parts]
    for axis in example.ragged_axes():
        lengths = np.empty(count, dtype=np.int64)
        for (view, rows, places), elements in zip(parts, taken, strict=True):
            elements[axis], offset = ragged_rows(getattr(view, offset_name(axis)), rows)
            lengths[places] = np.diff(offset)
        values[offset_name(axis)] = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        for (_, _, places), elements in zip(parts, placed, strict=True) if len(parts) > 1 else ():
            elements[axis], _ = ragged_rows(values[offset_name(axis)], places)
    for name, axis in example.array_axes().items():
        if len(parts) == 1:
            # all places in their order; `take` is several times as fast as an index
            values[name] = np.take(getattr(example, name), taken[0][axis], axis=0)
            continue
        array = getattr(example, name)
        total = count if axis == PROGRAM else int(values[offset_name(axis)][-1])
        target = values[name] = np.empty((total, *array.shape[1:]), dtype=array.dtype)
        for (view, _, _), source, place in zip(parts, taken, placed, strict=True):
            target[place[axis]] = np.take(getattr(view, name), source[axis], axis=0)
    return values


def ragged_rows(
    offset: Int64[np.ndarray, " rows_plus_1"], rows: Int64[np.ndarray, " rows"]
) -> tuple[Int64[np.ndarray, " elements"], Int64[np.ndarray, " chosen_plus_1"]]:
    """Element numbers of the chosen rows of a ragged array, and the offsets of the gathered rows."""
    starts = offset[rows]
    lengths = offset[rows + 1] - starts
    gathered_offset = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=gathered_offset[1:])
    elements = np.arange(gathered_offset[-1], dtype=np.int64)
    elements += np.repeat(starts - gathered_offset[:-1], lengths)
    return elements, gathered_offset


def offset_name(axis: str) -> str:
    """The field that says where the rows of each program begin and end along `axis`."""
    return f"{axis}_offset"
