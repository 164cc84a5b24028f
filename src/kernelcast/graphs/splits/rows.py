"""What a splitter sees of the measured programs: where each row comes from, nothing of how long it ran."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int64

from kernelcast.graphs.programs import Programs
from kernelcast.graphs.splits.shapes import anchor_key, shape_numbers
from kernelcast.records import Workload


@dataclass(frozen=True)
class SplitWorkload:
    """A workload as far as a split asks.

    Attributes:
        key: structural hash of the module.
        name: what the user calls it.
        kind: operator kind.
        arguments: what it was made from; empty where nobody knows.
        networks: how often each network runs it.
        anchor: hash of the computation that it is scheduled by, see `shapes.anchor_key`; empty where there is none.
    """

    key: str
    name: str
    kind: str
    arguments: dict[str, Any]
    networks: dict[str, int]
    anchor: str = ""


@dataclass(frozen=True)
class Rows:
    """Measured programs, one a row.

    Attributes:
        workload: number of each row's workload in `workloads`.
        target: number of each row's target in `targets`.
        program_key: structural hash of each scheduled module, as text or as bytes.
        workloads: all there are, also those without rows.
        targets: the TVM targets as dicts.
    """

    workload: Int64[np.ndarray, " rows"]
    target: Int64[np.ndarray, " rows"]
    program_key: np.ndarray
    workloads: tuple[SplitWorkload, ...]
    targets: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, programs: Programs, workloads: Sequence[Workload]) -> Rows:
        """The rows of `programs`, whose workloads are `workloads` in the order of `programs.workload_names`."""
        described = tuple(
            SplitWorkload(
                each.key, each.name, each.kind, dict(each.arguments), dict(each.networks), anchor_key(each.module)
            )
            for each in workloads
        )
        return cls(
            workload=np.asarray(programs.workload, dtype=np.int64),
            target=np.asarray(programs.target, dtype=np.int64),
            program_key=as_bytes(np.asarray(programs.program_key)),
            workloads=described,
            targets=tuple(json.loads(target) for target in programs.targets),
        )

    def __len__(self) -> int:
        return len(self.workload)

    @cached_property
    def shape_of_workload(self) -> Int64[np.ndarray, " workloads"]:
        """A number for each workload; those of one shape share it."""
        return shape_numbers([(each.key, each.kind, each.arguments, each.anchor) for each in self.workloads])

    @cached_property
    def shape(self) -> Int64[np.ndarray, " rows"]:
        """The shape of each row."""
        return self.shape_of_workload[self.workload]

    @cached_property
    def shape_member(self) -> dict[int, SplitWorkload]:
        """The workload that stands for each shape: of the smallest key, whatever the numbering."""
        members: dict[int, SplitWorkload] = {}
        for number, each in zip(self.shape_of_workload.tolist(), self.workloads, strict=True):
            if number not in members or each.key < members[number].key:
                members[number] = each
        return members

    @property
    def stratum(self) -> Int64[np.ndarray, " rows"]:
        """A number for each row's workload on its target."""
        return self.workload * len(self.targets) + self.target

    @cached_property
    def present(self) -> list[int]:
        """Numbers of the workloads that have rows."""
        numbers: list[int] = numbers_in(self.workload).tolist()
        return numbers

    def kinds(self) -> list[str]:
        """The operator kinds that have rows."""
        return sorted({self.workloads[number].kind for number in self.present})

    def networks(self) -> list[str]:
        """The networks that have rows."""
        return sorted({name for number in self.present for name in self.workloads[number].networks})

    def shown_targets(self) -> str:
        """The targets that have rows, for a message."""
        return "; ".join(json.dumps(self.targets[number]) for number in numbers_in(self.target))

    def of_workloads(self, numbers: Sequence[int]) -> np.ndarray:
        """Whether each row is of one of the workloads `numbers`."""
        return np.isin(self.workload, np.asarray(numbers, dtype=np.int64))


def numbers_in(column: Int64[np.ndarray, " rows"]) -> Int64[np.ndarray, " numbers"]:
    """The small numbers that a column has, ascending; without sorting it."""
    return np.flatnonzero(np.bincount(column)) if len(column) else np.zeros(0, dtype=np.int64)


def as_bytes(texts: np.ndarray) -> np.ndarray:
    """Texts in UTF-8, as numpy's bytes: a quarter of the size."""
    if texts.dtype.kind != "U":
        return texts
    try:
        return texts.astype(np.bytes_)  # ten times as fast as encoding
    except UnicodeEncodeError:
        return np.char.encode(texts, "utf-8")
