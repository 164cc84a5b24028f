"""From the journal's tries to the table that the other stages read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kernelcast.measurement.journal import Try
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Workload, measurement_table


def table_of_tries(workloads: Sequence[Workload], target: dict[str, Any], tries: Sequence[Try]) -> pa.Table:
    """One row a try, columns of `MEASUREMENT_SCHEMA`, repeats in the order of visits and rounds."""
    by_key = {workload.key: workload for workload in workloads}
    target_text = json.dumps(target, sort_keys=True)
    return measurement_table(_row(by_key[entry.workload_key], target_text, entry) for entry in tries)


def spread(repeats: Sequence[TimedRepeat]) -> float | None:
    """Interquartile range over median of the seconds of a program; None for fewer than two repeats."""
    if len(repeats) < 2:
        return None
    low, middle, high = np.quantile([repeat.run_seconds for repeat in repeats], [0.25, 0.5, 0.75])
    return float((high - low) / middle) if middle > 0 else None


def _row(workload: Workload, target: str, entry: Try) -> dict[str, Any]:
    assert entry.ending is not None, "only finished tries become rows"
    repeats = sorted(entry.repeats, key=lambda repeat: (repeat.visit, repeat.round_index))
    return {
        "workload_key": workload.key,
        "workload_name": workload.name,
        "workload_kind": workload.kind,
        "program_key": entry.program_key,
        "trace": entry.candidate.trace,
        "target": target,
        "origin": entry.origin.value,
        "outcome": entry.ending.outcome.value,
        "message": entry.ending.message,
        "build_seconds": entry.build_seconds,
        "device": entry.ending.device,
        "checked": entry.ending.checked,
        "cut_short": entry.ending.cut_short,
        "spread": spread([repeat for repeat in repeats if repeat.visit == 0]),
        "finished_at": entry.ending.ended_at,
        "run_seconds": [repeat.run_seconds for repeat in repeats],
        "visit": [repeat.visit for repeat in repeats],
        "round_index": [repeat.round_index for repeat in repeats],
        "calls": [repeat.calls for repeat in repeats],
        "reference_seconds": [repeat.reference_seconds for repeat in repeats],
        "ended_at": [repeat.ended_at for repeat in repeats],
    }
