"""A shard: the views of a few thousand programs as one folder of arrays, opened in milliseconds and read in place.

One `.npy` file an array, named `VIEW.FIELD.npy`, and `shard.json` with everything that is no array. A shard is there
whole or not at all, and says what made it, so that a build that was killed goes on and never takes what an older one,
or one with other options, left behind.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import MalformedDataError
from kernelcast.files import atomic_directory, json_hash, read_json, require, unreadable, write_json
from kernelcast.graphs.ragged import View, gathered, offset_name
from kernelcast.graphs.views import VIEW_TYPES

SHARD_VERSION = 1
"""Version of the folder of a shard; a change of its files or of their meaning raises it."""

SHARD_FILE = "shard.json"
JOBS_FILE = "job.npy"

OPEN_SHARDS = 256
"""Shards of one view that stay mapped: the system bounds the mappings of a process (65,530 by default on Linux)."""


@dataclass(frozen=True)
class ShardInfo:
    """What the store has to know of a shard without opening it.

    Attributes:
        name: its folder.
        made_of: hash of the code, options and programs that made it.
        programs: how many it holds.
        content: hash of all its arrays.
        columns: column names by view and field.
    """

    name: str
    made_of: str
    programs: int
    content: str
    columns: dict[str, dict[str, tuple[str, ...]]]


def write_shard(
    directory: Path,
    made_of: str,
    views: Mapping[str, View],
    job: Int64[np.ndarray, " programs"],
) -> None:
    """Writes a shard, whole or not at all.

    Args:
        directory: its folder.
        made_of: hash of what made it.
        views: the views of its programs, by name.
        job: which of the programs that were asked for each is: some may have been left out.
    """
    digest = hashlib.sha256()
    described: dict[str, Any] = {}
    with atomic_directory(directory) as folder:
        _save(folder / JOBS_FILE, job, digest)
        for name, view in sorted(views.items()):
            for field in _array_fields(type(view)):
                _save(folder / _file_of(name, field), getattr(view, field), digest)
            described[name] = view.columns()
        write_json(
            folder / SHARD_FILE,
            {
                "version": SHARD_VERSION,
                "made_of": made_of,
                "programs": len(job),
                "content": digest.hexdigest()[:16],
                "columns": described,
                "bytes": {path.name: path.stat().st_size for path in sorted(folder.glob("*.npy"))},
            },
        )


def read_shard_info(directory: Path) -> ShardInfo:
    """What a shard says of itself.

    Raises:
        MissingInputError: there is none.
        MalformedDataError: of another version, or files are missing or cut off.
    """
    raw = read_json(directory / SHARD_FILE, "graphs")
    if not isinstance(raw, dict) or raw.get("version") != SHARD_VERSION:
        raise MalformedDataError(f"{directory} is no shard of version {SHARD_VERSION}; run `dvc repro graphs`")
    for name, size in raw["bytes"].items():
        path = directory / name
        require(path, "graphs")
        if path.stat().st_size != size:
            raise MalformedDataError(
                f"{path} has {path.stat().st_size} bytes, it was written with {size}; run `dvc repro graphs`"
            )
    columns = {
        view: {field: tuple(names) for field, names in fields.items()} for view, fields in raw["columns"].items()
    }
    return ShardInfo(directory.name, raw["made_of"], raw["programs"], raw["content"], columns)


def shard_jobs(directory: Path) -> Int64[np.ndarray, " programs"]:
    """Which of the programs that were asked for each program of a shard is."""
    return _map(directory / JOBS_FILE)


def shard_hash(directory: Path) -> str:
    """The hash of all arrays of a shard as they are now: reads all of it."""
    digest = hashlib.sha256()
    columns = read_shard_info(directory).columns
    files = [JOBS_FILE]
    files += [_file_of(name, field) for name in sorted(columns) for field in _array_fields(VIEW_TYPES[name])]
    for file in files:
        _digest(_map(directory / file), digest)
    return digest.hexdigest()[:16]


class StoredView:
    """One view of all programs of a store, as a source of `Programs`: maps a shard when it is first needed.

    Args:
        name: of the view.
        folders: the shards.
        contents: hash of the arrays of each shard.
        programs: programs of each shard.
        columns: column names by field.
    """

    def __init__(
        self,
        name: str,
        folders: Sequence[Path],
        contents: Sequence[str],
        programs: Sequence[int],
        columns: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.name = name
        self._folders = tuple(folders)
        self._contents = tuple(contents)
        self._start = np.concatenate([[0], np.cumsum(programs, dtype=np.int64)]).astype(np.int64)
        self._columns = dict(columns)
        self._open: OrderedDict[int, View] = OrderedDict()
        self._counts: dict[str, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which maps the shards itself: the open ones would travel as copies."""
        return {**vars(self), "_open": OrderedDict()}

    def __len__(self) -> int:
        return int(self._start[-1])

    def columns(self) -> dict[str, tuple[str, ...]]:
        """The column names by field."""
        return dict(self._columns)

    def counts(self, axis: str) -> Int64[np.ndarray, " programs"]:
        """Rows along `axis` of each program; reads the offsets of all shards once."""
        if axis not in self._counts:
            counts = [self._shard(number).counts(axis) for number in range(len(self._folders))]
            self._counts[axis] = np.concatenate(counts)
        return self._counts[axis]

    def select(self, rows: Int64[np.ndarray, " rows"]) -> View:
        """The programs of `rows`, in that order, in memory; touches only the pages that hold them."""
        rows = np.asarray(rows, dtype=np.int64)
        shard = np.searchsorted(self._start, rows, side="right") - 1
        used = np.unique(shard)
        if len(used) == 0:
            return self._shard(0).select(rows)
        parts = []
        for number in used.tolist():
            places = np.flatnonzero(shard == number)
            parts.append((self._shard(number), rows[places] - self._start[number], places))
        return VIEW_TYPES[self.name](**gathered(parts, len(rows)))

    def _shard(self, number: int) -> View:
        view = self._open.get(number)
        if view is None:
            view = self._open[number] = self._opened(self._folders[number], self._contents[number])
            if len(self._open) > OPEN_SHARDS:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(number)
        return view

    def _opened(self, folder: Path, content: str) -> View:
        info = read_shard_info(folder)
        if info.content != content or info.columns.get(self.name) != self._columns:
            raise MalformedDataError(
                f"{folder} is a shard of other data than the ones beside it; run `dvc repro graphs`"
            )
        kind = VIEW_TYPES[self.name]
        arrays = {field: _map(folder / _file_of(self.name, field)) for field in _array_fields(kind)}
        return kind(**self._columns, **arrays)


def _array_fields(kind: type[View]) -> list[str]:
    return [*map(offset_name, kind.ragged_axes()), *kind.array_axes()]


def _file_of(view: str, field: str) -> str:
    return f"{view}.{field}.npy"


def _save(path: Path, array: np.ndarray, digest: Any) -> None:
    np.save(path, array, allow_pickle=False)
    _digest(array, digest)


def _digest(array: np.ndarray, digest: Any) -> None:
    digest.update(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")


def _map(path: Path) -> np.ndarray:
    require(path, "graphs")
    try:
        # a plain array on the same memory: the subclass costs time at every slice
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError, EOFError) as error:
        raise unreadable(path, "graphs", error) from error


def store_hash(shards: Sequence[ShardInfo], columns: Mapping[str, np.ndarray]) -> str:
    """The hash over the content of all shards and of the columns beside them."""
    digest = hashlib.sha256(json_hash([shard.content for shard in shards]).encode())
    for name, array in columns.items():
        digest.update(name.encode())
        _digest(array, digest)
    return digest.hexdigest()[:16]
