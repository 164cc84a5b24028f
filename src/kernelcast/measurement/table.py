"""From the journal's tries to the table that the other stages read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kernelcast.measurement.journal import Try
from kernelcast.records import Origin, Workload, measurement_table


def table_of_tries(workloads: Sequence[Workload], target: dict[str, Any], tries: Sequence[Try]) -> pa.Table:
    """One row a try, columns of `MEASUREMENT_SCHEMA`, repeats in the order of their rounds."""
    by_key = {workload.key: workload for workload in workloads}
    target_text = json.dumps(target, sort_keys=True)
    rows = [_row(by_key[entry.candidate.workload_key], target_text, entry) for entry in tries]
    return measurement_table(rows)


def _row(workload: Workload, target: str, entry: Try) -> dict[str, Any]:
    assert entry.outcome is not None, "only finished tries become rows"
    repeats = [entry.repeats[index] for index in sorted(entry.repeats)]
    return {
        "workload_key": workload.key,
        "workload_name": workload.name,
        "workload_kind": workload.kind,
        "program_key": entry.candidate.program_key,
        "trace": entry.candidate.trace,
        "target": target,
        "origin": Origin.RANDOM.value,
        "outcome": entry.outcome.value,
        "message": entry.message,
        "build_seconds": entry.build_seconds,
        "device": "local",
        "checked": False,
        "cut_short": False,
        "spread": None,
        "finished_at": None,
        "run_seconds": [repeat.run_seconds for repeat in repeats],
        "visit": [0 for _ in repeats],
        "round_index": [repeat.round_index for repeat in repeats],
        "reference_seconds": [repeat.reference_seconds for repeat in repeats],
        "ended_at": [repeat.ended_at for repeat in repeats],
    }
