"""Which programs go into which shard and unit; traces stay in their tables until a builder takes a unit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Int64

from kernelcast.graphs.dataset.selection import ChosenRows
from kernelcast.graphs.dataset.store import StoredWorkload
from kernelcast.graphs.dataset.unit import Unit
from kernelcast.graphs.options import ViewOptions
from kernelcast.records import Workload

UNIT_PROGRAMS = 64
"""Programs that one worker turns into arrays at a time."""

ASSUMED_CACHE_BYTES = 512 * 1024
"""Taken for the features where the machine is unknown: what a core of most processors has at least for itself."""


class Plan:
    """All chosen rows in shards of equal size, each in units of programs of one folder.

    Args:
        parts: the rows of every folder.
        options: which views are built.
        shard_programs: programs of a shard.
    """

    def __init__(self, parts: Sequence[ChosenRows], options: ViewOptions, shard_programs: int) -> None:
        self._parts = parts
        self.options = options
        self._part = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
        self._first = np.concatenate([[0], np.cumsum([len(part.rows) for part in parts])])
        self.shards = [
            self._ranges(start, min(start + shard_programs, len(self))) for start in range(0, len(self), shard_programs)
        ]

    def __len__(self) -> int:
        return len(self._part)

    def _ranges(self, start: int, end: int) -> list[range]:
        folders = np.flatnonzero(np.diff(self._part[start:end])) + 1 + start
        cuts = sorted({*range(start, end, UNIT_PROGRAMS), *folders.tolist(), end})
        return [range(begin, stop) for begin, stop in pairwise(cuts)]

    def unit(self, span: range) -> Unit:
        """The unit of the rows of `span`, which are of one folder."""
        part = self._parts[self._part[span.start]]
        first = self._first[self._part[span.start]]
        inside = slice(span.start - first, span.stop - first)
        campaign, workloads = part.folder.measurements.campaign, part.folder.measurements.workloads
        machine = part.folder.stored_target.machine
        keys = part.workload_key[inside].tolist()
        return Unit(
            workloads={key: workloads[key] for key in dict.fromkeys(keys)},
            workload_keys=tuple(keys),
            program_keys=tuple(part.program_key[inside].tolist()),
            traces=tuple(part.folder.traces_of(part.rows[inside])),
            target=campaign.target,
            cache_bytes=ASSUMED_CACHE_BYTES if machine is None else machine.cache_bytes,
            options=self.options,
        )

    def columns(
        self, kept: Int64[np.ndarray, " programs"], target_names: Sequence[str]
    ) -> tuple[dict[str, np.ndarray], tuple[StoredWorkload, ...]]:
        """The columns of the store for the rows that were built, and the workloads that they belong to.

        A workload on two targets counts as two: only programs of one target are compared with each other.
        """
        keys = np.concatenate([part.workload_key for part in self._parts])[kept]
        target = np.array([part.target for part in self._parts], dtype=np.int16)[self._part[kept]]
        used = set(zip(target.tolist(), keys.tolist(), strict=True))
        known: dict[tuple[int, str], Workload] = {}
        for part in self._parts:
            for key, workload in part.folder.measurements.workloads.items():
                if (part.target, key) in used:
                    known.setdefault((part.target, key), workload)
        position = {group: index for index, group in enumerate(known)}
        arrays = {
            "log_seconds": np.concatenate([part.log_seconds for part in self._parts])[kept],
            "workload": np.array(
                [position[group] for group in zip(target.tolist(), keys.tolist(), strict=True)], dtype=np.int32
            ),
            "target": target,
            "program_key": np.concatenate([part.program_key for part in self._parts])[kept].astype("<U16"),
        }
        return arrays, _stored_workloads(known, target_names)

    def flags(self, kept: Int64[np.ndarray, " programs"]) -> dict[str, int]:
        """How many of the rows that were built are flagged, and uncorrected."""
        return {
            name: int(np.concatenate([getattr(part, name) for part in self._parts])[kept].sum())
            for name in ("flagged", "uncorrected")
        }


class PlannedUnits(Sequence[Unit]):
    """Units by their spans, each made when a builder takes it."""

    def __init__(self, plan: Plan, spans: Sequence[range]) -> None:
        self._plan, self._spans = plan, spans

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, number: Any) -> Any:
        return self._plan.unit(self._spans[number])


def _stored_workloads(
    known: dict[tuple[int, str], Workload], target_names: Sequence[str]
) -> tuple[StoredWorkload, ...]:
    """Workloads with names that tell them apart: folders may call two shapes the same."""
    keys_of_name: dict[str, set[str]] = {}
    for (_, key), workload in known.items():
        keys_of_name.setdefault(workload.name, set()).add(key)
    return tuple(
        StoredWorkload(
            key=key,
            name=" ".join(
                [
                    workload.name if len(keys_of_name[workload.name]) == 1 else f"{workload.name}_{key[:6]}",
                    *([f"on {target_names[target]}"] if len(target_names) > 1 else []),
                ]
            ),
            kind=workload.kind,
            arguments=workload.arguments,
            networks=workload.networks,
        )
        for (target, key), workload in known.items()
    )
