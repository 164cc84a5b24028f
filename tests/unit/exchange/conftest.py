"""Rows as `measure` leaves them, of real programs, and the database that they make."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelcast.exchange.importing import Imported, import_database
from kernelcast.exchange.metaschedule import write_database
from kernelcast.exchange.times import Times
from kernelcast.machine import Host
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Measurements, Workload, measurement_table
from kernelcast.tvm_compat import resolve_target, tvm_versions

HOST = Host("a processor", 4, 2**30, "Linux 6", 1e11, 1e10, vector_lanes=16, cache_bytes=2**20)
FAILURES = {
    1: ("crash", "signal 11\nmore of it"),
    2: ("build_timeout", "60 s"),
    5: ("wrong_result", 'off by "2", at 3'),
}


@pytest.fixture(scope="session")
def target() -> dict[str, Any]:
    return resolve_target({"kind": "llvm", "num-cores": 2})


@pytest.fixture(scope="session")
def suite() -> list[Workload]:
    return [
        workloads.matmul("a small matmul", rows=16, columns=16, depth=16),
        workloads.softmax("softmax", rows=16, columns=16),
        workloads.conv2d("conv2d", height=8, width=8, channels=4, filters=4, kernel=3, padding=1),
    ]


@pytest.fixture(scope="session")
def candidates(suite: list[Workload], target: dict[str, Any]) -> list[tuple[Workload, Candidate]]:
    return [(workload, one) for workload in suite for one in sample_candidates(workload, target, count=4, seed=3)]


MakeRow = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def make_row(candidates: list[tuple[Workload, Candidate]], target: dict[str, Any]) -> MakeRow:
    """The row of one of the programs, by its number."""

    def row(number: int, **columns: Any) -> dict[str, Any]:
        workload, candidate = candidates[number]
        return {
            "workload_key": workload.key,
            "workload_name": workload.name,
            "workload_kind": workload.kind,
            "program_key": candidate.program_key,
            "trace": candidate.trace,
            "target": json.dumps(target),
            "build_seconds": 0.25,
            "device": "local",
            **columns,
        }

    return row


@pytest.fixture(scope="session")
def collect(suite: list[Workload], target: dict[str, Any]) -> Callable[[list[dict[str, Any]]], Measurements]:
    """A finished folder's content from its rows."""

    def measurements(rows: list[dict[str, Any]]) -> Measurements:
        campaign = Campaign(MEASUREMENTS_VERSION, target, HOST, tvm_versions(), {"rounds": 3}, 0)
        return Measurements(campaign, {workload.key: workload for workload in suite}, measurement_table(rows))

    return measurements


@pytest.fixture(scope="session")
def measurements(
    candidates: list[tuple[Workload, Candidate]], make_row: MakeRow, collect: Callable[..., Measurements]
) -> Measurements:
    """Measured and failed programs; the measured ones with a later visit, which must not count."""
    rows = []
    for number in range(len(candidates)):
        if number in FAILURES:
            outcome, message = FAILURES[number]
            rows.append(make_row(number, outcome=outcome, message=message))
            continue
        seconds = [1e-5 * (number + 2), 3e-5 * (number + 2), 1.5e-5 * (number + 2)]
        rows.append(
            make_row(
                number,
                outcome="measured",
                run_seconds=[*seconds, 1e-9],
                visit=[0, 0, 0, 1],
                round_index=[0, 1, 2, 0],
                reference_seconds=[1e-4] * 4,
                ended_at=[1.7e9, 1.7e9 + 1, 1.7e9 + 2, 1.7e9 + 99],
                spread=0.5,
                checked=True,
            )
        )
    return collect(rows)


@pytest.fixture
def database(measurements: Measurements, tmp_path: Path) -> Path:
    """A folder with the measurements as a database."""
    folder = tmp_path / "database"
    folder.mkdir()
    write_database(measurements, folder, Times.all)
    return folder


@pytest.fixture
def read() -> Callable[..., Imported]:
    """Imports a folder, from a machine that nobody knows."""

    def imported(folder: Path, **target: Any) -> Imported:
        return import_database(folder, target, lambda _: None, lambda done, total: None)

    return imported
