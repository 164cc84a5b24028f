"""Splits that limit how many programs of a workload are learned from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits import LimitedSplit, RandomSplit, Rows, Split, TransferSplit, WorkloadSplit, make_split


def limited(rows: Rows, programs: int, seed: int = 0) -> Split:
    return make_split(LimitedSplit(WorkloadSplit(0.25, 0.2, 3), programs, seed), rows)


@given(st.integers(2, 10), st.integers(0, 2**31))
def test_a_limit_keeps_the_test_part_and_more_keeps_what_fewer_have(varied: Rows, programs: int, seed: int) -> None:
    whole = make_split(WorkloadSplit(0.25, 0.2, 3), varied)
    fewer, more = limited(varied, programs, seed), limited(varied, programs + 1, seed)
    assert fewer.test.tolist() == more.test.tolist() == whole.test.tolist()
    assert {*fewer.train.tolist()} <= {*more.train.tolist()} <= {*whole.train.tolist()}
    assert {*fewer.valid.tolist()} <= {*more.valid.tolist()} <= {*whole.valid.tolist()}
    for part in (fewer.train, fewer.valid):
        # of each workload on each target
        assert set(np.unique(varied.stratum[part], return_counts=True)[1].tolist()) == {min(programs, 6)}


def test_the_limit_is_of_learning_and_validation_together(varied: Rows) -> None:
    split = make_split(LimitedSplit(RandomSplit(0.3, 0.2, 0), 3, 0), varied)
    _, counts = np.unique(varied.stratum[np.r_[split.train, split.valid]], return_counts=True)
    assert set(counts.tolist()) == {3}
    assert len(split.left_out["beyond the limit of programs"]) == len(varied) - len(split.test) - counts.sum()


def transfer(rows: Rows, others: bool, seed: int = 0) -> Split:
    return make_split(TransferSplit(["resnet18"], 3, others, 0.2, seed), rows)


@given(st.integers(0, 2**31))
def test_other_workloads_add_to_the_same_shots_and_the_same_test(varied: Rows, seed: int) -> None:
    alone, joined = transfer(varied, False, seed), transfer(varied, True, seed)
    assert alone.test.tolist() == joined.test.tolist()
    assert alone.valid.tolist() == joined.valid.tolist()
    assert {*alone.train.tolist()} < {*joined.train.tolist()}
    held = {0, 1, 6}  # with the unfused variant
    assert {*varied.workload[np.r_[alone.train, alone.valid, alone.test]].tolist()} == held
    counts = np.bincount(varied.stratum[np.r_[alone.train, alone.valid]])
    assert set(counts[counts > 0].tolist()) == {3}
    assert {*varied.workload[joined.train].tolist()} == {*range(9)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LimitedSplit(RandomSplit(0.3, 0.2, 0), 1, 0), r"programs \(1\)"),
        (lambda: LimitedSplit(RandomSplit(0.3, 0.2, 0), True, 0), r"programs \(True\)"),
        (lambda: TransferSplit(["resnet18"], 1, True, 0.2, 0), r"shots \(1\)"),
        (lambda: TransferSplit(["resnet18"], 8, "yes", 0.2, 0), r"others \(yes\)"),
        (lambda: TransferSplit("resnet18", 8, True, 0.2, 0), "networks"),
    ],
)
def test_settings_that_cannot_work_are_refused(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_network_that_is_not_there_names_those_that_are(varied: Rows) -> None:
    with pytest.raises(ConfigError, match="no network lstm in the measurements; choose from bert, mobilenet"):
        TransferSplit(["lstm"], 3, True, 0.2, 0).split(varied)
