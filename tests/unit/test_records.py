import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.machine import Host
from kernelcast.records import (
    CAMPAIGN_FILE,
    MEASUREMENT_SCHEMA,
    MEASUREMENTS_FILE,
    MEASUREMENTS_VERSION,
    WORKLOADS_FILE,
    Campaign,
    Workload,
    measurement_table,
    read_measurements,
    write_campaign,
    write_measurements,
)

ROW = {
    "workload_key": "k", "workload_name": "one", "workload_kind": "matmul", "program_key": "p", "trace": "[[],[]]",
    "target": '{"kind": "llvm"}', "outcome": "measured", "message": "", "build_seconds": 0.5, "run_seconds": [1e-3],
    "round_index": [0], "reference_seconds": [1e-5], "ended_at": [1.0],
}  # fmt: skip


OPEN = (("host",), ("host", "memory_bytes"), ("host", "calibration"))
"""Fields that may be null: a machine that nobody knows, a device that does not tell, caches that nobody measured."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    host = Host("cpu", 4, 2**30, "Linux", 1e11, 1e10, vector_lanes=16, cache_bytes=2**20)
    campaign = Campaign(MEASUREMENTS_VERSION, {"kind": "llvm"}, host, {"apache-tvm": "0"}, {"rounds": 1}, 0)
    write_campaign(tmp_path, campaign, {"k": Workload("k", "one", "matmul", {"rows": 1}, "{}")})
    write_measurements(tmp_path, measurement_table([ROW]))
    return tmp_path


def every_field(value: Any) -> list[tuple[Any, ...]]:
    """Paths to the fields of the records, not into the dicts that are open: arguments, target, tvm, timing."""
    if isinstance(value, list):
        return [(0, *path) for path in every_field(value[0])]
    inner = [("host", name) for name in value.get("host", {})]
    return [(name,) for name in value] + inner


@pytest.mark.parametrize("name", [CAMPAIGN_FILE, WORKLOADS_FILE])
@pytest.mark.parametrize("value", [None, [], True, float("nan")])
def test_a_field_of_another_type_is_refused(folder: Path, name: str, value: Any) -> None:
    path = folder / name
    written = path.read_text()
    fields = every_field(json.loads(written))
    assert len(fields) >= 5
    for *parents, last in fields:
        if value is None and (*parents, last) in OPEN:
            continue
        changed = json.loads(written)
        node = changed
        for parent in parents:
            node = node[parent]
        node[last] = value
        path.write_text(json.dumps(changed))
        with pytest.raises(MalformedDataError, match=r"campaign\.json.*dvc repro measure"):
            read_measurements(folder)
    path.write_text(written)
    assert read_measurements(folder).table.num_rows == 1


def test_a_machine_may_be_unknown(folder: Path) -> None:
    path = folder / CAMPAIGN_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": None}))
    assert read_measurements(folder).campaign.host is None
    raw = json.loads(path.read_text())
    del raw["host"]
    path.write_text(json.dumps(raw))
    with pytest.raises(MalformedDataError, match="host"):
        read_measurements(folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"5", b"null", b"PAR1", b"\0" * 999])
@pytest.mark.parametrize("name", [CAMPAIGN_FILE, WORKLOADS_FILE, MEASUREMENTS_FILE])
def test_a_file_that_was_written_by_something_else_is_refused(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(MalformedDataError, match=rf"{name}.*dvc repro measure"):
        read_measurements(folder)


def test_a_flipped_byte_of_the_table_is_refused(folder: Path) -> None:
    path = folder / MEASUREMENTS_FILE
    content = path.read_bytes()
    # the pages come first, with a checksum each; the key of the workload is in one of them
    refused = 0
    for position in range(4, 200):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        try:
            rows = read_measurements(folder).table.to_pylist()
        except MalformedDataError:
            refused += 1
        else:  # a byte that says nothing, of statistics for example
            assert rows == measurement_table([ROW]).to_pylist(), position
    assert refused > 100
    path.write_bytes(content)
    assert read_measurements(folder).table.to_pylist() == measurement_table([ROW]).to_pylist()


def test_an_unfinished_folder_names_the_next_step(folder: Path) -> None:
    (folder / MEASUREMENTS_FILE).unlink()
    with pytest.raises(MissingInputError, match=r"measurements\.parquet.*dvc repro measure"):
        read_measurements(folder)


def version_1(folder: Path) -> list[dict[str, Any]]:
    """Turns `folder` into one that the first release wrote; returns its rows."""
    raw = json.loads((folder / CAMPAIGN_FILE).read_text()) | {"version": 1}
    (folder / CAMPAIGN_FILE).write_text(json.dumps(raw))
    workloads = json.loads((folder / WORKLOADS_FILE).read_text())
    for workload in workloads:
        del workload["networks"]
    (folder / WORKLOADS_FILE).write_text(json.dumps(workloads))
    times = {
        "run_seconds": [1e-3, 2e-3],
        "round_index": [0, 1],
        "reference_seconds": [1e-5, 1e-5],
        "ended_at": [1.0, 2.0],
    }
    failed = {"outcome": "crash", "message": "signal 11", "build_seconds": None, **{name: [] for name in times}}
    rows = [ROW | failed, ROW | {"program_key": "q"} | times, ROW | {"program_key": "r"}]
    schema = pa.schema([(name, MEASUREMENT_SCHEMA.field(name).type) for name in ROW])
    required = pa.schema([entry.with_nullable(entry.name == "build_seconds") for entry in schema])
    pq.write_table(pa.Table.from_pylist(rows, schema=required), folder / MEASUREMENTS_FILE)
    return rows


def test_a_folder_of_the_first_release_is_read_with_what_it_lacks(folder: Path) -> None:
    rows = version_1(folder)
    measurements = read_measurements(folder)
    assert measurements.campaign.version == 1
    assert measurements.workloads["k"].networks == {}
    assert measurements.table.schema.equals(MEASUREMENT_SCHEMA, check_metadata=True)
    measurements.table.validate(full=True)
    read = measurements.table.to_pylist()
    assert [{name: row[name] for name in ROW} for row in read] == rows
    assert [row["visit"] for row in read] == [[], [0, 0], [0]]
    assert [row["device"] for row in read] == ["", "local", "local"]
    for row in read:
        known = (row["origin"], row["checked"], row["cut_short"], row["spread"], row["finished_at"])
        assert known == ("random", False, False, None, None)


def test_a_folder_of_the_first_release_with_other_columns_is_refused(folder: Path) -> None:
    version_1(folder)
    path = folder / MEASUREMENTS_FILE
    pq.write_table(pq.read_table(path).drop_columns(["message"]), path)
    with pytest.raises(MalformedDataError, match="other columns than expected"):
        read_measurements(folder)


@pytest.mark.parametrize("target", [{}, {"kind": None}, {"mcpu": "znver4"}])
def test_a_target_without_a_kind_is_refused(folder: Path, target: Any) -> None:
    raw = json.loads((folder / CAMPAIGN_FILE).read_text()) | {"target": target}
    (folder / CAMPAIGN_FILE).write_text(json.dumps(raw))
    with pytest.raises(MalformedDataError, match="has no kind"):
        read_measurements(folder)


@pytest.mark.parametrize("version", [0, 3, "2", True, None])
def test_another_version_is_refused(folder: Path, version: Any) -> None:
    raw = json.loads((folder / CAMPAIGN_FILE).read_text()) | {"version": version}
    (folder / CAMPAIGN_FILE).write_text(json.dumps(raw))
    with pytest.raises(MalformedDataError, match=rf"has version {version}, this kernelcast reads 1 and 2"):
        read_measurements(folder)
