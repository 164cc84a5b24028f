import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError, MalformedDataError, MissingInputError
from kernelcast.graphs.splits import (
    RandomSplit,
    Split,
    WorkloadSplit,
    check_no_leak,
    read_split,
    read_split_hash,
    split_names,
    write_split,
)

sizes = st.lists(st.integers(1, 30), min_size=3, max_size=12)
seeds = st.integers(0, 2**31)


def rows_of(counts: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(counts)), counts)


def all_rows(split: Split) -> list[int]:
    return sorted(np.concatenate([rows for _, rows in split.parts()]).tolist())


@given(sizes, seeds)
def test_a_random_split_is_stratified(counts: list[int], seed: int) -> None:
    workload = rows_of(counts)
    split = RandomSplit(0.25, 0.15, seed).split(workload, ["k"] * len(counts))
    assert all_rows(split) == list(range(len(workload)))
    for number, count in enumerate(counts):
        inside = {part: int((workload[rows] == number).sum()) for part, rows in split.parts()}
        assert inside["train"] >= 1
        if count >= 3:
            assert inside["test"] == pytest.approx(0.25 * count, abs=1)
            assert inside["valid"] == pytest.approx(0.15 * count, abs=1)
            assert min(inside.values()) >= 1


@given(sizes, seeds, st.data())
def test_a_split_by_workload_never_shares_one(counts: list[int], seed: int, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from("abc"), min_size=len(counts), max_size=len(counts)))
    workload = rows_of(counts)
    splitter = WorkloadSplit(0.25, 0.12, seed)
    split = splitter.split(workload, kinds)
    assert all_rows(split) == list(range(len(workload)))
    members = {part: set(workload[rows].tolist()) for part, rows in split.parts()}
    assert min(len(part) for part in members.values()) >= 1
    assert len(members["test"]) == max(1, round(0.25 * len(counts)))
    assert sum(len(part) for part in members.values()) == len(counts)
    check_no_leak(split, [str(number) for number in workload])
    again = splitter.split(workload, kinds)
    assert [rows.tolist() for _, rows in split.parts()] == [rows.tolist() for _, rows in again.parts()]
    # no kind is tested on twice while another one is not tested on at all
    tested = [kinds[number] for number in members["test"]]
    several = {kind for kind in kinds if kinds.count(kind) > 1}
    if len(tested) <= len(several):
        assert len(set(tested)) == len(tested)


def test_seeds_matter() -> None:
    workload = rows_of([20] * 8)
    made = {tuple(WorkloadSplit(0.25, 0.12, seed).split(workload, ["k"] * 8).test.tolist()) for seed in range(5)}
    assert len(made) > 1


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_workloads_cannot_be_held_out(count: int) -> None:
    with pytest.raises(ConfigError, match=rf"at least 3 workloads.* {count};"):
        WorkloadSplit(0.25, 0.12, 0).split(rows_of([9] * count), ["k"] * count)


@pytest.mark.parametrize(("test", "valid"), [(0.0, 0.1), (0.9, 0.1), (0.5, 0.6), (-0.1, 0.2)])
def test_impossible_shares_are_refused(test: float, valid: float) -> None:
    for splitter in (RandomSplit, WorkloadSplit):
        with pytest.raises(ConfigError, match="test_share"):
            splitter(test, valid, 0)


def test_a_planted_leak_is_found() -> None:
    group = ["a", "a", "b", "c", "a"]
    check_no_leak(Split(np.array([0, 1, 4]), np.array([2]), np.array([3])), group)
    with pytest.raises(MalformedDataError, match="a is in the parts train and test"):
        check_no_leak(Split(np.array([0, 1]), np.array([2]), np.array([3, 4])), group)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "meta.json").write_text(json.dumps({"data_hash": "d"}))
    workload = rows_of([6, 6, 6])
    keys = np.array([f"key{row}" for row in range(18)])
    for name, splitter in (("random", RandomSplit(0.25, 0.15, 0)), ("workload", WorkloadSplit(0.25, 0.12, 0))):
        split = splitter.split(workload, ["k"] * 3)
        write_split(tmp_path, name, split, keys, [f"w{number}" for number in workload], "d", {"seed": 0})
    return tmp_path


def test_a_written_split_is_read_back(folder: Path) -> None:
    assert split_names(folder) == ["random", "workload"]
    split = read_split(folder, "workload")
    assert all_rows(split) == list(range(18))
    content = json.loads((folder / "splits" / "workload.json").read_text())
    assert content["made_by"] == {"seed": 0}
    assert content["parts"]["test"]["program_keys"] == [f"key{row}" for row in split.test]
    assert len(content["parts"]["test"]["workloads"]) == 1


def test_the_hash_of_a_split_follows_its_rows_and_its_programs(folder: Path) -> None:
    before = read_split_hash(folder, "random")
    assert read_split_hash(folder, "random") == before != read_split_hash(folder, "workload")
    keys, names = np.array([f"key{row}" for row in range(18)]), [f"w{number}" for number in rows_of([6, 6, 6])]
    seen = {before}
    for seed, data_hash in ((1, "d"), (0, "e")):
        (folder / "meta.json").write_text(json.dumps({"data_hash": data_hash}))
        split = RandomSplit(0.25, 0.15, seed).split(rows_of([6, 6, 6]), ["k"] * 3)
        write_split(folder, "random", split, keys, names, data_hash, {"seed": 0})
        seen.add(read_split_hash(folder, "random"))
    assert len(seen) == 3


def test_an_unknown_split_names_the_known_ones(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose one of random, workload"):
        read_split(folder, "by_moon")
    with pytest.raises(MissingInputError, match="dvc repro graphs"):
        read_split(tmp_path / "nothing", "random")


def test_a_changed_split_is_refused(folder: Path) -> None:
    path = folder / "splits" / "random.json"
    content = json.loads(path.read_text())
    content["parts"]["train"]["rows"].append(content["parts"]["test"]["rows"][0])
    path.write_text(json.dumps(content))
    with pytest.raises(MalformedDataError, match="changed"):
        read_split(folder, "random")


def test_a_split_of_other_programs_is_refused(folder: Path) -> None:
    (folder / "meta.json").write_text(json.dumps({"data_hash": "other"}))
    with pytest.raises(MalformedDataError, match="other programs"):
        read_split(folder, "random")


@pytest.mark.parametrize("text", ["", "[]", '{"hash": 1}'])
def test_a_torn_split_is_refused(folder: Path, text: str) -> None:
    (folder / "splits" / "random.json").write_text(text)
    with pytest.raises(MalformedDataError, match="dvc repro graphs"):
        read_split(folder, "random")
