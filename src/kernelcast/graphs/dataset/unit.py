"""A unit of building: some traces turned into views by one process, on this machine or another one.

A unit brings all that it needs and gives arrays back, so where it runs is a choice (`builders`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.extraction import extract
from kernelcast.graphs.machine_code.rows import machine_code_rows
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.per_store import per_store_rows
from kernelcast.graphs.ragged import View
from kernelcast.graphs.trace import trace_view
from kernelcast.graphs.views import MACHINE_CODE, MODULE_VIEWS
from kernelcast.records import Workload
from kernelcast.tvm_compat import prepare_for, runnable_module, scheduled_module, structural_key, tvm_versions


@dataclass(frozen=True)
class Unit:
    """Programs of one target, in the order of their rows.

    Attributes:
        workloads: those of its programs, by key.
        workload_keys: workload of each program.
        program_keys: structural hash of each program as it was measured.
        traces: schedule trace of each.
        target: what they were measured on.
        cache_bytes: cache of one core of the machine that measured.
        options: which views are built, and how.
    """

    workloads: dict[str, Workload]
    workload_keys: tuple[str, ...]
    program_keys: tuple[str, ...]
    traces: tuple[str, ...]
    target: dict[str, Any]
    cache_bytes: int
    options: ViewOptions

    def __len__(self) -> int:
        return len(self.traces)


@dataclass(frozen=True)
class Built:
    """What came of a unit.

    Attributes:
        views: the views of the programs that could be built, by name.
        kept: which of the unit's programs these are, ascending. Left out are programs whose trace makes another program
            today than the one that was measured.
    """

    views: dict[str, View]
    kept: Int64[np.ndarray, " programs"]


def build_unit(unit: Unit) -> Built:
    """Builds the views of a unit.

    Raises:
        MalformedDataError: a module or a trace cannot be read.
    """
    wanted = unit.options.views
    kept = np.arange(len(unit), dtype=np.int64)
    views: dict[str, View] = {}
    if MODULE_VIEWS & set(wanted):
        prepare_for(unit.target)
        scheduled = [_scheduled(unit, number) for number in range(len(unit))]
        kept = np.flatnonzero([module is not None for module in scheduled]).astype(np.int64)
        modules = [module for module in scheduled if module is not None]
        if modules:
            views |= extract((runnable_module(module) for module in modules), unit.options, unit.cache_bytes)
            if "per_store" in wanted:
                views["per_store"] = per_store_rows(modules, unit.target)
            if MACHINE_CODE in wanted:
                views[MACHINE_CODE] = machine_code_rows(map(runnable_module, modules), unit.target)
    if "trace" in wanted and len(kept):
        views["trace"] = trace_view([unit.traces[number] for number in kept])
    return Built({name: views[name] for name in wanted if name in views}, kept)


def _scheduled(unit: Unit, number: int) -> Any:
    """The program that a trace makes, None where that is not the one that was measured."""
    try:
        module = scheduled_module(unit.workloads[unit.workload_keys[number]], unit.traces[number])
    except MalformedDataError:
        return None
    return module if structural_key(module) == unit.program_keys[number] else None


def code_hash() -> str:
    """A hash of the code that makes views and of TVM's version: other code never goes on with old shards."""
    digest = hashlib.sha256(repr(sorted(tvm_versions().items())).encode())
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def unit_hash(code: str, units: Iterable[Unit]) -> str:
    """A hash of everything that decides what the views of these units are.

    Args:
        code: of `code_hash`.
        units: those of one shard.
    """
    digest = hashlib.sha256(code.encode())
    for unit in units:
        digest.update(repr((unit.options, unit.cache_bytes, sorted(unit.target.items()))).encode())
        for row in zip(unit.workload_keys, unit.program_keys, unit.traces, strict=True):
            digest.update("\0".join(row).encode())
    return digest.hexdigest()[:16]
