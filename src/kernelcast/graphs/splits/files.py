"""Split lists as files beside the programs that they split.

`splits/NAME.json` says what is where, for people and for other tools: the workloads of each part with their keys, the
rules, what made it. `splits/NAME.npy` has one entry a row of the programs: its part, workload, target and program key.
Both are hashed; whoever reads them gets a split whose rules were checked again.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.files import atomic_file, json_hash, read_json, require, unreadable, write_json
from kernelcast.graphs.splits.leaks import check_no_leak
from kernelcast.graphs.splits.protocol import PARTS, WHAT, Rule, Split
from kernelcast.graphs.splits.rows import Rows, SplitWorkload, as_bytes, numbers_in

SPLITS_FOLDER = "splits"
SPLIT_VERSION = 2


def write_split(
    directory: Path, name: str, split: Split, rows: Rows, data_hash: str, made_by: Mapping[str, Any]
) -> None:
    """Writes a split beside the programs that it splits.

    Args:
        directory: the folder of the programs.
        name: what training calls it.
        split: the split.
        rows: what was split.
        data_hash: of the programs; rows mean nothing without them.
        made_by: target, settings and seed of the splitter, for whoever reads the file.
    """
    table = _table(split, rows)
    folder = directory / SPLITS_FOLDER
    with atomic_file(folder / f"{name}.npy") as temporary, temporary.open("wb") as stream:
        np.save(stream, table, allow_pickle=False)
    content = {
        "version": SPLIT_VERSION,
        "data_hash": data_hash,
        "made_by": dict(made_by),
        "rules": [dataclasses.asdict(rule) for rule in split.rules],
        **_summary(split, rows),
        "rows": {"file": f"{name}.npy", "count": len(rows), "hash": _table_hash(table)},
        "workloads": [dataclasses.asdict(workload) for workload in rows.workloads],
        "targets": list(rows.targets),
    }
    write_json(folder / f"{name}.json", {**content, "hash": json_hash(content)})


def split_names(directory: Path) -> list[str]:
    """Names of the splits of a folder of programs."""
    return _names(directory / SPLITS_FOLDER)


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.json"))


def split_files(folder: Path, name: str) -> tuple[Path, Path]:
    """The files of the split `name` in a folder of splits: what is said about it, and its rows."""
    return folder / f"{name}.json", folder / f"{name}.npy"


def read_split(directory: Path, name: str, folder: Path | None = None) -> Split:
    """Reads the split `name` of a folder of programs and checks that it holds what its rules say.

    Args:
        directory: the folder of the programs.
        name: of the split.
        folder: where its files are, if not in `directory`: those that a run has kept.

    Raises:
        ConfigError: there is none of that name; the message lists those there are.
        MalformedDataError: a file was changed, belongs to other programs, or has something on two sides.
    """
    content = _read_content(directory, name, folder)
    path, table_path = split_files(folder or directory / SPLITS_FOLDER, name)
    table = _read_table(table_path, content, path)
    try:
        reasons = sorted(content["left_out"])
        if len(table) and not 0 <= int(table["part"].min()) <= int(table["part"].max()) < len(PARTS) + len(reasons):
            raise ValueError("a row is in a part that there is not")
        train, valid, test = (np.flatnonzero(table["part"] == number) for number in range(len(PARTS)))
        split = Split(
            train,
            valid,
            test,
            left_out={
                reason: np.flatnonzero(table["part"] == len(PARTS) + number) for number, reason in enumerate(reasons)
            },
            rules=tuple(_rule(raw) for raw in content["rules"]),
        )
        rows = Rows(
            workload=table["workload"].astype(np.int64),
            target=table["target"].astype(np.int64),
            program_key=table["program_key"],
            workloads=tuple(SplitWorkload(**raw) for raw in content["workloads"]),
            targets=tuple(content["targets"]),
        )
        if _summary(split, rows) != {key: content[key] for key in ("parts", "left_out")}:
            raise ValueError("it lists other workloads than its rows have")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise _malformed(path, directory, error) from error
    check_no_leak(split, rows)
    return split


def read_split_hash(directory: Path, name: str, folder: Path | None = None) -> str:
    """The hash over a split and the programs that it splits; arguments and errors as of `read_split`."""
    return json_hash(_read_content(directory, name, folder))


def _table(split: Split, rows: Rows) -> np.ndarray:
    """One entry a row: parts count from 0 in the order of `PARTS`, then reasons to be left out by name."""
    keys = as_bytes(rows.program_key)
    table = np.zeros(
        len(rows), dtype=[("part", "i1"), ("workload", "<i4"), ("target", "<i2"), ("program_key", keys.dtype.str)]
    )
    table["workload"], table["target"], table["program_key"] = rows.workload, rows.target, keys
    left_out = [split.left_out[reason] for reason in sorted(split.left_out)]
    for number, numbers in enumerate([numbers for _, numbers in split.parts()] + left_out):
        table["part"][numbers] = number
    return table


def _table_hash(table: np.ndarray) -> str:
    digest = hashlib.sha256(f"{table.dtype.descr} {table.shape}".encode())
    digest.update(np.ascontiguousarray(table).tobytes())
    return digest.hexdigest()[:16]


def _summary(split: Split, rows: Rows) -> dict[str, Any]:
    return {
        "parts": {part: _part_summary(numbers, rows) for part, numbers in split.parts()},
        "left_out": {reason: _part_summary(numbers, rows) for reason, numbers in split.left_out.items()},
    }


def _part_summary(numbers: np.ndarray, rows: Rows) -> dict[str, Any]:
    workloads = [rows.workloads[number] for number in numbers_in(rows.workload[numbers]).tolist()]
    return {
        "programs": len(numbers),
        "workloads": {each.key: each.name for each in workloads},
        "kinds": sorted({each.kind for each in workloads}),
        "networks": sorted({name for each in workloads for name in each.networks}),
        "targets": [rows.targets[number] for number in numbers_in(rows.target[numbers]).tolist()],
    }


def _rule(raw: dict[str, Any]) -> Rule:
    rule = Rule(raw["what"], tuple(tuple(side) for side in raw["sides"]), tuple(raw["only"]), shots=int(raw["shots"]))
    if rule.what not in WHAT or not {part for side in rule.sides for part in side} <= set(PARTS):
        raise ValueError(f"a rule about {rule.what} {rule.sides} is not known")
    return rule


def _read_content(directory: Path, name: str, folder: Path | None) -> dict[str, Any]:
    folder = folder or directory / SPLITS_FOLDER
    names = _names(folder)
    path, _ = split_files(folder, name)
    if names and name not in names:
        raise ConfigError(f"split: there is no {name!r} in {folder}; choose one of {', '.join(names)}")
    content = read_json(path, "graphs")
    meta = read_json(directory / "meta.json", "graphs")
    try:
        stated: str = content.pop("hash")
        if (
            stated != json_hash(content)
            or content["version"] != SPLIT_VERSION
            or content["data_hash"] != meta["data_hash"]
        ):
            raise ValueError("it was changed, belongs to other programs, or is of another version")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _malformed(path, directory, error) from error
    return dict(content)


def _read_table(path: Path, content: dict[str, Any], described_in: Path) -> np.ndarray:
    require(path, "graphs")
    try:
        table: np.ndarray = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise unreadable(path, "graphs", error) from error
    try:
        stated = content["rows"]["hash"]
    except (KeyError, TypeError) as error:
        raise _malformed(described_in, described_in.parent.parent, error) from error
    if table.dtype.names is None or _table_hash(table) != stated:
        raise MalformedDataError(f"{path} was changed, or is not of {described_in}; run `dvc repro graphs`")
    return table


def _malformed(path: Path, directory: Path, error: Exception) -> MalformedDataError:
    return MalformedDataError(f"{path} is not a split of {directory} ({error}); run `dvc repro graphs`")
