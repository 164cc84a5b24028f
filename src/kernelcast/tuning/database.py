"""TVM's database of a tuning: what was measured, for TVM to search on and for anyone to read with `JSONDatabase`.

TVM's own callback writes a failed program as one of 1e10 seconds; here failed programs are left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
        self.sync()

    @property
    def records(self) -> int:
        """Records on the disk."""
        return sum(1 for _ in numbered_lines(self._files[1]))

    def add(self, workload: Workload, trace: str, run_seconds: float) -> None:
        """Adds a measured program."""
        self.add_schedule(workload, replayed_schedule(workload, trace), run_seconds)

    def add_schedule(self, workload: Workload, schedule: Any, run_seconds: float) -> None:
        """Adds a measured program, given as TVM's schedule."""
        from tvm.s_tir import meta_schedule

        arguments = meta_schedule.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        entry = self._entries[workload.key]
        record = meta_schedule.database.TuningRecord(schedule.trace, entry, [run_seconds], self._target, arguments)
        self.tvm_database.commit_tuning_record(record)

    def sync(self) -> None:
        """Returns when everything added so far is on the disk."""
        for path in self._files:
            with storage_errors(path), path.open("rb") as stream:
                os.fsync(stream.fileno())
