"""How building, opening, memory and batches grow with the number of programs.

Each size is a store of its own, of the same real programs as often as it takes, built and then read by fresh processes:
what one of them has had in memory says nothing about the next.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from graph_suite import GraphSuite

from kernelcast.graphs.dataset.store import read_programs

logger = logging.getLogger(__name__)

TENSET = 52_000_000
"""Measurements in TenSet (Zheng et al. 2021)."""

KINDS = ("matmul", "batch_matmul", "softmax", "layer_norm")
"""Workloads whose schedules TVM replays in a few milliseconds: replaying those of convolutions takes up to ten times as
long, and is TVM's time, not that of a store."""

PER_WORKLOAD = 64
BATCHES = 200
BATCH_PROGRAMS = 64


def scale_figures(suite: GraphSuite, sizes: Sequence[int]) -> dict[str, object]:
    """A row of figures for every size, and what they say of TenSet's."""
    drawn = [suite.draw(workload, PER_WORKLOAD) for workload in suite.workloads if workload.kind in KINDS]
    count = sum(len(one.candidates) for one in drawn)
    rows = []
    for size in sizes:
        copies = -(-size // count)
        measured, store = suite.directory / f"measured-{size}", suite.directory / f"store-{size}"
        suite.write(measured, drawn, copies)
        row: dict[str, float] = {"programs": copies * count}
        row |= _in_a_process("build", suite.directory, measured, store)
        row["store_bytes"] = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
        row |= _in_a_process("read", suite.directory, measured, store)
        rows.append(row)
        logger.info("%s", ", ".join(f"{name} {value:.4g}" for name, value in row.items()))
    last = rows[-1]
    seconds, stored = last["build_seconds"] / last["programs"], last["store_bytes"] / last["programs"]
    return {
        "scale": rows,
        "tenset_build_core_hours": seconds * TENSET / 3600,
        "tenset_store_terabytes": stored * TENSET / 1e12,
    }


def _in_a_process(what: str, directory: Path, measured: Path, store: Path) -> dict[str, float]:
    """Runs `main` of this file in a new process."""
    command = [sys.executable, __file__, what, str(directory), str(measured), str(store)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(answer.splitlines()[-1])
    return figures


def build(directory: Path, measured: Path, store: Path) -> dict[str, float]:
    """Builds a store in this process alone."""
    suite = GraphSuite(directory, quick=False)
    started = time.perf_counter()
    suite.build(measured, store)
    return {"build_seconds": time.perf_counter() - started, "build_peak_bytes": _peak_bytes()}


def read(directory: Path, measured: Path, store: Path) -> dict[str, float]:
    """Opens a store and makes batches of random programs of it."""
    from kernelcast.models.view_batches import graph_batch

    before = _anonymous_bytes()
    opened = []
    for _ in range(11):
        started = time.perf_counter()
        programs = read_programs(store)
        opened.append(time.perf_counter() - started)
    random = np.random.default_rng(0)
    chosen = random.integers(0, len(programs), (BATCHES, BATCH_PROGRAMS))
    for rows in chosen[: BATCHES // 4]:
        graph_batch(programs.view("ast", rows))
    started = time.perf_counter()
    for rows in chosen:
        graph_batch(programs.view("ast", rows))
    seconds = time.perf_counter() - started
    return {
        "open_seconds": median(opened),
        "read_bytes": _anonymous_bytes() - before,
        "batches_per_second": BATCHES / seconds,
    }


def _peak_bytes() -> float:
    """The most memory that this process has had; `getrusage` would begin with that of whoever started it."""
    return _status_bytes("VmHWM")


def _anonymous_bytes() -> float:
    """Memory of this process that is no page of a file, which the system may drop at any time."""
    return _status_bytes("RssAnon")


def _status_bytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(name))) * 1024.0


def main() -> None:
    """Does one step and prints its figures."""
    what, *paths = sys.argv[1:]
    steps: dict[str, Any] = {"build": build, "read": read}
    print(json.dumps(steps[what](*map(Path, paths))))


if __name__ == "__main__":
    main()
