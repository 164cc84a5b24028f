"""What holds of every split, whatever is split."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits import (
    KindSplit,
    NetworkSplit,
    RandomSplit,
    Rows,
    Split,
    Splitter,
    TargetSplit,
    WorkloadSplit,
    make_split,
)

Maker = Callable[..., Rows]
sizes = st.lists(st.integers(1, 30), min_size=3, max_size=12).filter(lambda counts: max(counts) >= 3)
seeds = st.integers(0, 2**31)

SPLITTERS: dict[str, Callable[[int], Splitter]] = {
    "random": lambda seed: RandomSplit(0.25, 0.15, seed),
    "workload": lambda seed: WorkloadSplit(0.25, 0.12, seed),
    "network": lambda seed: NetworkSplit(["a"], 0.2, seed),
    "kind": lambda seed: KindSplit(["matmul"], 0.2, seed),
    "target": lambda seed: TargetSplit({"kind": "cuda"}, 0, 0, 0.2, seed),
    "few_shot": lambda seed: TargetSplit({"kind": "cuda"}, 2, 0, 0.2, seed),
    "target_and_workload": lambda seed: TargetSplit({"kind": "cuda"}, 1, 0.3, 0.2, seed),
}


def parts_of(split: Split) -> dict[str, list[int]]:
    return {name: rows.tolist() for name, rows in split.parts()}


def part_of_program(split: Split, rows: Rows) -> dict[tuple[str, int], str]:
    return {
        (str(rows.program_key[row]), int(rows.target[row])): part for part, numbers in split.parts() for row in numbers
    }


@st.composite
def described(draw: st.DrawFn) -> dict:
    counts = draw(st.lists(st.integers(1, 8), min_size=3, max_size=10))
    many = {"min_size": len(counts), "max_size": len(counts)}
    return {
        "counts": counts,
        "kinds": draw(st.lists(st.sampled_from(["matmul", "conv2d", "größe"]), **many)),
        "networks": draw(
            st.lists(st.lists(st.sampled_from(["a", "a/unfused", "b", "c"]), unique=True, max_size=2), **many)
        ),
        "anchors": draw(st.lists(st.sampled_from(["", "", "x", "y"]), **many)),
        "targets": draw(st.integers(1, 3)),
    }


@pytest.mark.parametrize("name", SPLITTERS)
@settings(max_examples=60)
@given(described(), seeds)
def test_every_row_is_in_one_part_or_left_out_and_no_part_is_empty(
    rows_of: Maker, name: str, description: dict, seed: int
) -> None:
    rows = rows_of(**description)
    try:
        split = make_split(SPLITTERS[name](seed), rows)
    except ConfigError:
        reject()  # most can be split, or hypothesis complains
    lists = [*parts_of(split).values(), *(numbers.tolist() for numbers in split.left_out.values())]
    assert sorted(row for numbers in lists for row in numbers) == list(range(len(rows)))
    assert all(numbers == sorted(numbers) and numbers for numbers in lists)
    again = SPLITTERS[name](seed).split(rows)
    assert parts_of(again) == parts_of(split)


@pytest.mark.parametrize("name", SPLITTERS)
@given(st.data())
@settings(max_examples=25)
def test_the_order_of_rows_and_the_numbers_of_workloads_do_not_matter(
    rows_of: Maker, name: str, data: st.DataObject
) -> None:
    # three targets, of which one is held out; programs of several strata
    rows = rows_of([4] * 6, ["matmul", "conv2d"] * 3, [["a"], ["b"], ["c"], ["b"], [], ["c"]], targets=3)
    shuffled = np.array(data.draw(st.permutations(range(len(rows)))))
    numbers = data.draw(st.permutations(range(6)))
    renumbered = replace(
        rows,
        workload=np.argsort(numbers)[rows.workload[shuffled]],
        target=rows.target[shuffled],
        program_key=rows.program_key[shuffled],
        workloads=tuple(rows.workloads[number] for number in numbers),
    )
    splitter = SPLITTERS[name](1)
    assert part_of_program(splitter.split(rows), rows) == part_of_program(splitter.split(renumbered), renumbered)


@given(sizes, seeds)
def test_a_random_split_is_stratified(rows_of: Maker, counts: list[int], seed: int) -> None:
    rows = rows_of(counts)
    split = make_split(RandomSplit(0.25, 0.15, seed), rows)
    for number, count in enumerate(counts):
        inside = {part: int((rows.workload[chosen] == number).sum()) for part, chosen in split.parts()}
        assert inside["train"] >= 1
        if count >= 3:
            assert inside["test"] == pytest.approx(0.25 * count, abs=1)
            assert inside["valid"] == pytest.approx(0.15 * count, abs=1)
            assert min(inside.values()) >= 1


def test_a_program_measured_on_two_targets_is_in_one_part_of_a_random_split(rows_of: Maker) -> None:
    rows = rows_of([20, 20], targets=2)
    owners = part_of_program(make_split(RandomSplit(0.25, 0.15, 0), rows), rows)
    assert all(owners[key, 0] == owners[key, 1] for key, _ in owners)
    assert set(owners.values()) == {"train", "valid", "test"}


@given(st.lists(st.integers(3, 30), min_size=1, max_size=4), st.data(), seeds)
def test_one_program_more_moves_at_most_three_of_its_workload(
    rows_of: Maker, counts: list[int], data: st.DataObject, seed: int
) -> None:
    grown = data.draw(st.integers(0, len(counts) - 1))
    splitter = RandomSplit(0.25, 0.15, seed)
    before, after = (
        part_of_program(splitter.split(rows), rows)
        for rows in (rows_of(counts), rows_of([count + (number == grown) for number, count in enumerate(counts)]))
    )
    moved = [key for key in before if before[key] != after[key]]
    assert len(moved) <= 3
    assert {key[:8] for key, _ in moved} <= {f"{grown:08x}"}


@given(sizes, seeds, st.data())
def test_a_split_by_workload_never_shares_one(
    rows_of: Maker, counts: list[int], seed: int, data: st.DataObject
) -> None:
    kinds = data.draw(st.lists(st.sampled_from("abc"), min_size=len(counts), max_size=len(counts)))
    rows = rows_of(counts, kinds)
    split = make_split(WorkloadSplit(0.25, 0.12, seed), rows)
    members = {part: set(rows.workload[chosen].tolist()) for part, chosen in split.parts()}
    assert len(members["test"]) == max(1, round(0.25 * len(counts)))
    assert sum(len(part) for part in members.values()) == len(counts)
    # no kind is tested on twice while another one is not tested on at all
    tested = [kinds[number] for number in members["test"]]
    several = {kind for kind in kinds if kinds.count(kind) > 1}
    if len(tested) <= len(several):
        assert len(set(tested)) == len(tested)


@pytest.mark.parametrize("name", ["workload", "network", "kind"])
@given(st.lists(st.integers(1, 5), min_size=6, max_size=6), seeds)
@settings(max_examples=25)
def test_more_programs_of_the_same_workloads_move_none(rows_of: Maker, name: str, counts: list[int], seed: int) -> None:
    what = {"kinds": ["matmul", "conv2d", "softmax"] * 2, "networks": [["a"], ["b"], ["c"], ["b"], [], ["c"]]}
    few, many = (rows_of(each, **what) for each in ([1] * 6, counts))
    before = part_of_program(SPLITTERS[name](seed).split(few), few)
    after = part_of_program(SPLITTERS[name](seed).split(many), many)
    assert {key: after[key] for key in before} == before


@given(st.lists(st.sampled_from("abc"), min_size=5, max_size=25), st.sampled_from("abcd"), seeds)
def test_a_new_workload_moves_few_others(rows_of: Maker, kinds: list[str], kind: str, seed: int) -> None:
    splitter = WorkloadSplit(0.25, 0.12, seed)
    before, after = (
        part_of_program(splitter.split(rows), rows)
        for rows in (rows_of([1] * len(kinds), kinds), rows_of([1] * (len(kinds) + 1), [*kinds, kind]))
    )
    assert sum(before[key] != after[key] for key in before) <= 6


def test_seeds_matter(rows_of: Maker) -> None:
    rows = rows_of([20] * 8, ["matmul", "conv2d"] * 4, [["a"], ["b"], ["c"], []] * 2, targets=2)
    for name, splitter in SPLITTERS.items():
        made = {str(parts_of(splitter(seed).split(rows))) for seed in range(6)}
        assert len(made) > 1, name


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_workloads_cannot_be_held_out(rows_of: Maker, count: int) -> None:
    with pytest.raises(ConfigError, match=rf"at least 3 workloads.* {count};"):
        WorkloadSplit(0.25, 0.12, 0).split(rows_of([9] * count))


def test_workloads_of_one_shape_count_once(rows_of: Maker) -> None:
    with pytest.raises(ConfigError, match=r"at least 3 workloads of different shapes.* 2;"):
        WorkloadSplit(0.25, 0.12, 0).split(rows_of([9] * 4, anchors=["x", "x", "x", ""]))


def test_two_programs_a_workload_are_too_few_for_three_parts(rows_of: Maker) -> None:
    with pytest.raises(ConfigError, match="no program is left for valid"):
        RandomSplit(0.25, 0.15, 0).split(rows_of([2, 2]))


@pytest.mark.parametrize(("test", "valid"), [(0.0, 0.1), (0.9, 0.1), (0.5, 0.6), (-0.1, 0.2), (True, 0.2)])
def test_impossible_shares_are_refused(test: float, valid: float) -> None:
    for splitter in (RandomSplit, WorkloadSplit):
        with pytest.raises(ConfigError, match="test_share"):
            splitter(test, valid, 0)
    with pytest.raises(ConfigError, match="valid_share"):
        NetworkSplit(["a"], 1.0, 0)
