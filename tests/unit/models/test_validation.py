import math

import numpy as np
import pytest

from kernelcast.models import validation
from kernelcast.models.validation import mean_kendall_tau


def tau(prediction, truth, workload=None):
    workload = np.zeros(len(truth), dtype=np.int32) if workload is None else np.array(workload)
    return mean_kendall_tau(np.array(prediction, dtype=float), np.array(truth, dtype=float), workload)


def test_one_swap_of_four():
    # five of six pairs agree
    assert tau([1, 2, 4, 3], [1, 2, 3, 4]) == pytest.approx((5 - 1) / 6)


def test_reversed_order_is_minus_one():
    assert tau([3, 2, 1], [1, 2, 3]) == pytest.approx(-1.0)


def test_ties_shrink_the_denominator():
    # pairs: 0-1 tied in prediction; 0-2 and 1-2 agree
    assert tau([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / math.sqrt(2 * 3))


def test_mean_over_workloads_leaves_out_those_without_an_order():
    prediction, truth = [1, 2, 5, 4, 7, 1, 2], [1, 2, 4, 5, 3, 6, 6]
    assert tau(prediction, truth, [0, 0, 1, 1, 2, 3, 3]) == pytest.approx((1 - 1) / 2)
    assert tau([1, 2, 5], [1, 2, 4], [0, 0, 1]) == pytest.approx(1.0)


def test_equal_predictions_count_as_zero():
    assert tau([1, 1, 1], [1, 2, 3]) == 0.0


def test_nothing_to_order_is_not_a_number():
    assert math.isnan(tau([], []))
    assert math.isnan(tau([1, 2], [3, 3]))


def test_blocks_of_rows_give_the_same(monkeypatch):
    random = np.random.default_rng(0)
    prediction, truth = random.integers(0, 9, 50), random.integers(0, 9, 50)
    whole = tau(prediction, truth)
    monkeypatch.setattr(validation, "_PAIR_BLOCK", 150)
    assert tau(prediction, truth) == pytest.approx(whole)
