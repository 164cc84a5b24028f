"""Measurements as CSV: one row a program, one column a plain value."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from kernelcast.exchange.times import Times, usable_repeats
from kernelcast.records import Measurements

COLUMNS = (
    "workload_name",
    "workload_kind",
    "workload_key",
    "program_key",
    "target",
    "origin",
    "outcome",
    "message",
    "minimum_seconds",
    "median_seconds",
    "repeats",
    "spread",
    "build_seconds",
    "device",
    "checked",
    "cut_short",
)
"""Times and `repeats` are those of the first visit, as in every label."""


def write_csv(measurements: Measurements, path: Path) -> int:
    """Writes UTF-8 with a heading and the line ends and quotes of RFC 4180; what is unknown is empty.

    Returns:
        How many programs were written.
    """
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for row in measurements.table.to_pylist():
            writer.writerow({name: _text(value) for name, value in _flat(row).items()})
    return measurements.table.num_rows


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    repeats = usable_repeats(row)
    made = {
        "message": next(iter(row["message"].splitlines()), ""),
        "minimum_seconds": Times.minimum.label(repeats) if repeats else None,
        "median_seconds": Times.median.label(repeats) if repeats else None,
        "repeats": len(repeats),
    }
    return {name: made[name] if name in made else row[name] for name in COLUMNS}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value
