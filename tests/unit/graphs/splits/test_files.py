"""Split lists on disk: read back as written, and never believed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelcast.errors import ConfigError, MalformedDataError, MissingInputError
from kernelcast.files import json_hash
from kernelcast.graphs.splits import (
    SPLITS_FOLDER,
    KindSplit,
    NetworkSplit,
    RandomSplit,
    Rows,
    Split,
    Splitter,
    TargetSplit,
    WorkloadSplit,
    make_split,
    read_split,
    read_split_hash,
    split_files,
    split_names,
    write_split,
)
from kernelcast.graphs.splits.files import _table_hash

SPLITTERS: dict[str, Splitter] = {
    "random": RandomSplit(0.25, 0.15, 0),
    "workload": WorkloadSplit(0.25, 0.12, 0),
    "network": NetworkSplit(["resnet18", "bert"], 0.2, 0),
    "kind": KindSplit(["conv2d"], 0.2, 0),
    "target": TargetSplit({"kind": "cuda"}, 0, 0, 0.2, 0),
    "few_shot": TargetSplit({"kind": "cuda"}, 2, 0.3, 0.2, 0),
}


@pytest.fixture
def folder(tmp_path: Path, varied: Rows) -> Path:
    (tmp_path / "meta.json").write_text(json.dumps({"data_hash": "d"}))
    for name, splitter in SPLITTERS.items():
        write_split(tmp_path, name, make_split(splitter, varied), varied, "d", {"_target_": name, "seed": 0})
    return tmp_path


def lists(split: Split) -> dict[str, list[int]]:
    return {name: rows.tolist() for name, rows in [*split.parts(), *split.left_out.items()]}


def rewrite(folder: Path, name: str, change: Callable[[dict[str, Any], np.ndarray], None]) -> None:
    """Edits a split and makes all its hashes right, as somebody would who knows how they are made."""
    described, rows = split_files(folder / SPLITS_FOLDER, name)
    content, table = json.loads(described.read_text()), np.load(rows)
    change(content, table)
    np.save(rows, table)
    content["rows"]["hash"] = _table_hash(table)
    del content["hash"]
    described.write_text(json.dumps({**content, "hash": json_hash(content)}))


@pytest.mark.parametrize("name", SPLITTERS)
def test_a_written_split_is_read_back(folder: Path, varied: Rows, name: str) -> None:
    assert split_names(folder) == sorted(SPLITTERS)
    made, read = make_split(SPLITTERS[name], varied), read_split(folder, name)
    assert lists(read) == lists(made)
    assert read.rules == made.rules
    assert all(rows.dtype == np.int64 for _, rows in read.parts())


def test_the_file_says_what_is_where(folder: Path, varied: Rows) -> None:
    content = json.loads((folder / "splits" / "network.json").read_text())
    assert content["made_by"] == {"_target_": "network", "seed": 0}
    test = content["parts"]["test"]
    assert test["workloads"] == {f"{number:016x}": f"w{number}" for number in (0, 1, 2, 6)}
    assert test["kinds"] == ["conv2d", "matmul"]
    assert test["networks"] == ["bert", "mobilenet", "resnet18", "resnet18/unfused"]
    assert test["targets"] == list(varied.targets)
    assert sum(part["programs"] for part in content["parts"].values()) == len(varied)
    table = np.load(folder / "splits" / "network.npy")
    assert table["program_key"].astype(str).tolist() == varied.program_key.tolist()
    assert np.flatnonzero(table["part"] == 2).tolist() == read_split(folder, "network").test.tolist()
    left = json.loads((folder / "splits" / "few_shot.json").read_text())["left_out"]
    assert sorted(part["programs"] for part in left.values()) == [3 * 6, 6 * 4]


def test_a_row_is_seven_bytes_and_its_key_and_none_of_the_json(tmp_path: Path, rows_of: Callable) -> None:
    (tmp_path / "meta.json").write_text(json.dumps({"data_hash": "d"}))
    rows = rows_of([20_000] * 5)
    write_split(tmp_path, "random", make_split(SPLITTERS["random"], rows), rows, "d", {})
    described, table = split_files(tmp_path / SPLITS_FOLDER, "random")
    assert described.stat().st_size < 10_000
    assert table.stat().st_size < 100_000 * (1 + 4 + 2 + 16) + 1_000
    assert sum(len(part) for _, part in read_split(tmp_path, "random").parts()) == 100_000


def test_the_hash_of_a_split_follows_its_rows_and_its_programs(folder: Path, varied: Rows) -> None:
    before = read_split_hash(folder, "random")
    assert read_split_hash(folder, "random") == before != read_split_hash(folder, "workload")
    seen = {before}
    for seed, data_hash in ((0, "d"), (1, "d"), (0, "e")):
        (folder / "meta.json").write_text(json.dumps({"data_hash": data_hash}))
        split = RandomSplit(0.25, 0.15, seed).split(varied)
        write_split(folder, "random", split, varied, data_hash, {"_target_": "random", "seed": 0})
        seen.add(read_split_hash(folder, "random"))
    assert len(seen) == 3


def test_an_unknown_split_names_the_known_ones(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose one of few_shot, kind, network, random, target, workload"):
        read_split(folder, "by_moon")
    with pytest.raises(MissingInputError, match="dvc repro graphs"):
        read_split(tmp_path / "nothing", "random")


@pytest.mark.parametrize("name", SPLITTERS)
def test_a_changed_split_is_refused(folder: Path, name: str) -> None:
    described, rows = split_files(folder / SPLITS_FOLDER, name)
    table = np.load(rows)
    table["part"][np.flatnonzero(table["part"] == 2)[0]] = 0
    np.save(rows, table)
    with pytest.raises(MalformedDataError, match=rf"{name}.npy was changed"):
        read_split(folder, name)
    content = json.loads(described.read_text())
    content["rules"] = []
    described.write_text(json.dumps(content))
    with pytest.raises(MalformedDataError, match="changed"):
        read_split(folder, name)


@pytest.mark.parametrize("name", SPLITTERS)
def test_a_leak_with_right_hashes_is_found(folder: Path, name: str) -> None:
    def plant(content: dict[str, Any], table: np.ndarray) -> None:
        row = np.flatnonzero(table["part"] == 2)[0]
        table["part"][row] = 1
        key = f"{table['workload'][row]:016x}"
        for part, added in (("valid", 1), ("test", -1)):
            content["parts"][part]["programs"] += added
        described = content["workloads"][int(table["workload"][row])]
        valid = content["parts"]["valid"]
        valid["workloads"][key] = described["name"]
        valid["kinds"] = sorted({*valid["kinds"], described["kind"]})
        valid["networks"] = sorted({*valid["networks"], *described["networks"]})
        targets = [content["targets"][number] for number in np.unique(table["target"][table["part"] == 1])]
        valid["targets"] = targets

    rewrite(folder, name, plant)
    with pytest.raises(
        MalformedDataError, match=r"is in the parts .*valid.* the test would be no test; run `dvc repro"
    ):
        read_split(folder, name)


def test_lists_that_do_not_agree_with_the_rows_are_refused(folder: Path) -> None:
    def rename(content: dict[str, Any], table: np.ndarray) -> None:
        content["parts"]["test"]["workloads"].popitem()

    rewrite(folder, "workload", rename)
    with pytest.raises(MalformedDataError, match="other workloads than its rows"):
        read_split(folder, "workload")


@pytest.mark.parametrize(
    ("place", "value"), [("part", 7), ("part", -1), ("workload", 99), ("target", 99), ("workload", -100)]
)
def test_numbers_of_nothing_are_refused(folder: Path, place: str, value: int) -> None:
    def overwrite(content: dict[str, Any], table: np.ndarray) -> None:
        table[place][0] = value

    rewrite(folder, "kind", overwrite)
    with pytest.raises(MalformedDataError, match=r"kind.json is not a split of"):
        read_split(folder, "kind")


def test_an_unknown_rule_is_refused(folder: Path) -> None:
    def invent(content: dict[str, Any], table: np.ndarray) -> None:
        content["rules"][0]["what"] = "moon"

    rewrite(folder, "kind", invent)
    with pytest.raises(MalformedDataError, match="moon"):
        read_split(folder, "kind")


def test_a_split_of_other_programs_is_refused(folder: Path) -> None:
    (folder / "meta.json").write_text(json.dumps({"data_hash": "other"}))
    with pytest.raises(MalformedDataError, match="other programs"):
        read_split(folder, "random")


@pytest.mark.parametrize("text", ["", "[]", '{"hash": 1}'])
def test_a_torn_split_is_refused(folder: Path, text: str) -> None:
    (folder / "splits" / "random.json").write_text(text)
    with pytest.raises(MalformedDataError, match="dvc repro graphs"):
        read_split(folder, "random")


def test_torn_or_lost_rows_are_refused(folder: Path) -> None:
    _, rows = split_files(folder / SPLITS_FOLDER, "random")
    rows.write_bytes(rows.read_bytes()[:-5])
    with pytest.raises(MalformedDataError, match="dvc repro graphs"):
        read_split(folder, "random")
    np.save(rows, np.arange(3))
    with pytest.raises(MalformedDataError, match="was changed"):
        read_split(folder, "random")
    rows.unlink()
    with pytest.raises(MissingInputError, match="dvc repro graphs"):
        read_split(folder, "random")
