import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, write_database
from kernelcast.exchange.times import Times, usable_repeats
from kernelcast.records import Measurements, measurement_table
from kernelcast.tvm_compat import load_tvm, make_target, parse_module, scheduled_module, structural_key


def opened(folder: Path) -> Any:
    load_tvm()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    return JSONDatabase(
        str(folder / DATABASE_WORKLOADS),
        str(folder / DATABASE_RECORDS),
        allow_missing=False,
        module_equality="structural",
    )


@pytest.mark.parametrize("times", list(Times))
def test_tvm_opens_it_and_finds_our_best_schedules(
    measurements: Measurements, target: dict[str, Any], tmp_path: Path, times: Times
) -> None:
    counts = write_database(measurements, tmp_path, times)
    database = opened(tmp_path)
    rows = measurements.table.to_pylist()
    assert len(database) == len(rows) == sum(counts.values())
    assert counts["failed"] == 3
    for key, workload in measurements.workloads.items():
        module = parse_module(workload.module)
        assert database.has_workload(module)
        written = {
            row["program_key"]: times.of(usable_repeats(row))
            for row in rows
            if row["workload_key"] == key and usable_repeats(row)
        }
        best = min(written, key=lambda program: sum(written[program]) / len(written[program]))
        record = database.query_tuning_record(module, make_target(target), "main")
        assert [float(seconds) for seconds in record.run_secs] == written[best]
        assert structural_key(database.query_ir_module(module, make_target(target), "main")) == best
        # TVM leaves out what it takes for failed
        assert len(database.get_top_k(database.commit_workload(module), 100)) == len(written)
        assert json.loads(str(record.target)) == json.loads(str(make_target(target)))
        assert len(record.args_info) >= 2


def test_failed_programs_have_the_time_that_tvm_takes_for_a_failure(measurements: Measurements, database: Path) -> None:
    lines = [json.loads(line) for line in (database / DATABASE_RECORDS).read_text().splitlines()]
    for line, row in zip(lines, measurements.table.to_pylist(), strict=True):
        workload = list(measurements.workloads)[line[0]]
        assert workload == row["workload_key"]
        assert line[1][1] == (usable_repeats(row) or [1e10])
        program = scheduled_module(measurements.workloads[workload], json.dumps(line[1][0]))
        assert structural_key(program) == row["program_key"]


def test_tvm_writes_the_same_lines(measurements: Measurements, database: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    load_tvm()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    copy = JSONDatabase(str(theirs / DATABASE_WORKLOADS), str(theirs / DATABASE_RECORDS))
    ours = opened(database)
    for workload in measurements.workloads.values():
        copy.commit_workload(parse_module(workload.module))
    for record in ours.get_all_tuning_records():
        copy.commit_tuning_record(record)

    def read(folder: Path, name: str) -> list[Any]:
        return [json.loads(line, parse_int=float) for line in (folder / name).read_text().splitlines()]

    def known(record: list[Any]) -> str:
        # all but the trace, where TVM writes true for our 1, and its own spaces inside of texts
        return json.dumps([record[0], len(record[1][0][0]), *record[1][1:]], sort_keys=True)

    assert read(theirs, DATABASE_WORKLOADS) == read(database, DATABASE_WORKLOADS)
    their_records, our_records = (read(folder, DATABASE_RECORDS) for folder in (theirs, database))
    assert sorted(map(known, their_records)) == sorted(map(known, our_records))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [("trace", "[[", "trace of program"), ("workload_key", "another", "of which there is none")],
)
def test_a_row_that_cannot_be_written_is_named(
    measurements: Measurements, tmp_path: Path, column: str, value: str, says: str
) -> None:
    rows = measurements.table.to_pylist()
    rows[3][column] = value
    with pytest.raises(MalformedDataError, match=says):
        write_database(dataclasses.replace(measurements, table=measurement_table(rows)), tmp_path, Times.all)
