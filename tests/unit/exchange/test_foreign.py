"""Databases of other TVM versions: the traces come in, the modules stay closed."""

import base64
import copy
import gzip
import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.exchange.csv_table import write_csv
from kernelcast.exchange.foreign import kind_of, module_writer, packed_module, trace_key, unpacked_module
from kernelcast.exchange.importing import Imported, import_database
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, write_database
from kernelcast.exchange.t4 import write_t4
from kernelcast.exchange.times import Times
from kernelcast.records import Measurements, Workload, read_measurements, write_campaign, write_measurements

EXCERPT = Path(__file__).parent / "resnet34_a100"
WHOLE = Path(__file__).parents[2] / "databases" / "resnet34_a100"
LINE = "were written by TVM 0.16.dev0, which TVM 0.27.0.post1 cannot load"
Read = Callable[..., Imported]


def lines_of(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress((folder / f"{name}.gz").read_bytes()).splitlines()]


def write_lines(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def rows_of(measurements: Measurements) -> pa.Table:
    """What a database can say: no reference times, and not the lines that messages name."""
    return measurements.table.drop_columns(["reference_seconds", "ended_at", "message"])


@pytest.fixture
def excerpt(tmp_path: Path) -> tuple[Path, list[Any]]:
    """A folder with the excerpt's workloads, and the records that go into it."""
    folder = tmp_path / "excerpt"
    folder.mkdir()
    write_lines(folder / DATABASE_WORKLOADS, lines_of(EXCERPT, DATABASE_WORKLOADS))
    return folder, lines_of(EXCERPT, DATABASE_RECORDS)


def test_a_whole_database_of_another_tvm_comes_in(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def no_replay(done: int, total: int) -> None:
        raise AssertionError("traces of another TVM are not applied")

    with caplog.at_level(logging.WARNING):
        imported = import_database(WHOLE, {}, lambda _: None, no_replay)
    found = imported.measurements
    assert (imported.records, imported.records - imported.failed, imported.failed) == (20_089, 15_450, 4_639)
    assert (imported.copies, imported.set_aside) == (0, 0)
    assert len(found.workloads) == 20
    assert not any(workload.loadable for workload in found.workloads.values())
    assert [record.message for record in caplog.records] == [
        f"20 of 20 workloads {LINE}: their 19337 programs have only the view `trace`"
    ]
    # a program that was measured several times is one row with a visit each time
    assert Counter(found.table["outcome"].to_pylist()) == {"measured": 14_956, "run_error": 4_381}
    assert sum(max(visits) + 1 for visits in found.measured["visit"].to_pylist()) == 15_450
    assert sum(map(len, found.measured["run_seconds"].to_pylist())) == 3 * 15_450
    assert all(0 < seconds < 1 for times in found.measured["run_seconds"].to_pylist() for seconds in times)
    failed = [row for row in found.table.slice(0, 300).to_pylist() if row["outcome"] == "run_error"]
    assert failed
    assert all("a run time of 1e+10 s, the mark of a failure" in row["message"] for row in failed)
    keys = list(zip(found.table["workload_key"].to_pylist(), found.table["program_key"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 16 for _, key in keys)
    kinds = Counter(workload.kind for workload in found.workloads.values())
    assert kinds == {
        "conv2d_nchw": 7, "conv2d_winograd": 8, "pool_max": 1, "adaptive_pool_sum": 1, "tensor": 1, "T_matmul_NT": 1,
        "T_softmax_maxelem": 1,
    }  # fmt: skip
    assert found.campaign.target["arch"] == "sm_80"
    assert (found.campaign.tvm, found.campaign.host) == ({"apache-tvm": "0.16.dev0"}, None)
    write_campaign(tmp_path, found.campaign, found.workloads)
    write_measurements(tmp_path, found.table)
    again = read_measurements(tmp_path)
    assert again.workloads == found.workloads
    assert rows_of(again).equals(rows_of(found))


def test_what_the_records_say_of_the_arguments_is_kept(read: Read) -> None:
    workloads = read(EXCERPT).measurements.workloads
    assert workloads["4b6a01847c0798be"].arguments == {
        "arg_info": [["TENSOR", "float32", [1, 512, 1, 1]], ["TENSOR", "float32", [1, 512]]]
    }


def test_equal_traces_of_a_workload_are_one_program(excerpt: tuple[Path, list[Any]], read: Read) -> None:
    folder, records = excerpt
    before = read(EXCERPT).measurements.table
    again, other, moved = (copy.deepcopy(records[2]) for _ in range(3))
    again[1][1] = [3e-5]
    # with one other decision it is another program; so is the same trace of another workload
    decision = next(one for one in other[1][0][1] if isinstance(one[1], list))
    decision[1][0] += 1
    moved[0] = 0
    write_lines(folder / DATABASE_RECORDS, [*records, again, copy.deepcopy(again), other, moved])
    imported = read(folder)
    table = imported.measurements.table
    assert (imported.records, imported.failed, imported.copies) == (10, 2, 1)
    assert table.num_rows == before.num_rows + 2
    row = table.to_pylist()[2]
    assert row["program_key"] == before.to_pylist()[2]["program_key"]
    assert (row["run_seconds"], row["visit"]) == ([*records[2][1][1], 3e-5], [0, 0, 0, 1])


def test_a_database_may_hold_workloads_of_both_kinds(
    database: Path, excerpt: tuple[Path, list[Any]], read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    _, foreign = excerpt
    before = read(database).measurements
    with (database / DATABASE_WORKLOADS).open("a") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in lines_of(EXCERPT, DATABASE_WORKLOADS))
    own = [json.loads(line) for line in (database / DATABASE_RECORDS).read_text().splitlines()]
    moved = [[number + 3, parts] for number, parts in foreign]
    # times of two targets never mix
    write_lines(database / DATABASE_RECORDS, [*moved, *own])
    with pytest.raises(ConfigError, match="several targets"):
        read(database)
    assert rows_of(read(database, kind="llvm").measurements).equals(rows_of(before))
    assert read(database, kind="cuda").measurements.table.num_rows == 6

    for record in moved:
        record[1][2] = own[0][1][2]
    write_lines(database / DATABASE_RECORDS, [*moved, *own])
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found = read(database).measurements
    assert found.table.num_rows == before.table.num_rows + 6
    assert rows_of(found).slice(6).equals(rows_of(before))
    assert [workload.loadable for workload in found.workloads.values()] == [True] * 3 + [False] * 2
    assert f"2 of 5 workloads {LINE}: their 6 programs have only the view `trace`" in caplog.text
    assert found.campaign.tvm == {"apache-tvm": "0.16.dev0, 0.27.0.post1"}


def test_a_trace_of_another_tvm_that_is_none_is_set_aside(
    excerpt: tuple[Path, list[Any]], read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    folder, records = excerpt
    records[1][1][0][0][2] = ["Parallel", ["l0"], []]
    write_lines(folder / DATABASE_RECORDS, records)
    with caplog.at_level(logging.WARNING):
        imported = read(folder)
    assert (imported.records, imported.set_aside) == (5, 1)
    assert (
        f"{folder / DATABASE_RECORDS}:2: set aside 1 line: not a tuning record (the trace: instruction 2" in caplog.text
    )


def test_it_goes_out_again_as_it_came(read: Read, tmp_path: Path) -> None:
    measurements = read(EXCERPT).measurements
    write_database(measurements, tmp_path, Times.all)
    written = [json.loads(line) for line in (tmp_path / DATABASE_WORKLOADS).read_text().splitlines()]
    assert written == lines_of(EXCERPT, DATABASE_WORKLOADS)
    records = [json.loads(line) for line in (tmp_path / DATABASE_RECORDS).read_text().splitlines()]
    assert records == lines_of(EXCERPT, DATABASE_RECORDS)
    again = read(tmp_path).measurements
    assert again.workloads == measurements.workloads
    assert rows_of(again).equals(rows_of(measurements))


def test_the_other_formats_take_it_too(read: Read, tmp_path: Path) -> None:
    measurements = read(EXCERPT).measurements
    assert write_csv(measurements, tmp_path / "table.csv") == 6
    assert sum(write_t4(measurements, tmp_path, Times.all).values()) == 6


def test_a_name_beside_the_database_is_taken(excerpt: tuple[Path, list[Any]], read: Read) -> None:
    folder, records = excerpt
    write_lines(folder / DATABASE_RECORDS, records)
    (folder / "kernelcast_workloads.json").write_text(
        json.dumps([{"key": "4b6a01847c0798be", "name": "flatten", "kind": "reshape", "networks": {"resnet34": 1}}])
    )
    workload = read(folder).measurements.workloads["4b6a01847c0798be"]
    assert (workload.name, workload.kind, workload.networks) == ("flatten", "reshape", {"resnet34": 1})


def module(*blocks: tuple[str, bool]) -> str:
    """The blocks of a module as TVM has written them since 0.21."""
    nodes: list[Any] = [{"type": "None"}]
    for name, reduces in blocks:
        nodes.append({"type": "ffi.String", "data": name})
        nodes.append({"type": "tirx.SBlock", "data": {"name_hint": len(nodes) - 1, "init": 1 if reduces else 0}})
    return json.dumps({"nodes": nodes, "metadata": {"tvm_version": "0.25.0"}})


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [
        ([("root", False), ("pad", False), ("conv2d_nhwc", True), ("T_add", False)], "conv2d_nhwc"),
        ([("data_pack", True), ("bgemm", True), ("conv2d_winograd", False), ("T_relu", False)], "conv2d_winograd"),
        ([("T_add", False), ("T_sum", True), ("T_relu", False)], "T_sum"),
        ([("root", False), ("T_add", False), ("T_relu", False)], "T_relu"),
        ([("root", False)], "program"),
        ([], "program"),
    ],
)
def test_the_blocks_of_a_module_say_what_it_computes(blocks: list[tuple[str, bool]], kind: str) -> None:
    assert kind_of(module(*blocks)) == kind
    assert module_writer(module(*blocks)) == "0.25.0"


JSON = st.recursive(
    st.none() | st.integers(-2, 2) | st.sampled_from(["tir.Block", "0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["nodes", "type_key", "attrs", "name_hint", "init"]), inner, max_size=4)
    ),
)


@given(JSON | st.builds(lambda nodes: {"nodes": nodes}, st.lists(JSON, max_size=4)))
def test_of_a_module_that_cannot_be_read_there_is_still_a_name(raw: Any) -> None:
    assert kind_of(json.dumps(raw))
    assert isinstance(module_writer(json.dumps(raw)), str)


@given(st.text(max_size=40))
def test_a_module_is_packed_and_unpacked(text: str) -> None:
    assume_encodable = text.encode("utf-8", "ignore").decode()
    packed = packed_module(assume_encodable)
    assert unpacked_module(packed) == assume_encodable
    torn = base64.b64encode(base64.b64decode(packed) + b"x").decode()
    with pytest.raises(ValueError, match="another length"):
        unpacked_module(torn)


def test_keys_of_traces_are_the_same_in_every_process() -> None:
    assert trace_key("0" * 16, "[[],[]]") == "f9b49c588b994cb0"
    assert len({trace_key(*one) for one in [("a", "[]"), ("b", "[]"), ("a", "[1]"), ("a[", "]")]}) == 4


def test_a_workload_is_loadable_unless_another_tvm_wrote_it() -> None:
    assert Workload("0" * 16, "one", "conv2d", {}, "{}").loadable
    assert not Workload("0" * 16, "one", "conv2d", {}, "{}", written_by="0.16").loadable
