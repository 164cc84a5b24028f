"""Which programs a model learns from, which decide when it stops, and which it is judged on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.files import json_hash, read_json, write_json

SPLITS_FOLDER = "splits"
SPLIT_VERSION = 1
PARTS = ("train", "valid", "test")
FEWEST_WORKLOADS = 3
"""A split by workload needs one in each part."""


@dataclass(frozen=True)
class Split:
    """Row numbers of three disjoint parts, each ascending."""

    train: Int64[np.ndarray, " train_rows"]
    valid: Int64[np.ndarray, " valid_rows"]
    test: Int64[np.ndarray, " test_rows"]

    def parts(self) -> Iterator[tuple[str, Int64[np.ndarray, " rows"]]]:
        """Name and rows of each part."""
        yield from (("train", self.train), ("valid", self.valid), ("test", self.test))


class Splitter(Protocol):
    """What `conf/splitter` instantiates."""

    def split(self, workload: Int64[np.ndarray, " rows"], kinds: Sequence[str]) -> Split:
        """Splits rows, given the workload number of each and the operator kind of each workload."""


@dataclass(frozen=True)
class RandomSplit:
    """Rows of every workload in every part: how well a model knows workloads that it has seen.

    Attributes:
        test_share: share of the rows of each workload that is tested on, 0 to 1.
        valid_share: share that decides when to stop, 0 to 1.
        seed: of the choice.
    """

    test_share: float
    valid_share: float
    seed: int

    def __post_init__(self) -> None:
        _check_shares(self.test_share, self.valid_share)

    def split(self, workload: Int64[np.ndarray, " rows"], kinds: Sequence[str]) -> Split:
        """Shuffles the rows of each workload; of three or more each part gets one at least."""
        generator = np.random.default_rng(self.seed)
        chosen: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
        for number in np.unique(workload):
            rows = generator.permutation(np.flatnonzero(workload == number))
            test, valid = _part_sizes(len(rows), self.test_share, self.valid_share)
            chosen["test"].append(rows[:test])
            chosen["valid"].append(rows[test : test + valid])
            chosen["train"].append(rows[test + valid :])
        return _sorted_split(**{part: np.concatenate(rows) for part, rows in chosen.items()})


@dataclass(frozen=True)
class WorkloadSplit:
    """Whole workloads in one part each: how well a model knows workloads that it has never seen.

    Attributes:
        test_share: share of the workloads that is tested on, 0 to 1.
        valid_share: share that decides when to stop, 0 to 1.
        seed: of the choice.
    """

    test_share: float
    valid_share: float
    seed: int

    def __post_init__(self) -> None:
        _check_shares(self.test_share, self.valid_share)

    def split(self, workload: Int64[np.ndarray, " rows"], kinds: Sequence[str]) -> Split:
        """Draws test, then validation workloads, in turn over the operator kinds.

        Kinds with several workloads come first, so that as far as possible training keeps one of each kind.

        Raises:
            ConfigError: fewer than three workloads have rows.
        """
        present = np.unique(workload)
        if len(present) < FEWEST_WORKLOADS:
            raise ConfigError(
                f"a split by workload needs at least {FEWEST_WORKLOADS} workloads with measured programs, there "
                f"{'is' if len(present) == 1 else 'are'} {len(present)}; measure more (conf/workload) or leave "
                "the split out with `~splitter@split.workload`"
            )
        order = _in_turn(present, [kinds[number] for number in present], np.random.default_rng(self.seed))
        test, valid = _part_sizes(len(order), self.test_share, self.valid_share)
        parts = {"test": order[:test], "valid": order[test : test + valid], "train": order[test + valid :]}
        return _sorted_split(**{part: np.flatnonzero(np.isin(workload, members)) for part, members in parts.items()})


def check_no_leak(split: Split, group: Sequence[str] | np.ndarray) -> None:
    """Makes sure that no row, and no group of rows, is in two parts.

    Args:
        split: the split.
        group: what must stay together, by row: the workload keys.

    Raises:
        MalformedDataError: names what is in two parts.
    """
    owner: dict[str, str] = {}
    for part, rows in split.parts():
        for member in {str(group[row]) for row in rows}:
            if member in owner:
                raise MalformedDataError(
                    f"{member} is in the parts {owner[member]} and {part} of one split: the test would be no test; "
                    "run `dvc repro graphs` to make the split again"
                )
            owner[member] = part


def write_split(
    directory: Path,
    name: str,
    split: Split,
    program_key: np.ndarray,
    workload_of_row: Sequence[str],
    data_hash: str,
    made_by: dict[str, Any],
) -> None:
    """Writes a split beside the programs that it splits.

    Args:
        directory: the folder of the programs.
        name: what training calls it.
        split: the split.
        program_key: of each row.
        workload_of_row: workload name of each row.
        data_hash: of the programs; rows mean nothing without them.
        made_by: kind, shares and seed, for whoever reads the file.
    """
    parts = {
        part: {
            "rows": rows.tolist(),
            "program_keys": [str(program_key[row]) for row in rows],
            "workloads": sorted({workload_of_row[row] for row in rows}),
        }
        for part, rows in split.parts()
    }
    content = {"version": SPLIT_VERSION, "data_hash": data_hash, "made_by": made_by, "parts": parts}
    write_json(directory / SPLITS_FOLDER / f"{name}.json", {**content, "hash": json_hash(content)})


def split_names(directory: Path) -> list[str]:
    """Names of the splits of a folder of programs."""
    return sorted(path.stem for path in (directory / SPLITS_FOLDER).glob("*.json"))


def read_split(directory: Path, name: str) -> Split:
    """Reads the split `name` of a folder of programs.

    Raises:
        ConfigError: there is none of that name; the message lists those there are.
        MalformedDataError: the file was changed, or belongs to other programs.
    """
    parts = _read_content(directory, name)["parts"]
    return Split(**{part: np.array(parts[part]["rows"], dtype=np.int64) for part in PARTS})


def read_split_hash(directory: Path, name: str) -> str:
    """The hash over a split and the programs that it splits; raises as `read_split` does."""
    return json_hash(_read_content(directory, name))


def _read_content(directory: Path, name: str) -> dict[str, Any]:
    names = split_names(directory)
    if names and name not in names:
        raise ConfigError(
            f"split: there is no {name!r} in {directory / SPLITS_FOLDER}; choose one of {', '.join(names)}"
        )
    path = directory / SPLITS_FOLDER / f"{name}.json"
    content = read_json(path, "graphs")
    meta = read_json(directory / "meta.json", "graphs")
    try:
        stated: str = content.pop("hash")
        if (
            stated != json_hash(content)
            or content["version"] != SPLIT_VERSION
            or content["data_hash"] != meta["data_hash"]
        ):
            raise ValueError("it was changed, or belongs to other programs")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedDataError(f"{path} is not a split of {directory} ({error}); run `dvc repro graphs`") from error
    return dict(content)


def _check_shares(test_share: float, valid_share: float) -> None:
    if not (0 < test_share < 1 and 0 < valid_share < 1 and test_share + valid_share < 1):
        raise ConfigError(
            f"split: test_share ({test_share}) and valid_share ({valid_share}) must be above 0, together below 1; "
            "change conf/splitter"
        )


def _part_sizes(count: int, test_share: float, valid_share: float) -> tuple[int, int]:
    """How many of `count` are tested on and validated on; at least one is left to learn from."""
    if count < len(PARTS):
        return count - 1, 0
    test = max(1, round(test_share * count))
    valid = max(1, round(valid_share * count))
    test = min(test, count - 2)
    return test, min(valid, count - 1 - test)


def _in_turn(members: np.ndarray, kinds: list[str], generator: np.random.Generator) -> np.ndarray:
    """A random order that goes through the kinds in turn."""
    by_kind: dict[str, list[int]] = {}
    for position in generator.permutation(len(members)):
        by_kind.setdefault(kinds[position], []).append(int(members[position]))
    queues = sorted(by_kind.values(), key=lambda queue: len(queue) == 1)
    order = []
    while any(queues):
        order += [queue.pop() for queue in queues if queue]
    return np.array(order, dtype=np.int64)


def _sorted_split(train: np.ndarray, valid: np.ndarray, test: np.ndarray) -> Split:
    return Split(*(np.sort(part).astype(np.int64) for part in (train, valid, test)))
