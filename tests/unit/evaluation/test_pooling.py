import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.evaluation.bootstrap import Bootstrap, Resampling
from kernelcast.evaluation.metrics import kendall_tau, pairwise_accuracy
from kernelcast.evaluation.pooling import pooled_order

SETTINGS = Bootstrap(samples=200, confidence=0.95, seed=0)
tied = st.integers(-3, 3).map(float)


@settings(deadline=None)
@given(st.lists(st.tuples(tied, tied), min_size=2, max_size=9), st.sampled_from(list(Resampling)))
def test_one_workload_pools_to_its_own_figures(rows: list[tuple[float, float]], resampling: Resampling) -> None:
    truth, predicted = np.array(rows).T
    order = pooled_order(truth, predicted, np.zeros(len(rows)), resampling, SETTINGS)
    if np.ptp(truth) == 0:
        assert order is None
        return
    assert order.kendall_tau.value == pytest.approx(kendall_tau(truth, predicted))
    assert order.pairwise_accuracy.value == pytest.approx(pairwise_accuracy(truth, predicted))
    for estimate, least in ((order.kendall_tau, -1.0), (order.pairwise_accuracy, 0.0)):
        assert least - 1e-9 <= estimate.low <= estimate.high <= 1.0 + 1e-9


def test_every_pair_counts_once_whatever_its_workload_and_none_across() -> None:
    # three pairs that agree, one that does not; across workloads all would disagree
    truth = np.array([1.0, 2.0, 3.0, 9.0, 8.0])
    predicted = np.array([5.0, 6.0, 7.0, 1.0, 2.0])
    order = pooled_order(truth, predicted, np.array([0, 0, 0, 1, 1]), Resampling.PROGRAMS, SETTINGS)
    assert order.comparisons == 4
    assert order.kendall_tau.value == pytest.approx((3 - 1) / 4)
    assert order.pairwise_accuracy.value == pytest.approx(3 / 4)
    assert order.kendall_tau.low < order.kendall_tau.value < order.kendall_tau.high


def test_clear_pairs_are_those_beyond_the_noise_and_not_taken_for_certain_either() -> None:
    # in the first workload the pair in the wrong order is within the noise; the second has no clear pair
    truth = np.log([1.0, 1.05, 2.0, 3.0, 3.1])
    predicted = np.array([2.0, 1.0, 3.0, 2.0, 1.0])
    workload = np.array([0, 0, 0, 1, 1])
    order = pooled_order(truth, predicted, workload, Resampling.PROGRAMS, SETTINGS, noise_ratio=1.1)
    assert order.pairwise_accuracy.value == pytest.approx(2 / 4)
    assert order.clear_pairwise_accuracy.value == 1.0
    assert order.clear_pairwise_accuracy.low == pytest.approx(0.025)
    without = pooled_order(truth, predicted, workload, Resampling.PROGRAMS, SETTINGS)
    assert without.clear_pairwise_accuracy is None
    assert without.kendall_tau == order.kendall_tau


def test_single_programs_have_no_order() -> None:
    values = np.array([1.0, 2.0])
    assert pooled_order(values, values, np.array([0, 1]), Resampling.PROGRAMS, SETTINGS) is None


@pytest.mark.parametrize(("sign", "end"), [(1.0, "low"), (-1.0, "high")])
def test_few_pairs_that_all_agree_are_not_taken_for_certain(sign: float, end: str) -> None:
    widths = []
    for workloads in (1, 3, 30):
        truth = np.tile([1.0, 2.0], workloads)
        order = pooled_order(truth, sign * truth, np.repeat(np.arange(workloads), 2), Resampling.PROGRAMS, SETTINGS)
        assert order.kendall_tau.value == sign
        bound = getattr(order.kendall_tau, end)
        # as many agreements in a row have the chance of the tail at the bound
        accuracy = (1 + sign * bound) / 2
        assert accuracy**workloads == pytest.approx(0.025)
        assert getattr(order.pairwise_accuracy, end) == pytest.approx((1 + bound) / 2)
        widths.append(abs(sign - bound))
    assert widths == sorted(widths, reverse=True)


def test_the_interval_holds_the_true_agreement_about_as_often_as_it_says() -> None:
    # the size of a real campaign: three programs of each of 16 workloads measured again
    random = np.random.default_rng(1)
    correlation, trials, covered = 0.9, 150, 0
    expected = 2 / np.pi * np.arcsin(correlation)
    workload = np.repeat(np.arange(16), 3)
    for seed in range(trials):
        truth = random.normal(size=48)
        predicted = correlation * truth + np.sqrt(1 - correlation**2) * random.normal(size=48)
        interval = pooled_order(
            truth, predicted, workload, Resampling.WORKLOADS_AND_PROGRAMS, Bootstrap(200, 0.9, seed)
        ).kendall_tau
        covered += interval.low <= expected <= interval.high
    assert 0.8 <= covered / trials <= 0.99
