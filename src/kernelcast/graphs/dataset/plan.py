"""Which programs go into which shard and unit; traces stay in their tables until a builder takes a unit."""

from __future__ import annotations

from collections import Counter
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
        self._options = options
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
            options=self._options,
        )

    def program_keys(self, rows: Int64[np.ndarray, " rows"]) -> np.ndarray:
        """Structural hash of the programs of some rows."""
        return np.concatenate([part.program_key for part in self._parts])[rows].astype("<U16")

    def columns(self, kept: Int64[np.ndarray, " programs"]) -> tuple[dict[str, np.ndarray], tuple[StoredWorkload, ...]]:
        """The columns of the store for the rows that were built, and the workloads that they belong to."""
        keys = np.concatenate([part.workload_key for part in self._parts])[kept]
        used = set(np.unique(keys).tolist())
        known: dict[str, Workload] = {}
        for part in self._parts:
            for key, workload in part.folder.measurements.workloads.items():
                if key in used:
                    known.setdefault(key, workload)
        position = {key: index for index, key in enumerate(known)}
        arrays = {
            "log_seconds": np.concatenate([part.log_seconds for part in self._parts])[kept],
            "workload": np.array([position[key] for key in keys.tolist()], dtype=np.int32),
            "target": np.array([part.target for part in self._parts], dtype=np.int16)[self._part[kept]],
            "program_key": self.program_keys(kept),
        }
        return arrays, _stored_workloads(known)

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


def _stored_workloads(known: dict[str, Workload]) -> tuple[StoredWorkload, ...]:
    """Workloads with names that tell them apart: folders may call two shapes the same."""
    counts = Counter(workload.name for workload in known.values())
    return tuple(
        StoredWorkload(
            key=key,
            name=workload.name if counts[workload.name] == 1 else f"{workload.name}_{key[:6]}",
            kind=workload.kind,
            arguments=workload.arguments,
            networks=workload.networks,
        )
        for key, workload in known.items()
    )
