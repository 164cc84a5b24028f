"""Planted leaks, one for every splitter and for every thing that may not be on two sides (TEN-05)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.splits import (
    KindSplit,
    NetworkSplit,
    RandomSplit,
    Rows,
    Rule,
    Split,
    TargetSplit,
    WorkloadSplit,
    check_no_leak,
    make_split,
)

Maker = Callable[..., Rows]


def moved(split: Split, row: int, part: str) -> Split:
    """The same split with one row in another part."""
    parts = {name: rows[rows != row] for name, rows in split.parts()}
    parts[part] = np.sort(np.append(parts[part], row))
    left_out = {reason: rows[rows != row] for reason, rows in split.left_out.items()}
    return replace(split, **parts, left_out=left_out)


@pytest.mark.parametrize(
    ("splitter", "what"),
    [
        (RandomSplit(0.25, 0.15, 0), "program"),
        (WorkloadSplit(0.25, 0.15, 0), "shape"),
        (NetworkSplit(["resnet18"], 0.2, 0), "shape"),
        (KindSplit(["conv2d"], 0.2, 0), "shape"),
        (TargetSplit({"kind": "cuda"}, 0, 0, 0.2, 0), "target"),
        (TargetSplit({"kind": "cuda"}, 2, 0, 0.2, 0), "target"),
        (TargetSplit({"kind": "cuda"}, 2, 0.3, 0.2, 0), "(target|shape)"),
    ],
)
@pytest.mark.parametrize("part", ["train", "valid"])
def test_one_tested_row_that_is_learned_from_is_found(
    varied: Rows, splitter: WorkloadSplit, what: str, part: str
) -> None:
    split = make_split(splitter, varied)
    with pytest.raises(MalformedDataError, match=rf"the {what} .* is in the parts .*{part}.* and .*test"):
        check_no_leak(moved(split, int(split.test[0]), part), varied)


@pytest.mark.parametrize(
    ("splitter", "what"),
    [
        (NetworkSplit(["resnet18"], 0.2, 0), "network resnet18"),
        (KindSplit(["conv2d"], 0.2, 0), "kind conv2d"),
    ],
)
def test_a_whole_workload_of_what_is_held_out_is_found(varied: Rows, splitter: KindSplit, what: str) -> None:
    split = make_split(splitter, varied)
    for row in np.flatnonzero(varied.workload == 0):
        split = moved(split, int(row), "train")
    # no shape is on two sides, but the network (the kind) is
    with pytest.raises(MalformedDataError, match=f"the {what}"):
        check_no_leak(split, varied)


@pytest.mark.parametrize("alike", ["key", "arguments", "anchor"])
@pytest.mark.parametrize("splitter", [WorkloadSplit(0.25, 0.15, 0), NetworkSplit(["resnet18"], 0.2, 0)])
def test_a_workload_of_the_same_shape_under_another_name_is_found(
    varied: Rows, splitter: WorkloadSplit, alike: str
) -> None:
    split = make_split(splitter, varied)
    one, other = int(varied.workload[split.test[0]]), int(varied.workload[split.train[0]])
    workloads = list(varied.workloads)
    workloads[one] = replace(workloads[one], anchor="same")
    twin = workloads[one]
    workloads[other] = replace(
        workloads[other],
        **{"arguments": {"kind": twin.kind, "arguments": twin.arguments}}.get(alike, {alike: getattr(twin, alike)}),
    )
    planted = replace(varied, workloads=tuple(workloads))
    first, second = sorted([one, other])
    with pytest.raises(MalformedDataError, match=f"the shape w{first} or w{second} is in the parts train"):
        check_no_leak(split, planted)


def test_one_shot_too_many_is_found(varied: Rows) -> None:
    split = make_split(TargetSplit({"kind": "cuda"}, 2, 0, 0.2, 0), varied)
    more = replace(split, rules=tuple(replace(rule, shots=1) if rule.shots else rule for rule in split.rules))
    with pytest.raises(MalformedDataError, match=r'the target \{"kind": "cuda"'):
        check_no_leak(more, varied)


def test_a_program_that_validates_is_not_learned_from(varied: Rows) -> None:
    split = make_split(TargetSplit({"kind": "cuda"}, 1, 0, 0.2, 0), varied)
    # its row on the held-out target, in place of the shot
    key = varied.program_key[split.valid[0]]
    (row,) = np.flatnonzero((varied.program_key == key) & (varied.target == 1))
    with pytest.raises(MalformedDataError, match=r"the target"):
        check_no_leak(moved(split, int(row), "train"), varied)
    (shot,) = (
        shot for shot in split.train if varied.target[shot] == 1 and varied.workload[shot] == varied.workload[row]
    )
    with pytest.raises(MalformedDataError, match=f"the program {key}"):
        check_no_leak(moved(moved(split, int(shot), "test"), int(row), "train"), varied)


@pytest.mark.parametrize(
    ("what", "named"), [("workload", r"w0 \(0000000000000000\)"), ("kind", "conv2d"), ("network", "mobilenet")]
)
def test_every_rule_finds_what_it_is_about(varied: Rows, what: str, named: str) -> None:
    rule = (Rule(what, (("train", "valid"), ("test",))),)
    everything = np.arange(len(varied))
    split = Split(everything[1:-1], everything[-1:], everything[:1], rules=rule)
    if what == "network":
        # of row 0 only resnet18 would be asked for: the shared workload is tested on
        shared = int(np.flatnonzero(varied.workload == 1)[0])
        split = moved(moved(replace(split, rules=(replace(rule[0], only=("mobilenet",)),)), 0, "train"), shared, "test")
    with pytest.raises(MalformedDataError, match=f"the {what} {named}"):
        check_no_leak(split, varied)


def test_a_row_in_two_parts_in_none_or_unknown_is_found(rows_of: Maker) -> None:
    rows = rows_of([2, 2, 2])
    train, valid, test = np.array([0, 1, 2]), np.array([3]), np.array([4, 5])
    check_no_leak(Split(train, valid, test), rows)
    with pytest.raises(MalformedDataError, match="row 2 is in the parts train and test"):
        check_no_leak(Split(train, valid, np.array([2, 4, 5])), rows)
    with pytest.raises(MalformedDataError, match="row 4 is in no part"):
        check_no_leak(Split(train, valid, np.array([5])), rows)
    with pytest.raises(MalformedDataError, match="none of the 6"):
        check_no_leak(Split(train, valid, np.array([4, 5, 6])), rows)
    with pytest.raises(MalformedDataError, match="in the parts valid and valid"):
        check_no_leak(Split(train, np.array([3, 3]), test), rows)
    with pytest.raises(MalformedDataError, match=r"in the parts test and left out \(torn\)"):
        check_no_leak(Split(train, valid, test, {"torn": np.array([5])}), rows)
