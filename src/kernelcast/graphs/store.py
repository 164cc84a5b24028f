"""`Programs` as a folder of flat arrays that is memory-mapped in milliseconds.

One `.npy` file an array, `meta.json` with everything that is no array, and `splits/NAME.json`. The hash in `meta.json`
covers the content of all arrays: equal hashes, equal data.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import MalformedDataError
from kernelcast.files import json_hash, read_json, require, unreadable, write_json
from kernelcast.graphs.ast import AstOptions
from kernelcast.graphs.programs import AstGraphs, FlatFeatures, Machine, Programs
from kernelcast.graphs.vocabulary import EDGE_KINDS, FEATURE_VERSION, NODE_FEATURES, NODE_KINDS

STORE_VERSION = 1
"""Version of the folder; a change of its files or of their meaning raises it."""

META_FILE = "meta.json"
AST_ARRAYS = tuple(field.name for field in dataclasses.fields(AstGraphs))
ROW_ARRAYS = ("features", "log_seconds", "workload", "program_key")


@dataclass(frozen=True)
class Description:
    """What the models do not look at, but a reader of the data wants to know.

    Attributes:
        workload_keys: structural hash of each workload, in the order of `Programs.workload_names`.
        workload_kinds: operator kind of each.
        target: the TVM target as a dict.
        label: how repeats became one time.
        options: which parts of the trees were kept.
        dropped: measurements without a label or a program, by reason.
        measurements_hash: hash of the measurements that all this came from.
        reference_correction: whether repeats were corrected for the machine's state, one of `labels.CORRECTIONS`.
        spread_limit: programs whose repeats spread more were flagged; None where none were.
        flagged: flagged programs that were kept.
        uncorrected: programs that were to be corrected and could not be, for want of a reference time.
    """

    workload_keys: tuple[str, ...]
    workload_kinds: tuple[str, ...]
    target: dict[str, Any]
    label: str
    options: AstOptions
    dropped: dict[str, int]
    measurements_hash: str
    reference_correction: str = "none"
    spread_limit: float | None = None
    flagged: int = 0
    uncorrected: int = 0


def feature_version(options: AstOptions, feature_names: tuple[str, ...]) -> str:
    """Hash of everything that decides what a column or a node means."""
    tables = [
        FEATURE_VERSION,
        NODE_KINDS,
        EDGE_KINDS,
        [feature.name for feature in NODE_FEATURES],
        feature_names,
        dataclasses.asdict(options),
    ]
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()[:16]


def write_programs(directory: Path, programs: Programs, description: Description) -> str:
    """Writes programs into an existing folder, normally one of `files.atomic_directory`.

    Returns:
        The hash of the data.
    """
    arrays: dict[str, np.ndarray] = {name: getattr(programs.ast, name) for name in AST_ARRAYS}
    arrays |= {
        "features": programs.features.values,
        "log_seconds": programs.log_seconds,
        "workload": programs.workload,
        "program_key": programs.program_key,
    }
    for name, array in arrays.items():
        np.save(directory / f"{name}.npy", array, allow_pickle=False)
    data_hash = _data_hash(programs.feature_version, arrays)
    meta = {
        "version": STORE_VERSION,
        "data_hash": data_hash,
        "feature_version": programs.feature_version,
        "feature_names": programs.features.names,
        "workload_names": programs.workload_names,
        "machine": None if programs.machine is None else dataclasses.asdict(programs.machine),
        "shapes": {name: array.shape for name, array in arrays.items()},
        **dataclasses.asdict(description),
    }
    write_json(directory / META_FILE, {**meta, "hash": json_hash(meta)})
    return data_hash


def read_programs(directory: Path) -> Programs:
    """Maps the programs of a folder into memory, after one pass over them to see that they are what was written.

    Raises:
        MissingInputError: there is none.
        MalformedDataError: a file is torn, or written by another version.
    """
    meta = _read_meta(directory)
    arrays = {name: _map(directory / f"{name}.npy", meta["shapes"].get(name)) for name in AST_ARRAYS + ROW_ARRAYS}
    programs = Programs(
        ast=AstGraphs(**{name: arrays[name] for name in AST_ARRAYS}),
        features=FlatFeatures(arrays["features"], tuple(meta["feature_names"])),
        log_seconds=arrays["log_seconds"],
        workload=arrays["workload"],
        workload_names=tuple(meta["workload_names"]),
        program_key=arrays["program_key"],
        machine=_machine(meta),
        feature_version=meta["feature_version"],
    )
    if _data_hash(programs.feature_version, arrays) != meta["data_hash"]:
        raise MalformedDataError(
            f"the arrays in {directory} do not belong together, or were changed; run `dvc repro graphs`"
        )
    return programs


def read_description(directory: Path) -> Description:
    """Reads what is known of the programs beside their arrays; raises as `read_programs` does."""
    meta = _read_meta(directory)
    fields = {field.name: meta[field.name] for field in dataclasses.fields(Description)}
    return Description(
        **fields
        | {
            "workload_keys": tuple(meta["workload_keys"]),
            "workload_kinds": tuple(meta["workload_kinds"]),
            "options": AstOptions(**meta["options"]),
        }
    )


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
    needed = {"hash", "data_hash", "feature_version", "feature_names", "workload_names", "machine", "shapes"}
    needed |= {field.name for field in dataclasses.fields(Description)}
    missing = sorted(needed - set(meta))
    if missing:
        raise MalformedDataError(f"{path} lacks {', '.join(missing)}; run `dvc repro graphs`")
    if meta.pop("hash") != json_hash(meta):
        raise MalformedDataError(f"{path} was changed since it was written; run `dvc repro graphs`")
    try:
        options, _ = AstOptions(**meta["options"]), _machine(meta)
    except TypeError as error:
        raise MalformedDataError(
            f"{path}: options or machine has other fields than expected ({error}); run `dvc repro graphs`"
        ) from error
    expected = feature_version(options, tuple(meta["feature_names"]))
    if meta["feature_version"] != expected:
        raise MalformedDataError(
            f"{path} has feature version {meta['feature_version']}, this kernelcast computes {expected}; "
            "run `dvc repro graphs`"
        )
    return meta


def _machine(meta: dict[str, Any]) -> Machine | None:
    return None if meta["machine"] is None else Machine(**meta["machine"])


def _data_hash(version: str, arrays: dict[str, np.ndarray]) -> str:
    """A hash over names, types, shapes and content of all arrays, in the order of `AST_ARRAYS + ROW_ARRAYS`."""
    digest = hashlib.sha256(version.encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()[:16]


def _map(path: Path, shape: list[int] | None) -> np.ndarray:
    require(path, "graphs")
    try:
        # an empty array cannot be mapped
        array: np.ndarray = np.load(
            path, mmap_mode="r" if shape is None or 0 not in shape else None, allow_pickle=False
        )
    except (ValueError, OSError, EOFError) as error:
        raise unreadable(path, "graphs", error) from error
    if shape is None or list(array.shape) != list(shape):
        raise MalformedDataError(f"{path} has shape {list(array.shape)}, expected {shape}; run `dvc repro graphs`")
    return array
