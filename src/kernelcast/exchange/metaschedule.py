"""A MetaSchedule database: its files, and measurements written as one.

`database_workload.json` holds `[structural hash, module in base64]` a line, `database_tuning_record.json` holds
`[number of the workload's line from 0, [trace, run seconds, target, arguments]]` a line. Names of workloads have no
place there, so they go into a file beside, which TVM does not look at and `import` reads.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
from pathlib import Path
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.exchange.foreign import ARGUMENT_INFO, packed_module
from kernelcast.exchange.times import FAILED_SECONDS, Times, usable_repeats
from kernelcast.files import write_json
from kernelcast.records import Measurements, Workload
from kernelcast.tvm_compat import load_tvm, make_target, parse_module

logger = logging.getLogger(__name__)

DATABASE_WORKLOADS = "database_workload.json"
DATABASE_RECORDS = "database_tuning_record.json"
NAMES_FILE = "kernelcast_workloads.json"
PREDICTED_FILE = "predicted.json"
"""Beside the schedules that a model chose: their run times are its predictions, and nobody measured them."""

DATABASE_FILES = (DATABASE_WORKLOADS, DATABASE_RECORDS, NAMES_FILE)


def write_database(measurements: Measurements, directory: Path, times: Times) -> dict[str, int]:
    """Writes measurements into an existing folder as a database that TVM's `JSONDatabase` opens.

    Workloads of another TVM are written as they came, for that one: a database with such opens in no other.

    Failed programs get the run time 1e10 s, by which TVM knows them. TVM ranks the others by the mean of what `times`
    makes of their repeats.

    Returns:
        How many records were written, by "measured" and "failed".

    Raises:
        MalformedDataError: a trace is not JSON, or a row belongs to no workload.
    """
    load_tvm()
    number = {key: line for line, key in enumerate(measurements.workloads)}
    with (directory / DATABASE_WORKLOADS).open("w") as stream:
        arguments = {}
        for key, workload in measurements.workloads.items():
            line, arguments[key] = _workload_line(workload)
            stream.write(line + "\n")
    write_json(directory / NAMES_FILE, [described(workload) for workload in measurements.workloads.values()])
    targets: dict[str, str] = {}
    counts = {"measured": 0, "failed": 0}
    with (directory / DATABASE_RECORDS).open("w") as stream:
        for row in measurements.table.to_pylist():
            key, target = row["workload_key"], row["target"]
            if key not in number:
                raise MalformedDataError(
                    f"program {row['program_key']} belongs to the workload {key}, of which there is none; "
                    "run `dvc repro measure`"
                )
            if target not in targets:
                targets[target] = target_json(json.loads(target))
            repeats = usable_repeats(row)
            counts["measured" if repeats else "failed"] += 1
            seconds = times.of(repeats) if repeats else [FAILED_SECONDS]
            fields = [_one_line(row), json.dumps(seconds), targets[target], arguments[key]]
            stream.write(f"[{number[key]},[{','.join(fields)}]]\n")
    return counts


def target_json(target: dict[str, Any]) -> str:
    """A target as TVM writes it, with everything that it fills in.

    Raises:
        ConfigError: TVM refuses it.
    """
    if target.get("kind") == "cuda" and "arch" not in target:
        # TVM would take that of a GPU of this machine
        return json.dumps(target)
    return str(make_target(target))


def _workload_line(workload: Workload) -> tuple[str, str]:
    """The line of a workload, and its arguments as the records repeat them; another TVM's as it came."""
    if not workload.loadable:
        line = json.dumps([str(int(workload.key, 16)), packed_module(workload.module)], separators=(",", ":"))
        return line, json.dumps(workload.arguments.get(ARGUMENT_INFO, []), separators=(",", ":"))
    database = importlib.import_module("tvm.s_tir.meta_schedule.database")
    infos = importlib.import_module("tvm.s_tir.meta_schedule.arg_info")
    module = parse_module(workload.module)
    arguments = [info.as_json() for info in infos.ArgInfo.from_entry_func(module)]
    line = json.dumps(database.Workload(module).as_json(), default=_unboxed, separators=(",", ":"))
    return line, json.dumps(arguments, default=_unboxed, separators=(",", ":"))


def _unboxed(value: Any) -> Any:
    # TVM's boxed numbers have a value; its strings and shapes are Python's already
    return value.value


def described(workload: Workload) -> dict[str, Any]:
    """What `NAMES_FILE` has of a workload: all but its module."""
    return {name: value for name, value in dataclasses.asdict(workload).items() if name != "module"}


def _one_line(row: dict[str, Any]) -> str:
    try:
        return json.dumps(json.loads(row["trace"]), separators=(",", ":"))
    except ValueError as error:
        raise MalformedDataError(
            f"the trace of program {row['program_key']} is not JSON ({error}); run `dvc repro measure`"
        ) from error
