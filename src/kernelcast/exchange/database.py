"""Reading a MetaSchedule database line by line, so that one bad line costs itself alone."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.exchange.foreign import kind_of, module_writer, unpacked_module
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, NAMES_FILE
from kernelcast.exchange.set_aside import SetAside
from kernelcast.records import Workload
from kernelcast.tvm_compat import parse_module, structural_key, trace_fault, tvm_versions

TORN = "the last line is torn (its writer was killed, or the disk was full)"
NO_WORKLOAD = "not a workload"
UNREADABLE_WORKLOAD = "a workload that cannot be read"
NO_RECORD = "not a tuning record"
WITHOUT_WORKLOAD = "a record of a workload that cannot be read"


@dataclass(frozen=True)
class TuningRecord:
    """One line of `database_tuning_record.json`.

    Attributes:
        line: its number, from 1.
        workload: the workload's line in the other file, from 0.
        trace: the schedule trace as JSON.
        run_seconds: what is stored as run times, marks of failures included.
        target: the TVM target as JSON, keys sorted.
        arguments: what TVM says of the arguments, as JSON.
    """

    line: int
    workload: int
    trace: str
    run_seconds: tuple[float, ...]
    target: str
    arguments: str


def database_file(folder: Path, name: str) -> Path:
    """The file `name` of a database, or the same packed by gzip.

    Raises:
        MissingInputError: there is neither.
    """
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise MissingInputError(
        f"{folder / name} does not exist: a MetaSchedule database is a folder with {DATABASE_WORKLOADS} and "
        f"{DATABASE_RECORDS}; name one that has both"
    )


def read_workloads(path: Path, aside: SetAside) -> dict[int, Workload]:
    """The workloads of `database_workload.json`, by line from 0; of another TVM's the traces alone can be read."""
    names = _names(path.with_name(NAMES_FILE))
    workloads = {}
    for number, line, last in _lines(path):
        try:
            stated, packed = json.loads(line)
            stated_key = f"{int(stated) % 2**64:016x}"
            text = unpacked_module(packed)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            aside.add(TORN if last else NO_WORKLOAD, path, number, _first_line(error))
            continue
        written_by = ""
        try:
            if structural_key(parse_module(text)) != stated_key:
                raise MalformedDataError("its hash is not the one that is stated: it was changed")
        except (MalformedDataError, ValueError, TypeError) as error:
            written_by = module_writer(text)
            if written_by in ("", tvm_versions()["apache-tvm"]):
                aside.add(UNREADABLE_WORKLOAD, path, number, _first_line(error))
                continue
        known = names.get(stated_key, {})
        kind = str(known.get("kind") or kind_of(text))
        workloads[number - 1] = Workload(
            key=stated_key,
            name=str(known.get("name") or f"{kind}_{stated_key[:8]}"),
            kind=kind,
            arguments=dict(known.get("arguments") or {}),
            module=text,
            networks=dict(known.get("networks") or {}),
            written_by=written_by,
        )
    return workloads


def read_records(path: Path, aside: SetAside) -> Iterator[TuningRecord]:
    """The records of `database_tuning_record.json`, in their order."""
    for number, line, last in _lines(path):
        try:
            yield _record(number, _parsed(line))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            aside.add(TORN if last else NO_RECORD, path, number, _first_line(error))


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Number from 1, content, and whether it is a last line without an end."""
    number = 0
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        try:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield number, line, not line.endswith(b"\n")
        except (EOFError, OSError) as error:
            raise MalformedDataError(f"{path}:{number + 1}: cannot be read: {error}; get a whole copy of it") from error


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        # Python's parser also reads NaN and Infinity, as which some writers store failures
        return json.loads(line)


def _record(number: int, raw: Any) -> TuningRecord:
    workload, (trace, seconds, target, *rest) = raw
    if isinstance(workload, bool) or not isinstance(workload, int):
        raise TypeError(f"the number of the workload is {workload!r}")
    fault = trace_fault(trace)
    if fault:
        raise TypeError(f"the trace: {fault}")
    if not isinstance(target, dict) or "kind" not in target:
        raise TypeError(f"the target is {target!r}, not a dict with a kind")
    seconds = [] if seconds is None else seconds
    if not isinstance(seconds, list) or not all(type(one) in (int, float) for one in seconds):
        raise TypeError(f"the run times are {seconds!r}, not numbers")
    arguments = rest[0] if rest else []
    return TuningRecord(
        line=number,
        workload=workload,
        trace=orjson.dumps(trace).decode(),
        run_seconds=tuple(float(one) for one in seconds),
        target=json.dumps(target, sort_keys=True),
        arguments=json.dumps(arguments if isinstance(arguments, list) else []),
    )


def _names(path: Path) -> dict[str, dict[str, Any]]:
    """What `export` wrote about the workloads, by key; nothing where it is not there or not what was written."""
    try:
        return {entry["key"]: entry for entry in json.loads(path.read_text())}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
