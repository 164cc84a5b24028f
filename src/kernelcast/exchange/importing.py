"""A MetaSchedule database as measurements that the other stages read."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.exchange.database import (
    WITHOUT_WORKLOAD,
    TuningRecord,
    database_file,
    read_records,
    read_workloads,
)
from kernelcast.exchange.foreign import ARGUMENT_INFO, module_writer, trace_key
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, PREDICTED_FILE, target_json
from kernelcast.exchange.replay import Replayed, replay
from kernelcast.exchange.set_aside import SetAside
from kernelcast.exchange.times import fault_of
from kernelcast.machine import Host
from kernelcast.records import (
    MEASUREMENTS_VERSION,
    Campaign,
    Measurements,
    Origin,
    Outcome,
    Workload,
    measurement_table,
)
from kernelcast.tvm_compat import load_tvm, tvm_versions

logger = logging.getLogger(__name__)

NO_PROGRAM = "a trace that does not apply to its workload"
MEASURE_ANEW = "measure these workloads with this TVM (`scripts/measure.py`), or import a database that it wrote"


@dataclass(frozen=True)
class Imported:
    """What came of a database.

    Attributes:
        measurements: one row a program.
        records: records of the chosen target that could be read.
        failed: how many of these hold no time but the mark of a failure.
        copies: records that repeat the times of an earlier one of their program to the last digit.
        set_aside: lines that could not be taken.
    """

    measurements: Measurements
    records: int
    failed: int
    copies: int
    set_aside: int


def import_database(
    folder: Path,
    target: Mapping[str, Any],
    host_of: Callable[[dict[str, Any]], Host | None],
    progress: Callable[[int, int], None],
) -> Imported:
    """Reads a database, finds out which program each trace makes, and merges the records of each.

    A record whose run times are none becomes a failed row; it never counts as a time. Records that repeat a program
    become its later visits. What cannot be read is set aside with one warning a kind. Traces of workloads that another
    TVM wrote are not applied: equal ones are one program.

    Args:
        folder: with `database_workload.json` and `database_tuning_record.json`, either of them packed by gzip or not.
        target: entries that the target of a record must have; empty where all records have one target.
        host_of: tells the machine that measured, given the target; None where nobody knows.
        progress: called with traces applied and in all.

    Raises:
        MissingInputError: a file is missing.
        ConfigError: no record has this target, or records of several targets do; or its times are predictions.
        MalformedDataError: nothing can be read; says where, why and what to do.
    """
    workload_path, record_path = (database_file(folder, name) for name in (DATABASE_WORKLOADS, DATABASE_RECORDS))
    if (folder / PREDICTED_FILE).is_file():
        raise ConfigError(
            f"{folder}: the run times of this database were predicted by a model, and nobody measured them; import one "
            "that was measured"
        )
    aside = SetAside()
    load_tvm()
    workloads = read_workloads(workload_path, aside)
    if not workloads:
        raise MalformedDataError(f"{aside.first() or f'{workload_path} is empty'}; {_others(aside)}{MEASURE_ANEW}")
    records = list(read_records(record_path, aside))
    if not records:
        raise MalformedDataError(
            f"{aside.first() or f'{record_path} is empty'}; {_others(aside)}get a whole copy of it"
        )
    # a target with and without what TVM fills in by itself is the same
    plain = {text: shortest_target(json.loads(text)) for text in {record.target for record in records}}
    texts = {text: json.dumps(short, sort_keys=True) for text, short in plain.items()}
    target_text = chosen_target(Counter(texts[record.target] for record in records), target)
    plain_target: dict[str, Any] = json.loads(target_text)
    chosen = []
    for record in records:
        if texts[record.target] != target_text:
            continue
        if record.workload in workloads:
            chosen.append(record)
        else:
            aside.add(WITHOUT_WORKLOAD, record_path, record.line, f"line {record.workload + 1} of {workload_path.name}")
    programs = _programs(chosen, workloads, record_path, aside, plain_target, progress)
    aside.warn()
    if not programs:
        raise MalformedDataError(f"{record_path}: no record can be read; {aside.first()}; {MEASURE_ANEW}")

    by_key = _used(workloads, programs)
    _warn_of_foreign(by_key, programs)
    merged = [merged_row(by_key[key], program, found) for (key, program), found in programs.items()]
    campaign = Campaign(
        version=MEASUREMENTS_VERSION,
        target=plain_target,
        host=host_of(plain_target),
        tvm=_writers(by_key.values()),
        timing={"source": "imported from a MetaSchedule database"},
        seed=0,
    )
    rows = [{**row, "target": target_text} for row, _ in merged]
    return Imported(
        measurements=Measurements(campaign, by_key, measurement_table(rows)),
        records=sum(map(len, programs.values())),
        failed=sum(bool(fault_of(record.run_seconds)) for found in programs.values() for record in found),
        copies=sum(copies for _, copies in merged),
        set_aside=sum(kind.count for kind in aside.kinds.values()),
    )


def chosen_target(counts: Counter[str], wanted: Mapping[str, Any]) -> str:
    """The one target among the records that has the entries of `wanted`.

    Raises:
        ConfigError: none has them, or several have; the message lists all targets with their records.
    """
    fitting = [text for text in counts if wanted.items() <= json.loads(text).items() or not wanted]
    if len(fitting) == 1:
        return fitting[0]
    listed = "; ".join(f"{text}: {count} records" for text, count in counts.most_common())
    found = "no record has it" if not fitting else f"{len(fitting)} targets have it" if wanted else ""
    asked = f"target={json.dumps(dict(wanted))}: {found}" if wanted else "the records have several targets"
    raise ConfigError(
        f"{asked}, and times of one say nothing about another ({listed}); name entries that only one has, "
        "for example 'target={kind: llvm, num-cores: 4}'"
    )


def shortest_target(target: dict[str, Any]) -> dict[str, Any]:
    """The same target without the entries that TVM fills in by itself, as a user would write it."""
    try:
        whole = target_json(target)
    except ConfigError:
        return target
    kept = dict(target)
    for name in sorted(target.keys() - {"kind", "arch"}):
        fewer = {key: value for key, value in kept.items() if key != name}
        try:
            if json.loads(target_json(fewer)) == json.loads(whole):
                kept = fewer
        except ConfigError:
            continue
    return kept


def merged_row(workload: Workload, program_key: str, records: Sequence[TuningRecord]) -> tuple[dict[str, Any], int]:
    """The row of one program from all its records, and how many of these are copies of an earlier one.

    The first record with times is the measurement, later ones are later visits; without any the program failed.
    """
    row: dict[str, Any] = {
        "workload_key": workload.key,
        "workload_name": workload.name,
        "workload_kind": workload.kind,
        "program_key": program_key,
        "origin": Origin.IMPORTED.value,
        "device": "unknown",
    }
    timed = [record for record in records if not fault_of(record.run_seconds)]
    if not timed:
        first = records[0]
        message = f"the database has {fault_of(first.run_seconds)} (line {first.line})"
        return {**row, "trace": first.trace, "outcome": Outcome.RUN_ERROR.value, "message": message}, 0
    visits = list(dict.fromkeys(record.run_seconds for record in timed))
    first_visit = np.array(visits[0])
    low, middle, high = np.percentile(first_visit, [25, 50, 75])
    repeats = [(seconds, visit, index) for visit, times in enumerate(visits) for index, seconds in enumerate(times)]
    return {
        **row,
        "trace": timed[0].trace,
        "outcome": Outcome.MEASURED.value,
        "spread": float((high - low) / middle) if len(first_visit) > 1 else None,
        "run_seconds": [seconds for seconds, _, _ in repeats],
        "visit": [visit for _, visit, _ in repeats],
        "round_index": [index for _, _, index in repeats],
    }, len(timed) - len(visits)


def _programs(
    records: Sequence[TuningRecord],
    workloads: Mapping[int, Workload],
    path: Path,
    aside: SetAside,
    target: dict[str, Any],
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], list[TuningRecord]]:
    """Records by workload key and program key, in the order of the file."""
    # equal traces make equal programs: each is applied once
    traces = dict.fromkeys((record.workload, record.trace) for record in records)
    made = {
        (number, trace): Replayed(trace_key(workloads[number].key, trace))
        for number, trace in traces
        if not workloads[number].loadable
    }
    applicable = [(number, trace) for number, trace in traces if workloads[number].loadable]
    if applicable:
        jobs = [(workloads[number], trace) for number, trace in applicable]
        made.update(zip(applicable, replay(jobs, target, progress), strict=True))
    programs: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in records:
        found = made[record.workload, record.trace]
        if found.fault:
            aside.add(NO_PROGRAM, path, record.line, found.fault)
        else:
            programs.setdefault((workloads[record.workload].key, found.program_key), []).append(record)
    return programs


def _used(
    workloads: Mapping[int, Workload], programs: Mapping[tuple[str, str], Sequence[TuningRecord]]
) -> dict[str, Workload]:
    """The workloads that have programs, by key; those of another TVM with the arguments that the records name."""
    arguments: dict[str, str] = {}
    for (key, _), records in programs.items():
        arguments.setdefault(key, records[0].arguments)
    used = {}
    for workload in workloads.values():
        if workload.key not in arguments:
            continue
        if not workload.loadable and ARGUMENT_INFO not in workload.arguments:
            named = {**workload.arguments, ARGUMENT_INFO: json.loads(arguments[workload.key])}
            workload = dataclasses.replace(workload, arguments=named)
        used[workload.key] = workload
    return used


def _warn_of_foreign(workloads: Mapping[str, Workload], programs: Iterable[tuple[str, str]]) -> None:
    foreign = {key: workload.written_by for key, workload in workloads.items() if not workload.loadable}
    if foreign:
        logger.warning(
            "%d of %d workloads were written by TVM %s, which TVM %s cannot load: their %d programs have only the view "
            "`trace`",
            len(foreign),
            len(workloads),
            ", ".join(sorted(set(foreign.values()))),
            tvm_versions()["apache-tvm"],
            sum(key in foreign for key, _ in programs),
        )


def _writers(workloads: Iterable[Workload]) -> dict[str, str]:
    """The TVM that wrote the modules, which is all that a database says of versions."""
    writers = sorted({module_writer(workload.module) or "unknown" for workload in workloads})
    return {"apache-tvm": ", ".join(writers)}


def _others(aside: SetAside) -> str:
    lines = sum(kind.count for kind in aside.kinds.values())
    return f"none of its {lines} lines can be read; " if lines > 1 else ""
