import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.models.batching import Labels
from kernelcast.models.losses import LogMSE, PairwiseRank, comparable_pairs

SCORES = torch.tensor([0.0, 2.0, 1.0, 5.0])
TIMES = torch.tensor([-3.0, -1.0, -2.0, -9.0])
WORKLOADS = torch.tensor([0, 0, 0, 1])


def labels_of(log_seconds, workload):
    return Labels.of(log_seconds.numpy(), workload.numpy())


def test_hinge_over_the_pairs_of_one_workload():
    # pairs slower-faster of workload 0: 1-0 (difference 2), 1-2 (1), 2-0 (1); margin 1.5
    assert PairwiseRank("hinge", margin=1.5)(SCORES, labels_of(TIMES, WORKLOADS)).item() == pytest.approx(
        (0 + 0.5 + 0.5) / 3
    )


def test_hinge_of_a_wrong_order():
    scores = torch.tensor([1.0, 0.0])
    times = torch.tensor([-2.0, -1.0])
    assert PairwiseRank("hinge", margin=1.0)(scores, labels_of(times, torch.tensor([3, 3]))).item() == pytest.approx(
        2.0
    )


def test_logistic_over_the_pairs_of_one_workload():
    expected = sum(math.log1p(math.exp(-difference)) for difference in (2.0, 1.0, 1.0)) / 3
    assert PairwiseRank("logistic")(SCORES, labels_of(TIMES, WORKLOADS)).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("surrogate", ["hinge", "logistic"])
def test_no_comparable_pair_gives_zero_with_a_gradient(surrogate):
    scores = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    # equal times in workload 0, a single program in workload 1
    loss = PairwiseRank(surrogate)(scores, labels_of(torch.tensor([-1.0, -1.0, -5.0]), torch.tensor([0, 0, 1])))
    loss.backward()
    assert loss.item() == 0.0
    assert scores.grad.tolist() == [0.0, 0.0, 0.0]


def test_gradient_pulls_a_wrong_pair_apart():
    scores = torch.tensor([0.0, 0.0], requires_grad=True)
    PairwiseRank()(scores, labels_of(torch.tensor([-1.0, -2.0]), torch.tensor([0, 0]))).backward()
    # descending raises the slower one's score and lowers the faster one's
    assert scores.grad[0] < 0 < scores.grad[1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=12))
def test_pairs_are_those_of_two_loops(rows):
    workload = torch.tensor([row[0] for row in rows], dtype=torch.int64)
    times = torch.tensor([float(row[1]) for row in rows])
    slower, faster = comparable_pairs(times, workload)
    expected = {
        (i, j)
        for i in range(len(rows))
        for j in range(len(rows))
        if rows[i][0] == rows[j][0] and rows[i][1] > rows[j][1]
    }
    found = list(zip(slower.tolist(), faster.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_log_mse_is_the_mean_squared_difference():
    loss = LogMSE()(torch.tensor([-1.0, -2.0]), labels_of(torch.tensor([-1.5, -4.0]), torch.tensor([0, 1])))
    assert loss.item() == pytest.approx((0.25 + 4.0) / 2)


def test_log_mse_starts_at_the_mean_of_the_labels():
    assert LogMSE().output_range(np.array([-4.0, -2.0])) == (-3.0, 1.0)
    # one label: the spread says nothing
    assert LogMSE().output_range(np.array([-4.0])) == (-4.0, 1.0)
    assert PairwiseRank().output_range(np.array([-4.0, -2.0])) == (0.0, 1.0)


def test_boosting_labels_are_places_within_the_workload():
    log_seconds = np.array([-1.0, -3.0, -3.0, -2.0, -9.0, -8.0])
    labels = PairwiseRank().boosting_labels(log_seconds, np.array([0, 0, 0, 0, 1, 1]))
    assert labels.tolist() == [2, 0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [({"surrogate": "square"}, "loss.surrogate"), ({"margin": 0}, "loss.margin"), ({"margin": "wide"}, "loss.margin")],
)
def test_wrong_settings_name_their_key(arguments, key):
    with pytest.raises(ConfigError, match=key):
        PairwiseRank(**arguments)
