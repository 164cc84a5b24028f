import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.evaluation.bootstrap import (
    Resampling,
    bootstrap_intervals,
    mean_over_workloads,
    resampled_metric,
)
from kernelcast.evaluation.summary import METRICS, summarise

SETTINGS = {"samples": 300, "confidence": 0.95, "seed": 0}
tied = st.integers(-3, 3).map(float)


@given(st.lists(st.tuples(tied, tied), min_size=6, max_size=10), st.integers(0, 99))
def test_a_resampled_metric_is_the_metric_of_the_drawn_programs(rows: list[tuple[float, float]], seed: int) -> None:
    truth, predicted = np.array(rows).T
    random = np.random.default_rng(seed)
    draws = random.integers(len(truth), size=(5, len(truth)))
    jitter = random.random(draws.shape)
    for metric in METRICS:
        values = resampled_metric(metric, truth, predicted, draws, jitter)
        if metric.name.startswith("top"):
            # the draw's own random order among equal predictions instead of the mean over all orders
            expected = [
                metric.function(truth[draw], predicted[draw] + 1e-6 * noise)
                for draw, noise in zip(draws, jitter, strict=True)
            ]
        else:
            expected = [metric.function(truth[draw], predicted[draw]) for draw in draws]
        np.testing.assert_allclose(values, expected, atol=1e-12)


def test_the_interval_of_a_random_prediction_holds_chance(make_programs) -> None:
    random = np.random.default_rng(3)
    programs = make_programs(random.normal(size=160), np.repeat(np.arange(8), 20))
    for resampling in Resampling:
        intervals = bootstrap_intervals(programs, random.normal(size=160), "rank", resampling, **SETTINGS)
        assert intervals["kendall_tau"].low < 0 < intervals["kendall_tau"].high
        assert intervals["pairwise_accuracy"].low < 0.5 < intervals["pairwise_accuracy"].high


def test_the_interval_of_a_good_prediction_excludes_chance_and_holds_the_value(make_programs) -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=160)
    predicted = truth + random.normal(size=160)
    programs = make_programs(truth, np.repeat(np.arange(8), 20))
    overall = summarise(programs, predicted, "log_seconds").overall
    for resampling in Resampling:
        intervals = bootstrap_intervals(programs, predicted, "log_seconds", resampling, **SETTINGS)
        assert intervals["kendall_tau"].low > 0
        assert set(intervals) == set(overall)
        for name in ("kendall_tau", "pairwise_accuracy", "mape", "log_rmse"):
            assert intervals[name].low < overall[name] < intervals[name].high


def test_the_interval_covers_the_true_value_about_as_often_as_it_says(make_programs) -> None:
    random = np.random.default_rng(1)
    # bivariate normal: tau = 2 / pi * arcsin(r)
    correlation = 0.6
    expected = 2 / np.pi * np.arcsin(correlation)
    covered, trials = 0, 120
    for seed in range(trials):
        truth = random.normal(size=120)
        predicted = correlation * truth + np.sqrt(1 - correlation**2) * random.normal(size=120)
        interval = bootstrap_intervals(
            make_programs(truth, np.repeat(np.arange(4), 30)), predicted, "rank", Resampling.PROGRAMS, 200, 0.9, seed
        )["kendall_tau"]
        covered += interval.low <= expected <= interval.high
    assert 0.82 <= covered / trials <= 0.97


def test_unseen_workloads_that_differ_make_the_interval_wider(make_programs) -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=(6, 40))
    # right on half of the workloads, wrong on the others
    predicted = truth * np.array([1, -1, 1, -1, 1, -1])[:, None] + 0.3 * random.normal(size=truth.shape)
    programs = make_programs(truth.ravel(), np.repeat(np.arange(6), 40))
    width = {
        resampling: interval.high - interval.low
        for resampling in Resampling
        for interval in [
            bootstrap_intervals(programs, predicted.ravel(), "rank", resampling, **SETTINGS)["kendall_tau"]
        ]
    }
    assert width[Resampling.WORKLOADS_AND_PROGRAMS] > 3 * width[Resampling.PROGRAMS]


def test_the_same_seed_gives_the_same_interval(make_programs) -> None:
    random = np.random.default_rng(0)
    programs = make_programs(random.normal(size=30), [0] * 15 + [1] * 15)
    predicted = random.normal(size=30)

    def intervals(seed: int) -> object:
        return bootstrap_intervals(programs, predicted, "rank", Resampling.WORKLOADS_AND_PROGRAMS, 50, 0.9, seed)

    assert intervals(1) == intervals(1)
    assert intervals(1) != intervals(2)


def test_workloads_drawn_again_have_the_mean_of_the_workloads() -> None:
    replicates = np.repeat([[0.0], [1.0], [5.0]], 4000, axis=1)
    means = mean_over_workloads(replicates, Resampling.WORKLOADS_AND_PROGRAMS, seed=0)
    assert means.mean() == pytest.approx(2.0, abs=0.1)
    assert means.std() == pytest.approx(np.std([0.0, 1.0, 5.0]) / np.sqrt(3), rel=0.05)


def test_two_programs_never_look_certain(make_programs) -> None:
    programs = make_programs([-1.0, -2.0], [0, 0])
    interval = bootstrap_intervals(programs, np.array([-1.0, -2.0]), "rank", Resampling.PROGRAMS, **SETTINGS)
    assert interval["kendall_tau"].low == 0.0
    assert interval["kendall_tau"].high == 1.0
