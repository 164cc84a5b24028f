import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, rankdata, spearmanr

from kernelcast.evaluation.metrics import (
    absolute_percentage_errors,
    clear_pairwise_accuracy,
    dense_ranks,
    kendall_tau,
    log_rmse,
    mape,
    mean_ranks,
    median_ape,
    p90_ape,
    pairwise_accuracy,
    spearman,
    tile_size_ape,
    top_k_score,
)

# few different values, so that ties are common
tied = st.integers(-4, 4).map(float)
pairs = st.lists(st.tuples(tied, tied), min_size=2, max_size=12).map(lambda rows: np.array(rows).T)


@settings(deadline=None)
@given(pairs)
def test_kendall_tau_is_scipys_tau_b(data: np.ndarray) -> None:
    truth, predicted = data
    expected = kendalltau(truth, predicted, variant="b").statistic
    assert kendall_tau(truth, predicted) == pytest.approx(0.0 if np.isnan(expected) else expected)


@settings(deadline=None)
@given(pairs)
def test_pairwise_accuracy_counts_pairs(data: np.ndarray) -> None:
    truth, predicted = data
    right = total = 0.0
    for i, j in itertools.combinations(range(len(truth)), 2):
        if truth[i] == truth[j]:
            continue
        total += 1
        if predicted[i] == predicted[j]:
            right += 0.5
        else:
            right += (truth[i] < truth[j]) == (predicted[i] < predicted[j])
    assert pairwise_accuracy(truth, predicted) == pytest.approx(right / total if total else 0.5)


@settings(deadline=None)
@given(pairs)
def test_spearman_is_scipys(data: np.ndarray) -> None:
    truth, predicted = data
    np.testing.assert_array_equal(mean_ranks(truth), rankdata(truth))
    if np.ptp(truth) == 0 or np.ptp(predicted) == 0:
        assert spearman(truth, predicted) == 0.0
    else:
        assert spearman(truth, predicted) == pytest.approx(spearmanr(truth, predicted).statistic)


@settings(deadline=None)
@given(pairs, st.floats(0.0, 9.0))
def test_clear_pairs_are_those_further_apart_than_the_gap(data: np.ndarray, gap: float) -> None:
    truth, predicted = data
    scores = [
        0.5 if predicted[i] == predicted[j] else float((truth[i] < truth[j]) == (predicted[i] < predicted[j]))
        for i, j in itertools.combinations(range(len(truth)), 2)
        if abs(truth[i] - truth[j]) > gap
    ]
    expected = np.mean(scores) if scores else 0.5
    assert clear_pairwise_accuracy(truth, predicted, gap) == pytest.approx(expected)
    assert clear_pairwise_accuracy(truth, predicted, 0.0) == pytest.approx(pairwise_accuracy(truth, predicted))


@settings(deadline=None)
@given(pairs)
def test_the_tile_size_ape_is_the_loss_of_the_choice(data: np.ndarray) -> None:
    truth, predicted = data
    chosen = truth[predicted == predicted.min()]
    expected = np.mean(np.exp(chosen - truth.min())) - 1
    assert tile_size_ape(truth, predicted) == pytest.approx(expected)
    assert tile_size_ape(truth, predicted) >= 0
    if len(chosen) == 1:
        assert tile_size_ape(truth, predicted) == pytest.approx(1 / top_k_score(truth, predicted, 1) - 1)


@settings(deadline=None)
@given(pairs)
def test_errors_of_time_keep_their_order_and_grow_with_the_scale(data: np.ndarray) -> None:
    truth, predicted = data
    errors = absolute_percentage_errors(truth, predicted)
    assert errors.min() <= median_ape(truth, predicted) <= p90_ape(truth, predicted) <= errors.max()
    # the unit of time is nobody's merit
    for metric in (mape, median_ape, p90_ape, log_rmse):
        assert metric(truth + 3, predicted + 3) == pytest.approx(metric(truth, predicted))


@settings(deadline=None)
@given(st.lists(st.tuples(tied, st.integers(0, 2).map(float)), min_size=2, max_size=6), st.integers(1, 6))
def test_top_k_is_the_mean_over_all_orders_of_equal_predictions(rows: list[tuple[float, float]], k: int) -> None:
    truth, predicted = np.array(rows).T
    scores = [
        np.exp(truth.min() - truth[list(order[:k])].min())
        for order in itertools.permutations(range(len(truth)))
        if all(predicted[a] <= predicted[b] for a, b in itertools.pairwise(order))
    ]
    assert top_k_score(truth, predicted, k) == pytest.approx(np.mean(scores))


@settings(deadline=None)
@given(pairs, st.integers(1, 6))
def test_a_monotone_transform_of_the_prediction_changes_no_ranking_metric(data: np.ndarray, k: int) -> None:
    truth, predicted = data
    other = np.exp(predicted / 3) - 100
    assert kendall_tau(truth, other) == kendall_tau(truth, predicted)
    assert pairwise_accuracy(truth, other) == pairwise_accuracy(truth, predicted)
    assert top_k_score(truth, other, k) == top_k_score(truth, predicted, k)
    assert spearman(truth, other) == spearman(truth, predicted)
    assert tile_size_ape(truth, other) == tile_size_ape(truth, predicted)
    assert clear_pairwise_accuracy(truth, other, 1.5) == clear_pairwise_accuracy(truth, predicted, 1.5)


@settings(deadline=None)
@given(pairs)
def test_the_reversed_order_has_the_opposite_tau(data: np.ndarray) -> None:
    truth, predicted = data
    assert kendall_tau(truth, -predicted) == pytest.approx(-kendall_tau(truth, predicted))
    assert spearman(truth, -predicted) == pytest.approx(-spearman(truth, predicted))
    assert pairwise_accuracy(truth, -predicted) == pytest.approx(1 - pairwise_accuracy(truth, predicted))


@settings(deadline=None)
@given(pairs)
def test_more_places_never_score_worse(data: np.ndarray) -> None:
    truth, predicted = data
    scores = [top_k_score(truth, predicted, k) for k in range(1, len(truth) + 1)]
    assert all(0 < score <= 1 for score in scores)
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(scores))
    assert scores[-1] == 1.0


def test_the_truth_itself_is_perfect() -> None:
    truth = np.log([3e-6, 1e-6, 2e-6])
    assert kendall_tau(truth, truth) == 1.0
    assert pairwise_accuracy(truth, truth) == 1.0
    assert top_k_score(truth, truth, 1) == 1.0
    assert spearman(truth, truth) == pytest.approx(1.0)
    assert clear_pairwise_accuracy(truth, truth, 0.1) == 1.0
    assert tile_size_ape(truth, truth) == 0.0
    assert mape(truth, truth) == median_ape(truth, truth) == p90_ape(truth, truth) == 0.0
    assert log_rmse(truth, truth) == 0.0


def test_top_1_is_a_ratio_of_times() -> None:
    assert top_k_score(np.log([4e-6, 1e-6, 2e-6]), np.array([0.0, 2.0, 1.0]), 1) == pytest.approx(0.25)
    assert top_k_score(np.log([4e-6, 1e-6, 2e-6]), np.array([0.0, 2.0, 1.0]), 2) == pytest.approx(0.5)


def test_errors_are_relative_to_the_true_time() -> None:
    truth, predicted = np.log([1e-6, 1e-6]), np.log([1.5e-6, 0.8e-6])
    assert mape(truth, predicted) == pytest.approx((0.5 + 0.2) / 2)
    assert log_rmse(truth, predicted) == pytest.approx(np.sqrt((np.log(1.5) ** 2 + np.log(0.8) ** 2) / 2))


def test_an_absurd_prediction_has_a_finite_error() -> None:
    assert np.isfinite(mape(np.array([-12.0, -12.0]), np.array([1e9, -1e9])))
    assert np.isfinite(log_rmse(np.array([-12.0]), np.array([1e300])))


def test_dense_ranks() -> None:
    assert dense_ranks(np.array([0.5, -1.0, 0.5, 7.0])).tolist() == [1, 0, 1, 2]
