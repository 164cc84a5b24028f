"""`Programs` as a folder: shards of views, a few columns over all programs, and what is known of them as a whole.

    meta.json           version, options, workloads, targets, shards, hashes
    log_seconds.npy ... the columns of `COLUMNS`, one row a program
    shards/NAME/        see `shards`
    splits/NAME.json    see `splits`

Opening reads `meta.json` alone and maps the columns, so it takes as long for a million programs as for ten.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.files import json_hash, read_json, require, unreadable, write_json
from kernelcast.graphs import dataflow, trace
from kernelcast.graphs.dataset.shards import ShardInfo, StoredView, read_shard_info, shard_hash, store_hash, write_shard
from kernelcast.graphs.machine_code.columns import MACHINE_CODE_VERSION
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import MACHINE_CODE
from kernelcast.graphs.vocabulary import DTYPES, EDGE_KINDS, FEATURE_VERSION, NODE_KINDS
from kernelcast.machine import Calibration

STORE_VERSION = 2
"""Version of the folder; a change of its files or of their meaning raises it."""

META_FILE = "meta.json"
SHARDS_FOLDER = "shards"
COLUMNS = ("log_seconds", "workload", "target", "program_key")
"""One row a program each, in the order of the shards."""


@dataclass(frozen=True)
class StoredWorkload:
    """A workload of the data set.

    Attributes:
        key: structural hash of the unscheduled module.
        name: what the user calls it.
        kind: operator kind.
        arguments: shapes and settings it was made with, as far as they are known.
        networks: how often it occurs in which networks.
    """

    key: str
    name: str
    kind: str
    arguments: dict[str, Any]
    networks: dict[str, int]


@dataclass(frozen=True)
class StoredTarget:
    """What some of the programs were measured on.

    Attributes:
        target: the TVM target as a dict.
        host: the processor or device that measured; empty where nobody knows.
        machine: its figures; None where nobody knows.
        measurements_hash: hash of the measurements that came from it.
    """

    target: dict[str, Any]
    host: str
    machine: Machine | None
    measurements_hash: str

    @property
    def label(self) -> str:
        """The target as JSON with the host in it, by which splits and tables tell targets apart."""
        return json.dumps({**self.target, **({"host": self.host} if self.host else {})}, sort_keys=True)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> StoredTarget:
        """What `dataclasses.asdict` made of one.

        Raises:
            TypeError: something else; so do KeyError and ValueError.
        """
        return cls(**{**raw, "machine": None if raw["machine"] is None else _machine(raw["machine"])})


@dataclass(frozen=True)
class Description:
    """What the models do not look at, but a reader of the data wants to know.

    Attributes:
        workloads: in the order of `Programs.workload_names`.
        targets: in the order of `Programs.targets`.
        label: how repeats became one time.
        options: which views were built, and how.
        dropped: measurements without a label or a program, by reason.
        reference_correction: whether repeats were corrected for the machine's state, one of `labels.CORRECTIONS`.
        spread_limit: programs whose repeats spread more were flagged; None where none were.
        flagged: flagged programs that were kept.
        uncorrected: programs that were to be corrected and could not be, for want of a reference time.
    """

    workloads: tuple[StoredWorkload, ...]
    targets: tuple[StoredTarget, ...]
    label: str
    options: ViewOptions
    dropped: dict[str, int] = field(default_factory=dict)
    reference_correction: str = "none"
    spread_limit: float | None = None
    flagged: int = 0
    uncorrected: int = 0

    @property
    def measurements_hash(self) -> str:
        """One hash over the measurements of all targets."""
        hashes = [target.measurements_hash for target in self.targets]
        return hashes[0] if len(hashes) == 1 else json_hash(hashes)


def feature_version(options: ViewOptions, columns: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Hash of everything that decides what a column, a node or a step means.

    Args:
        options: which views are built, and how.
        columns: column names by view and field.
    """
    tables: list[Any] = [NODE_KINDS, EDGE_KINDS, DTYPES, dataflow.OPCODES, dataflow.EDGE_KINDS, trace.PRIMITIVES]
    if MACHINE_CODE in columns:
        # a column may come to mean something else without another name
        tables.append(MACHINE_CODE_VERSION)
    named = {view: {name: list(names) for name, names in fields.items()} for view, fields in columns.items()}
    return json_hash([FEATURE_VERSION, tables, named, dataclasses.asdict(options)])


def write_store(
    directory: Path, shards: Sequence[ShardInfo], columns: Mapping[str, np.ndarray], description: Description
) -> str:
    """Writes everything but the shards, which are in `directory` already, and the splits.

    Args:
        directory: an existing folder, normally one of `files.atomic_directory`.
        shards: in the order of the rows.
        columns: an array for each of `COLUMNS`.
        description: what is known of the programs as a whole.

    Returns:
        The hash of the data.
    """
    for name in COLUMNS:
        np.save(directory / f"{name}.npy", columns[name], allow_pickle=False)
    data_hash = store_hash(shards, {name: columns[name] for name in COLUMNS})
    meta = {
        "version": STORE_VERSION,
        "data_hash": data_hash,
        "feature_version": feature_version(description.options, shards[0].columns),
        "columns": shards[0].columns,
        "programs": len(columns["log_seconds"]),
        "shards": [[shard.name, shard.programs, shard.made_of, shard.content] for shard in shards],
        "description": dataclasses.asdict(description),
    }
    write_json(directory / META_FILE, {**meta, "hash": json_hash(meta)})
    return data_hash


def write_programs(directory: Path, programs: Programs, description: Description, shard_programs: int = 4096) -> str:
    """Writes programs from wherever their views are now: a part of a store, or programs made in memory.

    Returns:
        The hash of the data.
    """
    shards = []
    for number, start in enumerate(range(0, len(programs), shard_programs)):
        rows = np.arange(start, min(start + shard_programs, len(programs)), dtype=np.int64)
        folder = directory / SHARDS_FOLDER / f"{number:05d}"
        views = {name: programs.view(name, rows) for name in programs.sources}
        write_shard(folder, programs.feature_version, views, rows - start)
        shards.append(read_shard_info(folder))
    return write_store(directory, shards, {name: getattr(programs, name) for name in COLUMNS}, description)


def read_programs(directory: Path) -> Programs:
    """Opens the programs of a folder: maps columns and, when they are needed, shards.

    Raises:
        MissingInputError: there is none.
        MalformedDataError: a file is torn, or written by another version.
    """
    meta = _read_meta(directory)
    description = _description(meta, directory)
    columns = {name: _column(directory / f"{name}.npy", meta["programs"]) for name in COLUMNS}
    names, sizes, _, contents = zip(*meta["shards"], strict=True)
    folders = [directory / SHARDS_FOLDER / name for name in names]
    return Programs(
        sources={
            name: StoredView(name, folders, contents, sizes, fields) for name, fields in _named(meta["columns"]).items()
        },
        rows=np.arange(meta["programs"], dtype=np.int64),
        log_seconds=columns["log_seconds"],
        workload=columns["workload"],
        workload_names=tuple(workload.name for workload in description.workloads),
        target=columns["target"],
        targets=tuple(target.label for target in description.targets),
        machines=tuple(target.machine for target in description.targets),
        program_key=columns["program_key"],
        feature_version=meta["feature_version"],
    )


def check_store(directory: Path) -> None:
    """Reads all arrays of a folder and makes sure that they are what was written.

    Raises:
        MalformedDataError: one was changed; says which.
    """
    meta = _read_meta(directory)
    shards = []
    for name, _, _, content in meta["shards"]:
        folder = directory / SHARDS_FOLDER / name
        shards.append(read_shard_info(folder))
        if shard_hash(folder) != content:
            raise MalformedDataError(f"an array in {folder} was changed since it was written; run `dvc repro graphs`")
    columns = {name: _column(directory / f"{name}.npy", meta["programs"]) for name in COLUMNS}
    if store_hash(shards, columns) != meta["data_hash"]:
        raise MalformedDataError(
            f"the arrays in {directory} do not belong together, or were changed; run `dvc repro graphs`"
        )


def read_description(directory: Path) -> Description:
    """Reads what is known of the programs beside their arrays; raises as `read_programs` does."""
    return _description(_read_meta(directory), directory)


def read_data_hash(directory: Path) -> str:
    """The hash over the content of all arrays; raises as `read_programs` does."""
    return str(_read_meta(directory)["data_hash"])


def _read_meta(directory: Path) -> dict[str, Any]:
    path = directory / META_FILE
    meta = read_json(path, "graphs")
    version = meta.get("version") if isinstance(meta, dict) else None
    if version != STORE_VERSION:
        raise MalformedDataError(
            f"{path} has version {version}, this kernelcast reads {STORE_VERSION}; run `dvc repro graphs`"
        )
    needed = {"hash", "data_hash", "feature_version", "columns", "programs", "shards", "description"}
    missing = sorted(needed - set(meta))
    if missing:
        raise MalformedDataError(f"{path} lacks {', '.join(missing)}; run `dvc repro graphs`")
    if meta.pop("hash") != json_hash(meta):
        raise MalformedDataError(f"{path} was changed since it was written; run `dvc repro graphs`")
    expected = feature_version(_description(meta, directory).options, meta["columns"])
    if meta["feature_version"] != expected:
        raise MalformedDataError(
            f"{path} has feature version {meta['feature_version']}, this kernelcast computes {expected}; "
            "run `dvc repro graphs`"
        )
    return meta


def _description(meta: dict[str, Any], directory: Path) -> Description:
    raw = meta["description"]
    try:
        return Description(
            **raw
            | {
                "workloads": tuple(StoredWorkload(**entry) for entry in raw["workloads"]),
                "targets": tuple(StoredTarget.from_json(entry) for entry in raw["targets"]),
                "options": ViewOptions(**raw["options"]),
            }
        )
    except (TypeError, KeyError, ValueError, ConfigError) as error:
        raise MalformedDataError(
            f"{directory / META_FILE} describes its programs otherwise than expected ({error}); run `dvc repro graphs`"
        ) from error


def _machine(raw: dict[str, Any]) -> Machine:
    return Machine(**{**raw, "calibration": Calibration.from_json(raw.get("calibration"))})


def _named(columns: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, tuple[str, ...]]]:
    return {view: {name: tuple(names) for name, names in fields.items()} for view, fields in columns.items()}


def _column(path: Path, programs: int) -> np.ndarray:
    require(path, "graphs")
    try:
        array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError, EOFError) as error:
        raise unreadable(path, "graphs", error) from error
    if array.shape != (programs,):
        raise MalformedDataError(f"{path} has shape {list(array.shape)}, expected [{programs}]; run `dvc repro graphs`")
    return array
