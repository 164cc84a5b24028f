import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.evaluation.resampling import DrawnPrograms
from kernelcast.evaluation.summary import defined_metrics

GAP = 1.5
# few different values, so that ties are common
tied = st.integers(-3, 3).map(float)
ROWS = st.lists(st.tuples(tied, tied), min_size=6, max_size=10).filter(
    lambda rows: np.ptp([row[0] for row in rows]) > GAP
)


def drawn_of(truth: np.ndarray, seed: int, samples: int = 8) -> DrawnPrograms:
    return DrawnPrograms.draw(np.arange(len(truth)), truth, samples, GAP, (seed,))


@settings(deadline=None, max_examples=25)
@given(ROWS, st.integers(0, 99))
def test_a_resampled_metric_is_the_metric_of_the_drawn_programs(rows: list[tuple[float, float]], seed: int) -> None:
    truth, predicted = np.array(rows).T
    # a second seed without ties
    distinct = predicted + 1e-3 * np.random.default_rng(seed).permutation(len(predicted))
    drawn = drawn_of(truth, seed)
    defined = defined_metrics(truth, "log_seconds", GAP)
    assert len(defined) == 11
    found = drawn.metrics(np.stack([predicted, distinct]), [metric.name for metric in defined])
    for metric in defined:
        for one, values in zip((predicted, distinct), found[metric.name], strict=True):
            if one is predicted and (metric.name.startswith("top") or metric.name == "tile_size_ape"):
                continue  # in random order among equals: below
            expected = []
            for counts in drawn.counts.T:
                chosen = np.repeat(drawn.rows, counts)
                expected.append(metric.function(truth[chosen], one[chosen]))
            np.testing.assert_allclose(values, expected, atol=2e-6, err_msg=metric.name)


@pytest.mark.parametrize("name", ["top_1", "top_5", "tile_size_ape"])
def test_a_choice_among_equals_has_the_expected_value_as_its_mean(name: str) -> None:
    random = np.random.default_rng(0)
    truth, predicted = random.normal(size=12), random.integers(3, size=12).astype(float)
    drawn = drawn_of(truth, 1, 4000)
    (values,) = drawn.metrics(predicted[None], [name])[name]
    function = next(metric.function for metric in defined_metrics(truth, "rank") if metric.name == name)
    expected = []
    for counts in drawn.counts.T:
        chosen = np.repeat(drawn.rows, counts)
        expected.append(function(truth[chosen], predicted[chosen]))
    assert values.mean() == pytest.approx(np.mean(expected), abs=4 * np.std(values - expected) / np.sqrt(4000))


def test_every_draw_has_as_many_programs_as_there_are() -> None:
    drawn = drawn_of(np.array([3.0, 1.0, 2.0]), 0, 5000)
    assert (drawn.counts.sum(axis=0) == 3).all()
    assert drawn.rows.tolist() == [1, 2, 0]
    # each is drawn equally often
    np.testing.assert_allclose(drawn.counts.mean(axis=1), 1.0, atol=0.05)


def test_many_programs_need_more_than_a_glance_at_the_first() -> None:
    # the first 30 predicted are drawn by few of the draws
    random = np.random.default_rng(0)
    truth = random.normal(size=40)
    counts = np.zeros((40, 3), dtype=np.uint8)
    order = np.argsort(truth)
    predicted = random.permutation(40).astype(float)
    ranked = np.argsort(predicted)
    place = np.empty(40, dtype=int)
    place[order] = np.arange(40)
    for draw, some in enumerate(([35, 36], [0, 39], [20, 21, 38])):
        counts[place[ranked[some[:-1]]], draw] = 1
        counts[place[ranked[some[-1]]], draw] = 40 - len(some) + 1
    drawn = DrawnPrograms(order, truth[order], counts, None, (0,))
    found = drawn.metrics(predicted[None], ["top_1", "top_5"])
    for draw, some in enumerate(([35, 36], [0, 39], [20, 21, 38])):
        best = truth[ranked[some]].min()
        assert found["top_1"][0, draw] == pytest.approx(np.exp(best - truth[ranked[some[0]]]))
        assert found["top_5"][0, draw] == pytest.approx(1.0)


def test_absurd_predictions_have_finite_errors_in_every_draw() -> None:
    drawn = drawn_of(np.array([-12.0, -11.0, -10.0]), 0)
    found = drawn.metrics(np.array([[1e300, -1e300, 5.0]]), ["mape", "median_ape", "p90_ape", "log_rmse"])
    assert all(np.isfinite(values).all() for values in found.values())
