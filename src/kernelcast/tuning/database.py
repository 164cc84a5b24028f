"""TVM's database of a tuning: what was measured, for TVM to search on and for anyone to read with `JSONDatabase`.

TVM's own callback writes a failed program as one of 1e10 seconds; here failed programs are left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from kernelcast.errors import MalformedDataError
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS
from kernelcast.files import storage_errors
from kernelcast.measurement.lines import numbered_lines, set_torn_tail_aside
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, parse_module, prepare_for, replayed_schedule


class TuningDatabase:
    """A database on disk.

    Args:
        folder: of its two files, which are made where there are none; torn last lines are set aside.
        workloads: all that records will be of.
        target: the complete TVM target.

    Attributes:
        tvm_database: TVM's object.

    Raises:
        MalformedDataError: TVM cannot read what is there.
        StorageError: the disk refused.
    """

    def __init__(self, folder: Path, workloads: Sequence[Workload], target: dict[str, Any]) -> None:
        load_tvm()
        prepare_for(target)
        from tvm.s_tir import meta_schedule

        self._files = [folder / name for name in (DATABASE_WORKLOADS, DATABASE_RECORDS)]
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for path in self._files:
                set_torn_tail_aside(path)
        try:
            self.tvm_database = meta_schedule.database.JSONDatabase(work_dir=str(folder))
            self._entries = {one.key: self.tvm_database.commit_workload(parse_module(one.module)) for one in workloads}
        except Exception as error:  # whatever TVM's parser throws
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise MalformedDataError(
                f"{folder}: TVM cannot read {DATABASE_WORKLOADS} and {DATABASE_RECORDS} ({reason}); move both away and "
                "run the same command again: they are made anew of what was measured"
            ) from error
        self._target = make_target(target)
        self._line = {one.key: line for line, one in enumerate(workloads)}
        self._known = {_known_by(*orjson.loads(line)) for _, line in numbered_lines(self._files[1])}
        self.sync()

    def add(self, workload: Workload, trace: str, run_seconds: float, schedule: Any = None) -> None:
        """Adds a measured program, unless it is there.

        Args:
            workload: what it computes.
            trace: the schedule trace as JSON.
            run_seconds: its label.
            schedule: TVM's object of it; None to make it of the trace.
        """
        from tvm.s_tir import meta_schedule

        known_by = _known_by(self._line[workload.key], [orjson.loads(trace)])
        if known_by in self._known:
            return
        self._known.add(known_by)
        schedule = replayed_schedule(workload, trace) if schedule is None else schedule
        arguments = meta_schedule.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        entry = self._entries[workload.key]
        record = meta_schedule.database.TuningRecord(schedule.trace, entry, [run_seconds], self._target, arguments)
        self.tvm_database.commit_tuning_record(record)

    def sync(self) -> None:
        """Returns when everything added so far is on the disk."""
        for path in self._files:
            with storage_errors(path), path.open("rb") as stream:
                os.fsync(stream.fileno())


def _known_by(line: int, record: Sequence[Any]) -> tuple[int, bytes]:
    """What tells a record from the others: its workload and its trace, but for how TVM writes it.

    In a database truth values are numbers, and the maps that change layouts have white space.
    """
    trace = orjson.dumps(record[0])
    for written, plain in ((b"true", b"1"), (b"false", b"0"), (b"\\n", b""), (b" ", b"")):
        trace = trace.replace(written, plain)
    return line, trace
