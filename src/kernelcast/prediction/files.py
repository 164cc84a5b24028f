"""Files and folders as programs to predict: a module, a tuning database, measurements."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.exchange.database import WITHOUT_WORKLOAD, database_file, read_records, read_workloads
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, PREDICTED_FILE
from kernelcast.exchange.set_aside import SetAside
from kernelcast.exchange.times import Times, fault_of, usable_repeats
from kernelcast.graphs.dataset.store import META_FILE
from kernelcast.prediction.subjects import Origin, Subject, subjects_of_module
from kernelcast.records import MEASUREMENTS_FILE, read_measurements
from kernelcast.tvm_compat import parse_module

logger = logging.getLogger(__name__)

KINDS = (
    "a TensorIR module in JSON, a Python file, a Parquet file of measurements, or a folder: a MetaSchedule database, "
    "measurements or graphs"
)
"""What a path can be."""

Check = Callable[[Mapping[str, Any]], object]
"""Raises a `ConfigError` where a model knows nothing of a target."""


def is_graphs(path: Path) -> bool:
    """Whether the stage `graphs` wrote this folder."""
    return (path / META_FILE).is_file()


def subjects_of_path(path: Path, check: Check) -> list[Subject]:
    """The programs of a file or folder, except those of graphs and of Python files.

    Args:
        path: it exists.
        check: of targets.

    Raises:
        ConfigError: it is nothing of the kind, or of a target that the model does not know.
        MissingInputError: a file of a folder is not there.
        MalformedDataError: it cannot be read, or is empty.
    """
    if path.is_dir():
        if any((path / f"{DATABASE_RECORDS}{end}").is_file() for end in ("", ".gz")):
            return subjects_of_database(path, check)
        if (path / MEASUREMENTS_FILE).is_file():
            return subjects_of_measurements(path, check)
        raise ConfigError(f"input={path} is a folder of none of the kinds that can be predicted: it must be {KINDS}")
    name = path.name.removesuffix(".gz")
    if name in (DATABASE_RECORDS, DATABASE_WORKLOADS):
        return subjects_of_database(path.parent, check)
    if path.suffix == ".parquet":
        if path.name != MEASUREMENTS_FILE:
            raise ConfigError(
                f"input={path}: the programs of a table are made of the workloads beside it, as `measure` writes both: "
                f"name a {MEASUREMENTS_FILE} or its folder"
            )
        return subjects_of_measurements(path.parent, check)
    if path.suffix == ".json":
        return subjects_of_json(path)
    raise ConfigError(f"input={path} is a file of none of the kinds that can be predicted: it must be {KINDS}")


def subjects_of_json(path: Path) -> list[Subject]:
    """The program of a TVM module in JSON, as `tvm.ir.save_json` writes it; one a TensorIR function.

    Raises:
        MalformedDataError: it is no such file.
    """
    try:
        module = parse_module(path.read_text())
    except (MalformedDataError, UnicodeDecodeError) as error:
        raise MalformedDataError(f"{path}: {error}; write it with this TVM by `tvm.ir.save_json(module)`") from error
    except OSError as error:
        raise MalformedDataError(f"{path} cannot be read: {error.strerror}") from error
    return subjects_of_module(module, path.stem)


def subjects_of_database(folder: Path, check: Check) -> list[Subject]:
    """Every record of a MetaSchedule database that is of a target that the model knows, in the order of the file.

    Raises:
        MissingInputError: a file is missing.
        ConfigError: no record is of such a target.
        MalformedDataError: no record can be read.
    """
    workload_path, record_path = (database_file(folder, name) for name in (DATABASE_WORKLOADS, DATABASE_RECORDS))
    predicted = (folder / PREDICTED_FILE).is_file()
    aside = SetAside()
    workloads = read_workloads(workload_path, aside)
    subjects: list[Subject] = []
    known: dict[str, dict[str, Any]] = {}
    foreign: Counter[str] = Counter()
    refused: ConfigError | None = None
    for record in read_records(record_path, aside):
        workload = workloads.get(record.workload)
        if workload is None:
            aside.add(WITHOUT_WORKLOAD, record_path, record.line, f"line {record.workload + 1} of {workload_path.name}")
            continue
        if record.target not in known and record.target not in foreign:
            entries: dict[str, Any] = json.loads(record.target)
            try:
                check(entries)
                known[record.target] = entries
            except ConfigError as error:
                refused = refused or error
                foreign[record.target] = 0
        if record.target in foreign:
            foreign[record.target] += 1
            continue
        timed = not predicted and not fault_of(record.run_seconds)
        measured = Times.minimum.label(record.run_seconds) if timed else None
        subjects.append(
            Subject(workload, record.trace, "", measured, origin=Origin.RECORDED, target=known[record.target])
        )
    aside.warn()
    if not subjects:
        if refused is not None:
            raise ConfigError(f"{record_path}: {refused}") from refused
        raise MalformedDataError(
            f"{record_path}: no record can be read; {aside.first() or 'it is empty'}; give a database with records"
        )
    if foreign:
        logger.warning(
            "%s: %d records of other targets are left out, of which the model knows nothing",
            record_path,
            sum(foreign.values()),
        )
    return subjects


def subjects_of_measurements(folder: Path, check: Check) -> list[Subject]:
    """Every program that `measure` tried, also those that failed and have no time.

    Raises:
        MissingInputError: `measure` has not finished.
        ConfigError: they are of a target that the model does not know.
        MalformedDataError: a file is torn.
    """
    found = read_measurements(folder)
    target = found.campaign.target
    check(target)
    subjects = []
    for row in found.table.select(
        ["workload_key", "program_key", "trace", "outcome", "run_seconds", "visit"]
    ).to_pylist():
        repeats = usable_repeats(row)
        subjects.append(
            Subject(
                found.workloads[row["workload_key"]],
                row["trace"],
                row["program_key"],
                Times.minimum.label(repeats) if repeats else None,
                Origin.RECORDED,
                target,
            )
        )
    return subjects
