import base64
import dataclasses
import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.exchange.database import database_file, read_records, read_workloads
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, NAMES_FILE
from kernelcast.exchange.set_aside import SetAside
from kernelcast.records import Measurements

EXCERPT = Path(__file__).parent / "resnet34_a100"


def workloads_of(folder: Path) -> tuple[dict, dict]:
    aside = SetAside()
    return read_workloads(database_file(folder, DATABASE_WORKLOADS), aside), aside.kinds


def records_of(folder: Path) -> tuple[list, dict]:
    aside = SetAside()
    return list(read_records(database_file(folder, DATABASE_RECORDS), aside)), aside.kinds


def edit(path: Path, change: Callable[[list[str]], Any]) -> None:
    lines = path.read_text().splitlines(keepends=True)
    change(lines)
    path.write_text("".join(lines))


def test_workloads_come_back_with_their_names(measurements: Measurements, database: Path) -> None:
    found, kinds = workloads_of(database)
    assert not kinds
    for read, written in zip(found.values(), measurements.workloads.values(), strict=True):
        assert (read.key, read.name, read.kind, read.arguments) == (
            written.key,
            written.name,
            written.kind,
            written.arguments,
        )


@pytest.mark.parametrize("content", [None, "", "[5]", '{"key": 1}', "\0"])
def test_without_names_the_blocks_give_one(measurements: Measurements, database: Path, content: str | None) -> None:
    (database / NAMES_FILE).unlink()
    if content is not None:
        (database / NAMES_FILE).write_text(content)
    found, _ = workloads_of(database)
    assert [one.kind for one in found.values()] == ["T_matmul_NN", "T_softmax_maxelem", "conv2d_nhwc"]
    assert [one.name for one in found.values()] == [f"{one.kind}_{one.key[:8]}" for one in found.values()]
    assert [one.key for one in found.values()] == list(measurements.workloads)


def broken(line: str, how: str) -> str:
    stated, packed = json.loads(line)
    content = base64.b64decode(packed)
    if how == "hash":
        return json.dumps([str(int(stated) ^ 1), packed])
    if how == "length":
        return json.dumps([stated, base64.b64encode(content[:-1]).decode()])
    text = content[8:].replace(b'"type": "tirx.PrimFunc"', b'"type": "tirx.Renamed"')
    if how == "version":
        text = text.replace(b"0.27.0.post1", b"0.99.0")
    return json.dumps([stated, base64.b64encode(len(text).to_bytes(8, "little") + text).decode()])


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("hash", "cannot be read", "hash is not the one that is stated"),
        ("length", "not a workload", "another length"),
        ("module", "cannot be read", "not a TVM module in JSON"),
    ],
)
def test_a_workload_that_is_not_what_it_states_costs_itself(database: Path, how: str, kind: str, says: str) -> None:
    edit(database / DATABASE_WORKLOADS, lambda lines: lines.__setitem__(1, broken(lines[1], how) + "\n"))
    found, kinds = workloads_of(database)
    assert list(found) == [0, 2]
    ((name, entry),) = kinds.items()
    assert kind in name
    assert says in entry.reason
    assert (entry.path.name, entry.line, entry.count) == (DATABASE_WORKLOADS, 2, 1)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "5",
        "[]",
        "{}",
        "[0]",
        "[0, []]",
        '["0", [[[],[]],[1],{"kind":"llvm"},[]]]',
        '[true, [[[],[]],[1],{"kind":"llvm"},[]]]',
        '[0, [[[]],[1],{"kind":"llvm"},[]]]',
        '[0, [[[["Parallel",["l0"],[]]],[]],[1],{"kind":"llvm"},[]]]',
        '[0, [[[["Parallel",["l0"],[],[]]],[[1,2]]],[1],{"kind":"llvm"},[]]]',
        '[0, [[[],[]],["1"],{"kind":"llvm"},[]]]',
        '[0, [[[],[]],[true],{"kind":"llvm"},[]]]',
        '[0, [[[],[]],5,{"kind":"llvm"},[]]]',
        '[0, [[[],[]],[1],"llvm",[]]]',
        "[0, [[[],[]],[1],null,[]]]",
        f'[0, [[[],[]],[1{"0" * 400}],{{"kind":"llvm"}},[]]]',
        pytest.param("[" * 100_000, id="deep"),
        "\0",
        "\x80",
    ],
)
def test_a_line_that_is_no_record_is_set_aside(database: Path, line: str) -> None:
    before, _ = records_of(database)
    path = database / DATABASE_RECORDS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], line.encode("latin-1") + b"\n", *lines[1:]]))
    after, kinds = records_of(database)
    assert [record.trace for record in after] == [record.trace for record in before]
    assert [(entry.line, entry.count) for entry in kinds.values()] == ([(2, 1)] if line else [])
    assert all(name == "not a tuning record" for name in kinds)


def test_failures_in_every_form_are_read_as_they_are(database: Path) -> None:
    forms = ["[1e10]", "[]", "null", "[NaN]", "[Infinity]", "[0]", "[-1.5]", "[10000000000]"]
    (database / DATABASE_RECORDS).write_text("".join(f'[0, [[[],[]],{form},{{"kind":"llvm"}},[]]]\n' for form in forms))
    found, kinds = records_of(database)
    assert not kinds
    seconds = [record.run_seconds for record in found]
    assert seconds[0] == seconds[7] == (1e10,)
    assert seconds[1] == seconds[2] == ()
    assert math.isnan(seconds[3][0])
    assert seconds[4:7] == [(math.inf,), (0.0,), (-1.5,)]


def test_a_torn_last_line_is_said_to_be_torn(database: Path) -> None:
    path = database / DATABASE_RECORDS
    path.write_bytes(path.read_bytes()[:-30])
    found, kinds = records_of(database)
    assert len(found) == 11
    ((name, entry),) = kinds.items()
    assert "torn" in name
    assert entry.line == 12


def test_a_last_line_without_an_end_is_whole(database: Path) -> None:
    path = database / DATABASE_RECORDS
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    found, kinds = records_of(database)
    assert len(found) == 12
    assert not kinds


def test_packed_files_are_read_and_torn_ones_refused(database: Path) -> None:
    path = database / DATABASE_RECORDS
    packed = path.with_name(path.name + ".gz")
    whole = gzip.compress(path.read_bytes())
    packed.write_bytes(whole)
    expected, _ = records_of(database)
    path.unlink()
    assert records_of(database)[0] == expected
    packed.write_bytes(whole[:-40])
    with pytest.raises(MalformedDataError, match=r"database_tuning_record\.json\.gz:\d+: cannot be read"):
        records_of(database)


def test_a_workload_that_another_tvm_wrote_is_kept_as_such(database: Path) -> None:
    before, _ = workloads_of(database)
    edit(database / DATABASE_WORKLOADS, lambda lines: lines.__setitem__(1, broken(lines[1], "version") + "\n"))
    found, kinds = workloads_of(database)
    assert not kinds
    assert [one.written_by for one in found.values()] == ["", "0.99.0", ""]
    assert [one.loadable for one in found.values()] == [True, False, True]
    # the names and the key are those that were stated
    assert dataclasses.replace(found[1], module="", written_by="") == dataclasses.replace(before[1], module="")


def test_a_database_of_another_tvm_is_read_as_such() -> None:
    found, kinds = workloads_of(EXCERPT)
    assert not kinds
    assert [(one.key, one.name, one.kind, one.written_by) for one in found.values()] == [
        ("4b6a01847c0798be", "tensor_4b6a0184", "tensor", "0.16.dev0"),
        ("c6c86bf55dc345d2", "T_matmul_NT_c6c86bf5", "T_matmul_NT", "0.16.dev0"),
    ]
    records, kinds = records_of(EXCERPT)
    assert not kinds
    assert sum(record.run_seconds[0] >= 1e9 for record in records) == 2
    assert json.loads(records[0].arguments) == [["TENSOR", "float32", [1, 512, 1, 1]], ["TENSOR", "float32", [1, 512]]]


def test_a_folder_that_is_no_database_says_what_one_is(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"database_workload\.json does not exist: a MetaSchedule database"):
        database_file(tmp_path, DATABASE_WORKLOADS)
