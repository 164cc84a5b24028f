import dataclasses
import json
import logging
import math
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.exchange.importing import Imported, chosen_target, import_database, shortest_target
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, write_database
from kernelcast.exchange.times import Times, usable_repeats
from kernelcast.machine import Host
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.records import Measurements, Outcome, Workload, read_measurements, write_campaign, write_measurements
from kernelcast.tvm_compat import make_target, parse_module, resolve_target, structural_key

Read = Callable[..., Imported]


def times_of(measurements: Measurements) -> dict[tuple[str, str], list[float]]:
    """The first visit's times of every program; none where it failed."""
    return {(row["workload_key"], row["program_key"]): usable_repeats(row) for row in measurements.table.to_pylist()}


def rewritten(path: Path, change: Callable[[list[Any]], Any]) -> None:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_the_same_programs_times_and_failures_come_back(
    measurements: Measurements, database: Path, read: Read, tmp_path: Path
) -> None:
    imported = read(database)
    found = imported.measurements
    assert times_of(found) == times_of(measurements)
    assert list(found.workloads) == list(measurements.workloads)
    for key, workload in found.workloads.items():
        # the database has its own spaces in the module's text
        assert dataclasses.replace(workload, module="") == dataclasses.replace(measurements.workloads[key], module="")
        assert structural_key(parse_module(workload.module)) == key
    assert found.campaign.target == measurements.campaign.target
    assert found.campaign.tvm == {"apache-tvm": "0.27.0.post1"}
    assert found.campaign.host is None
    assert (imported.records, imported.copies, imported.set_aside) == (12, 0, 0)
    rows = found.table.to_pylist()
    assert {row["origin"] for row in rows} == {"imported"}
    assert {json.dumps(json.loads(row["target"])) for row in rows} == {
        json.dumps(found.campaign.target, sort_keys=True)
    }
    failed = [row for row in rows if not row["run_seconds"]]
    assert {row["outcome"] for row in failed} == {"run_error"}
    assert failed[0]["message"] == "the database has a run time of 1e+10 s, the mark of a failure (line 2)"
    for row in rows:
        if row["run_seconds"]:
            # 1, 1.5 and 3 units: quartiles at 1.25 and 2.25
            assert row["spread"] == pytest.approx(1 / 1.5)
            assert row["round_index"] == [0, 1, 2]
            assert all(math.isnan(value) for value in row["reference_seconds"] + row["ended_at"])
    write_campaign(tmp_path / "m", found.campaign, found.workloads)
    write_measurements(tmp_path / "m", found.table)
    assert read_measurements(tmp_path / "m").table.num_rows == 12


SECONDS = st.one_of(
    st.floats(min_value=1e-12, max_value=1e8),
    st.sampled_from([1e9, 1e10, 0.0, -1.0, math.nan, math.inf]),
)
ROWS = st.dictionaries(
    st.integers(0, 11),
    st.tuples(st.sampled_from(list(Outcome)), st.lists(st.tuples(SECONDS, st.integers(0, 2)), max_size=5)),
    min_size=1,
)


@given(drawn=ROWS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rows_survive_the_round_trip(
    make_row: Callable[..., dict], collect: Callable[[list[dict]], Measurements], read: Read, drawn: dict
) -> None:
    rows = [
        make_row(
            number,
            outcome=outcome.value,
            run_seconds=[seconds for seconds, _ in repeats],
            visit=[visit for _, visit in repeats],
        )
        for number, (outcome, repeats) in drawn.items()
    ]
    measurements = collect(rows)
    with tempfile.TemporaryDirectory() as name:
        write_database(measurements, Path(name), Times.all)
        imported = read(Path(name))
    assert times_of(imported.measurements) == times_of(measurements)
    assert imported.records == len(rows)
    for row in imported.measurements.table.to_pylist():
        assert (row["outcome"] == "measured") == bool(row["run_seconds"])
        assert all(0 < seconds < 1e9 for seconds in row["run_seconds"])


@pytest.mark.parametrize("form", [[], None, [1e10], [1e9], [0.0], [0], [-1e-3], [math.nan], [math.inf], [1e-3, 1e10]])
def test_what_is_no_time_is_a_failure_never_a_time(database: Path, read: Read, form: Any) -> None:
    rewritten(database / DATABASE_RECORDS, lambda records: records[0][1].__setitem__(1, form))
    row = read(database).measurements.table.to_pylist()[0]
    assert (row["outcome"], row["run_seconds"]) == ("run_error", [])
    assert "run time" in row["message"]
    assert "(line 1)" in row["message"]


def test_records_of_one_program_are_its_visits(database: Path, read: Read) -> None:
    def repeat(records: list[Any]) -> None:
        number, (trace, _, target, arguments) = records[0]
        for seconds in ([5e-5, 6e-5], [1e10], [7e-5], [5e-5, 6e-5]):
            records += [[number, [trace, seconds, target, arguments]]]

    before = read(database).measurements.table.to_pylist()[0]
    rewritten(database / DATABASE_RECORDS, repeat)
    imported = read(database)
    row = imported.measurements.table.to_pylist()[0]
    assert imported.measurements.table.num_rows == 12
    assert (imported.records, imported.copies) == (16, 1)
    assert row["run_seconds"] == [*before["run_seconds"], 5e-5, 6e-5, 7e-5]
    assert row["visit"] == [0, 0, 0, 1, 1, 2]
    assert row["round_index"] == [0, 1, 2, 0, 1, 0]
    assert (row["spread"], row["trace"]) == (before["spread"], before["trace"])


def test_a_measured_record_outweighs_an_earlier_failure(database: Path, read: Read) -> None:
    def succeed(records: list[Any]) -> None:
        number, (trace, _, target, arguments) = records[1]
        records.append([number, [trace, [2e-5], target, arguments]])

    rewritten(database / DATABASE_RECORDS, succeed)
    row = read(database).measurements.table.to_pylist()[1]
    assert (row["outcome"], row["run_seconds"], row["visit"], row["message"]) == ("measured", [2e-5], [0], "")


def test_lines_that_cannot_be_taken_cost_themselves_and_are_counted(
    database: Path, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    def spoil(records: list[Any]) -> None:
        records[0][1][0] = records[-1][1][0]  # the trace of another workload
        records[1][1][0] = [[["NoSuchInstruction", [], [], []]], []]
        records[5][0] = 7

    rewritten(database / DATABASE_RECORDS, spoil)
    path = database / DATABASE_RECORDS
    path.write_bytes(path.read_bytes()[:-30])
    with caplog.at_level(logging.WARNING):
        imported = read(database)
    assert imported.set_aside == 4
    assert imported.measurements.table.num_rows == 8
    said = [record.message for record in caplog.records if "set aside" in record.message]
    assert len(said) == 3
    assert any(
        f"{path}:1, the first of them: set aside 2 lines: a trace that does not apply" in message for message in said
    )
    assert any(f"{path}:6: set aside 1 line: a record of a workload that cannot be read" in message for message in said)
    assert any(f"{path}:12: set aside 1 line: the last line is torn" in message for message in said)


def test_a_workload_that_cannot_be_read_takes_its_records_along(
    database: Path, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    path = database / DATABASE_WORKLOADS
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "garbage", lines[2]]) + "\n")
    with caplog.at_level(logging.WARNING):
        imported = read(database)
    assert imported.measurements.table.num_rows == 8
    assert [workload.name for workload in imported.measurements.workloads.values()] == ["a small matmul", "conv2d"]
    assert "set aside 4 lines: a record of a workload that cannot be read (line 2 of" in caplog.text


def test_several_targets_are_listed_and_one_is_chosen(database: Path, read: Read) -> None:
    def other(records: list[Any]) -> None:
        for record in records[4:]:
            record[1][2] = {**record[1][2], "num-cores": 1}
        # the same target, without what TVM fills in
        del records[0][1][2]["keys"], records[0][1][2]["tag"]

    rewritten(database / DATABASE_RECORDS, other)
    with pytest.raises(ConfigError, match="several targets") as caught:
        read(database)
    assert '"num-cores": 1}: 8 records' in str(caught.value)
    assert '"num-cores": 2}: 4 records' in str(caught.value)
    chosen = read(database, **{"num-cores": 2}).measurements
    assert chosen.table.num_rows == 4
    assert chosen.campaign.target["num-cores"] == 2
    with pytest.raises(ConfigError, match="no record has it"):
        read(database, kind="cuda")
    with pytest.raises(ConfigError, match="2 targets have it"):
        read(database, kind="llvm")


def test_a_target_is_chosen_by_its_entries() -> None:
    texts = ['{"kind": "cuda", "arch": "sm_80", "keys": ["cuda", "gpu"]}', '{"kind": "llvm"}']
    assert chosen_target(Counter(texts), {"keys": ["cuda", "gpu"]}) == texts[0]
    assert chosen_target(Counter(texts[1:]), {}) == texts[1]


@pytest.mark.parametrize(
    "short",
    [
        {"kind": "llvm", "mcpu": "znver4", "num-cores": 2},
        {"kind": "llvm"},
        {"kind": "cuda", "arch": "sm_80", "max_shared_memory_per_block": 49152},
    ],
)
def test_a_target_loses_what_tvm_fills_in_and_stays_the_same(short: dict[str, Any]) -> None:
    whole = json.loads(str(make_target(short)))
    assert len(whole) > len(short)
    assert shortest_target(whole) == short
    assert json.loads(str(make_target(shortest_target(whole)))) == whole


@pytest.mark.parametrize("target", [{"kind": "no such"}, {"kind": "cuda"}, {"kind": "cuda", "max_num_threads": 1024}])
def test_a_target_that_tvm_cannot_complete_stays_as_it_is(target: dict[str, Any]) -> None:
    assert shortest_target(target) == target


def test_programs_of_a_gpu_go_out_and_come_in_on_a_machine_without_one(
    suite: list[Workload], collect: Callable[[list[dict]], Measurements], read: Read, tmp_path: Path
) -> None:
    target = {"kind": "cuda", "arch": "sm_80"}
    rows = [
        {
            "workload_key": suite[0].key,
            "workload_name": suite[0].name,
            "workload_kind": suite[0].kind,
            "program_key": candidate.program_key,
            "trace": candidate.trace,
            "target": json.dumps(target),
            "outcome": "measured",
            "run_seconds": [1e-5],
        }
        for candidate in sample_candidates(suite[0], resolve_target(target), 3, seed=0)
    ]
    measurements = collect(rows)
    write_database(measurements, tmp_path, Times.all)
    found = read(tmp_path, kind="cuda").measurements
    assert times_of(found) == times_of(measurements)
    assert (found.campaign.target["kind"], found.campaign.target["arch"]) == ("cuda", "sm_80")


def test_the_host_is_what_the_caller_says(database: Path) -> None:
    host = Host("mine", 2, 2**30, "Linux", 1e9, 1e9, 8, 2**19)
    asked: list[dict] = []

    def host_of(target: dict[str, Any]) -> Host:
        asked.append(target)
        return host

    imported = import_database(database, {}, host_of, lambda done, total: None)
    assert imported.measurements.campaign.host == host
    assert asked == [imported.measurements.campaign.target]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (DATABASE_WORKLOADS, "", "database_workload.json is empty"),
        (DATABASE_RECORDS, "", "database_tuning_record.json is empty"),
        (DATABASE_RECORDS, "{}\n{}\n", "database_tuning_record.json:1: not a tuning record"),
        (
            DATABASE_RECORDS,
            '[0,[[[["NoSuch",[],[],[]]],[]],[1],{"kind":"llvm"},[]]]\n',
            "no record can be read.*a trace that does not apply",
        ),
    ],
)
def test_nothing_readable_is_an_error_that_says_where(
    database: Path, read: Read, name: str, content: str, says: str
) -> None:
    (database / name).write_text(content)
    with pytest.raises(MalformedDataError, match=says):
        read(database)


def test_an_imported_database_exports_to_the_same_lines(
    database: Path, read: Read, tmp_path: Path, measurements: Measurements
) -> None:
    again = tmp_path / "again"
    again.mkdir()
    write_database(dataclasses.replace(read(database).measurements), again, Times.all)
    for name in (DATABASE_RECORDS, DATABASE_WORKLOADS):
        assert (again / name).read_text() == (database / name).read_text()
