"""Networks, operator kinds and targets that are held out."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits import KindSplit, NetworkSplit, Rows, Split, TargetSplit, make_split

Maker = Callable[..., Rows]


def workloads_in(rows: Rows, numbers: np.ndarray) -> set[int]:
    return set(rows.workload[numbers].tolist())


def by_network(*names: str) -> NetworkSplit:
    return NetworkSplit(names, 0.2, 0)


def test_a_held_out_network_is_tested_on_with_its_variants_and_what_it_shares(varied: Rows) -> None:
    split = make_split(by_network("resnet18", "bert"), varied)
    # 1 is also mobilenet's, 6 is resnet18 unfused
    assert workloads_in(varied, split.test) == {0, 1, 2, 6}
    # single operators are learned from
    assert workloads_in(varied, split.train) > {7, 8}
    assert workloads_in(varied, split.valid) < {3, 4, 5}
    assert not split.left_out


def test_a_shape_of_another_name_is_held_out_too(rows_of: Maker) -> None:
    rows = rows_of(
        [2] * 5,
        ["conv2d", "conv2d", "fused_conv2d_relu", "softmax", "softmax"],
        [["resnet18"], [], ["vgg"], ["vgg"], []],
        arguments=[{"size": 1}, {"size": 1}, {"parameters": ["a"]}, {}, {}],
        anchors=["x", "", "x", "", ""],
    )
    assert workloads_in(rows, make_split(by_network("resnet18"), rows).test) == {0, 1, 2}


def test_without_other_networks_single_operators_validate(rows_of: Maker) -> None:
    rows = rows_of([3] * 4, networks=[["bert"], [], [], []])
    split = make_split(by_network("bert"), rows)
    assert workloads_in(rows, split.test) == {0}
    assert len(workloads_in(rows, split.valid)) == 1


def test_a_network_that_was_not_measured_names_those_that_were(varied: Rows, rows_of: Maker) -> None:
    with pytest.raises(ConfigError, match="no network gpt in the measurements; choose from bert, mobilenet, resnet18"):
        by_network("bert", "gpt").split(varied)
    with pytest.raises(ConfigError, match="workload=networks"):
        by_network("bert").split(rows_of([3, 3, 3]))


def test_a_network_that_is_all_there_is_leaves_nothing_to_learn(rows_of: Maker) -> None:
    with pytest.raises(ConfigError, match="no program is left for train and valid"):
        by_network("bert").split(rows_of([3, 3], networks=[["bert"], ["bert"]]))


@pytest.mark.parametrize("names", [[], "bert", [3], None])
def test_names_must_be_a_list(names: object) -> None:
    for splitter in (NetworkSplit, KindSplit):
        with pytest.raises(ConfigError, match=r"networks|kinds"):
            splitter(names, 0.2, 0)


def test_a_held_out_kind_is_tested_on(varied: Rows) -> None:
    split = make_split(KindSplit(["conv2d"], 0.2, 0), varied)
    assert {varied.workloads[number].kind for number in workloads_in(varied, split.test)} == {"conv2d"}
    assert workloads_in(varied, split.test) == {0, 1, 4, 6}
    assert not split.left_out


def test_kinds_are_patterns_and_what_computes_the_same_is_left_out(rows_of: Maker) -> None:
    kinds = ["conv2d", "fused_conv2d_add", "conv2d_bias_relu", "softmax", "matmul"]
    rows = rows_of([2] * 5, kinds, anchors=["x", "y", "x", "", ""])
    split = make_split(KindSplit(["conv2d", "fused_*"], 0.2, 0), rows)
    assert workloads_in(rows, split.test) == {0, 1}
    (left,) = split.left_out.values()
    assert workloads_in(rows, left) == {2}


def test_an_unknown_kind_names_the_known_ones(varied: Rows) -> None:
    with pytest.raises(ConfigError, match="kind lstm in the measurements; choose from conv2d, depthwise, matmul"):
        KindSplit(["conv2d", "lstm"], 0.2, 0).split(varied)


def on_cuda(shots: int, workload_share: float = 0, seed: int = 0) -> TargetSplit:
    return TargetSplit({"kind": "cuda"}, shots, workload_share, 0.2, seed)


def test_a_held_out_target_is_tested_on_and_nothing_else(varied: Rows) -> None:
    split = make_split(on_cuda(0), varied)
    assert set(varied.target[split.test].tolist()) == {1}
    assert set(varied.target[np.r_[split.train, split.valid]].tolist()) == {0}
    # the same workloads and the same programs on both sides: the target is what is new
    assert workloads_in(varied, split.test) == workloads_in(varied, split.train)
    assert set(varied.program_key[split.test]) & set(varied.program_key[split.train])


@given(st.integers(1, 5), st.integers(0, 2**31))
def test_shots_are_so_many_of_each_workload_and_more_keep_them(varied: Rows, shots: int, seed: int) -> None:
    def shots_in(split: Split) -> set[int]:
        return {row for row in split.train.tolist() if varied.target[row] == 1}

    fewer, split = (shots_in(make_split(on_cuda(count, seed=seed), varied)) for count in (shots - 1, shots))
    assert fewer < split
    counts = np.bincount(varied.workload[sorted(split)], minlength=9)
    assert counts.tolist() == [shots] * 9


def test_shots_do_not_validate(varied: Rows) -> None:
    split = make_split(on_cuda(3), varied)
    assert set(varied.target[split.valid].tolist()) == {0}
    assert not set(varied.program_key[split.valid]) & set(varied.program_key[split.train])


def test_a_target_and_workloads_can_be_held_out_together(varied: Rows) -> None:
    split = make_split(on_cuda(2, workload_share=0.3), varied)
    tested = workloads_in(varied, split.test)
    assert len(tested) == 3
    assert not tested & workloads_in(varied, np.r_[split.train, split.valid])
    assert set(varied.target[split.test].tolist()) == {1}
    # two shots of each of the six workloads that are learned from, the other four programs are in no part
    left = {reason: len(numbers) for reason, numbers in split.left_out.items()}
    assert sorted(left.values()) == [3 * 6, 6 * 4]
    assert (varied.target[split.train] == 1).sum() == 6 * 2


@pytest.mark.parametrize("hold_out", [None, {}, {"kind": "metal"}, {"kind": "llvm", "mcpu": "znver3"}])
def test_a_target_that_was_not_measured_names_those_that_were(varied: Rows, hold_out: dict | None) -> None:
    with pytest.raises(ConfigError, match=r'tell these apart: \{"kind": "llvm", "mcpu": "znver4"\}; \{"kind": "cuda"'):
        TargetSplit(hold_out, 0, 0, 0.2, 0).split(varied)


def test_a_target_that_is_all_there_is_leaves_nothing_to_learn(rows_of: Maker) -> None:
    with pytest.raises(ConfigError, match="every target of the measurements"):
        TargetSplit({"kind": "llvm"}, 0, 0, 0.2, 0).split(rows_of([3, 3, 3]))


def test_so_many_shots_leave_nothing_to_test(varied: Rows) -> None:
    with pytest.raises(ConfigError, match="no program is left for valid and test"):
        on_cuda(6).split(varied)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shots": -1}, "shots"),
        ({"shots": True}, "shots"),
        ({"shots": 1.5}, "shots"),
        ({"hold_out": "cuda"}, "hold_out"),
        ({"workload_share": 1}, "workload_share"),
        ({"valid_share": 0}, "valid_share"),
    ],
)
def test_settings_that_cannot_work_are_refused(changed: dict, message: str) -> None:
    settings = {"hold_out": {"kind": "cuda"}, "shots": 0, "workload_share": 0, "valid_share": 0.2, "seed": 0}
    with pytest.raises(ConfigError, match=message):
        TargetSplit(**{**settings, **changed})
