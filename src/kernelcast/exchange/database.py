"""Reading a MetaSchedule database line by line, so that one bad line costs itself alone."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, NAMES_FILE
from kernelcast.exchange.set_aside import SetAside
from kernelcast.records import Workload
from kernelcast.tvm_compat import parse_module, structural_key, tvm_versions

LENGTH_BYTES = 8
"""TVM puts the length of the module's text before it."""

TORN = "the last line is torn (its writer was killed, or the disk was full)"
NO_WORKLOAD = "not a workload"
FOREIGN_WORKLOAD = "a workload that cannot be read"
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
    """

    line: int
    workload: int
    trace: str
    run_seconds: tuple[float, ...]
    target: str


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
        f"{DATABASE_RECORDS}; name it with source=FOLDER"
    )


def read_workloads(path: Path, aside: SetAside) -> dict[int, Workload]:
    """The workloads of `database_workload.json` that this TVM can load, by line from 0."""
    names = _names(path.with_name(NAMES_FILE))
    workloads = {}
    for number, line, last in _lines(path):
        try:
            stated, packed = json.loads(line)
            content = base64.b64decode(packed, validate=True)
            text = content[LENGTH_BYTES:].decode()
            if len(text.encode()) != int.from_bytes(content[:LENGTH_BYTES], "little"):
                raise ValueError("the module has another length than is stated before it")
        except (ValueError, TypeError, RecursionError) as error:
            aside.add(TORN if last else NO_WORKLOAD, path, number, _first_line(error))
            continue
        try:
            key = structural_key(parse_module(text))
            if int(key, 16) != int(stated) % 2**64:
                raise MalformedDataError(
                    "its hash is not the one that is stated: it was changed, or made by another TVM"
                )
        except (MalformedDataError, ValueError, TypeError) as error:
            aside.add(FOREIGN_WORKLOAD, path, number, _why_foreign(text, error))
            continue
        known = names.get(key, {})
        kind = str(known.get("kind") or _kind_of(text))
        workloads[number - 1] = Workload(
            key=key,
            name=str(known.get("name") or f"{kind}_{key[:8]}"),
            kind=kind,
            arguments=dict(known.get("arguments") or {}),
            module=text,
            networks=dict(known.get("networks") or {}),
        )
    return workloads


def read_records(path: Path, aside: SetAside) -> Iterator[TuningRecord]:
    """The records of `database_tuning_record.json`, in their order."""
    for number, line, last in _lines(path):
        try:
            yield _record(number, json.loads(line))
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


def _record(number: int, raw: Any) -> TuningRecord:
    workload, (trace, seconds, target, *_) = raw
    if isinstance(workload, bool) or not isinstance(workload, int):
        raise TypeError(f"the number of the workload is {workload!r}")
    if not (isinstance(trace, list) and len(trace) == 2 and all(isinstance(part, list) for part in trace)):
        raise TypeError("the trace is not a pair of instructions and decisions")
    if not isinstance(target, dict) or "kind" not in target:
        raise TypeError(f"the target is {target!r}, not a dict with a kind")
    seconds = [] if seconds is None else seconds
    if not isinstance(seconds, list) or not all(type(one) in (int, float) for one in seconds):
        raise TypeError(f"the run times are {seconds!r}, not numbers")
    return TuningRecord(
        line=number,
        workload=workload,
        trace=json.dumps(trace, separators=(",", ":")),
        run_seconds=tuple(float(one) for one in seconds),
        target=json.dumps(target, sort_keys=True),
    )


def _why_foreign(text: str, error: Exception) -> str:
    here = tvm_versions()["apache-tvm"]
    writer = module_writer(text)
    if writer and writer != here:
        return f"the module was written by TVM {writer}, which TVM {here} cannot load"
    return _first_line(error)


def module_writer(text: str) -> str:
    """The version of the TVM that wrote a module's JSON; empty where it does not say."""
    try:
        raw = json.loads(text)
        # newer ones say it in `metadata`, those until 0.21 in `attrs`
        return str((raw.get("metadata") or raw.get("attrs") or {}).get("tvm_version", ""))
    except (ValueError, AttributeError):
        return ""


def _kind_of(text: str) -> str:
    """What the module computes, by the names of its blocks: the first one that reduces, else the last one."""
    nodes = json.loads(text)["nodes"]
    blocks = [node["data"] for node in nodes if str(node.get("type")).endswith(".SBlock")]
    names = [(str(nodes[block["name_hint"]]["data"]), nodes[block["init"]]["type"] != "None") for block in blocks]
    inner = [(name, reduces) for name, reduces in names if name != "root"]
    reducing = [name for name, reduces in inner if reduces]
    return reducing[0] if reducing else inner[-1][0] if inner else "program"


def _names(path: Path) -> dict[str, dict[str, Any]]:
    """What `export` wrote about the workloads, by key; nothing where it is not there or not what was written."""
    try:
        return {entry["key"]: entry for entry in json.loads(path.read_text())}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
