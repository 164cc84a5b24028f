"""A search's candidates as programs that a model can look at: views made in this process, straight from the schedules.

No trace is written, replayed or sent anywhere: the scheduled modules are there already. More processes do not help,
since sending a module costs more than reading it, and threads would take turns.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.extraction import EXTRACTED, extract
from kernelcast.graphs.machine_code.rows import machine_code_rows
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.per_store import per_store_rows
from kernelcast.graphs.ragged import View
from kernelcast.graphs.trace import trace_view
from kernelcast.graphs.views import MACHINE_CODE, VIEW_TYPES
from kernelcast.measurement.sampling import trace_json
from kernelcast.tvm_compat import runnable_module

logger = logging.getLogger(__name__)

PIECE = 256
"""Candidates that are read together; of these, one that cannot be read costs the others a second time."""


@dataclass(frozen=True)
class Reading:
    """How candidates are read.

    Attributes:
        views: names of those that are wanted; may be none.
        options: how they are built.
        cache_bytes: the cache of one core of the machine that measures.
        target: what the candidates are for.
    """

    views: tuple[str, ...]
    options: ViewOptions
    cache_bytes: int
    target: Mapping[str, Any]


@dataclass(frozen=True)
class Read:
    """What came of candidates.

    Attributes:
        views: of those that could be read, by name.
        kept: which of the candidates these are, ascending.
        faults: why the others could not be read, in their order.
    """

    views: dict[str, View]
    kept: Int64[np.ndarray, " kept"]
    faults: tuple[str, ...]


def read_candidates(schedules: Sequence[Any], reading: Reading) -> Read:
    """The views of scheduled programs, the same that the stage `graphs` makes of their traces.

    Args:
        schedules: TVM's, each with its trace.
        reading: how.

    Raises:
        ConfigError: TVM refuses the target.
    """
    parts: list[dict[str, View]] = []
    kept: list[int] = []
    faults: list[str] = []
    for start in range(0, len(schedules), PIECE):
        rows = range(start, min(start + PIECE, len(schedules)))
        try:
            parts.append(_views([schedules[row] for row in rows], reading))
            kept += rows
            continue
        except ConfigError:
            raise
        except Exception as error:
            # whatever TVM's passes and our walk throw: one of them is at fault, see below
            logger.debug("candidates are read one by one: %s", error)
        for row in rows:
            try:
                parts.append(_views([schedules[row]], reading))
                kept.append(row)
            except Exception as error:
                # a search of thousands must not end by one of them
                faults.append((str(error).strip().splitlines() or [type(error).__name__])[0])
    names = parts[0] if parts else ()
    joined = {name: VIEW_TYPES[name].concatenate([part[name] for part in parts]) for name in names}
    return Read(joined, np.array(kept, dtype=np.int64), tuple(faults))


def _views(schedules: Sequence[Any], reading: Reading) -> dict[str, View]:
    wanted = reading.views
    views: dict[str, View] = {}
    extracted = tuple(name for name in EXTRACTED if name in wanted)
    if extracted:
        modules = (runnable_module(schedule.mod) for schedule in schedules)
        views |= extract(modules, replace(reading.options, views=extracted), reading.cache_bytes)
    if "per_store" in wanted:
        views["per_store"] = per_store_rows(schedules, reading.target)
    if MACHINE_CODE in wanted:
        views[MACHINE_CODE] = machine_code_rows(
            (runnable_module(schedule.mod) for schedule in schedules), dict(reading.target)
        )
    if "trace" in wanted:
        views["trace"] = trace_view([trace_json(schedule) for schedule in schedules])
    return views


def require_columns(views: Mapping[str, View], expected: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Makes sure that views have the columns that a model was trained on.

    Raises:
        MalformedDataError: one has others.
    """
    for name, view in views.items():
        columns = {field: tuple(names) for field, names in expected.get(name, {}).items()}
        if view.columns() != columns:
            raise MalformedDataError(
                f"the view `{name}` of a candidate has other columns than the model was trained on; run `dvc repro "
                "graphs` and train it again with `dvc repro train`"
            )
