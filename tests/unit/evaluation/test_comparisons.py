import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.evaluation.bootstrap import Bootstrap, Resampled, Resampling
from kernelcast.evaluation.comparisons import Standing, compare, holm, randomisation_p
from kernelcast.evaluation.scoring import score

SETTINGS = Bootstrap(samples=300, confidence=0.95, seed=0)
small = st.integers(-4, 4).map(float)


@settings(deadline=None)
@given(st.lists(small, min_size=1, max_size=7))
def test_p_is_the_share_of_sign_patterns_that_are_as_far_from_zero(differences: list[float]) -> None:
    patterns = list(itertools.product((1, -1), repeat=len(differences)))
    observed = abs(sum(differences))
    as_far = sum(abs(np.dot(signs, differences)) >= observed for signs in patterns)
    assert randomisation_p(np.array([differences]), 0)[0] == pytest.approx(as_far / len(patterns))


def test_p_of_many_workloads_is_about_the_exact_one_and_never_zero() -> None:
    random = np.random.default_rng(0)
    few = random.normal(0.3, 1, size=14)
    # zeros change nothing, but make them too many to enumerate
    many = np.concatenate([few, np.zeros(6)])
    assert randomisation_p(many[None], 0)[0] == pytest.approx(randomisation_p(few[None], 0)[0], abs=0.01)
    assert 0 < randomisation_p(np.full((1, 40), 0.1), 0)[0] < 1e-4


def test_p_of_equal_models_is_as_often_small_as_it_says() -> None:
    random = np.random.default_rng(0)
    p = randomisation_p(random.normal(size=(1000, 12)), 0)
    assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=0.02)
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.05)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_step_down_procedure(p: list[float]) -> None:
    corrected = holm(p)
    assert all(plain <= after <= 1 for plain, after in zip(p, corrected, strict=True))
    # reject the smallest while it is below its level; a corrected p tells the same
    for level in (0.05, 0.3, 0.7):
        rejected = set()
        for rank, number in enumerate(np.argsort(p, kind="stable").tolist()):
            if p[number] * (len(p) - rank) > level:
                break
            rejected.add(number)
        assert rejected == set(np.flatnonzero(corrected <= level).tolist())


def standings(programs, predictions: dict[str, np.ndarray], resampling: Resampling) -> dict[str, dict[str, Standing]]:
    resampled = Resampled.of(programs, resampling, SETTINGS)
    return {
        name: score(programs, np.atleast_2d(predicted), "rank", name, resampled, {}).standings
        for name, predicted in predictions.items()
    }


@pytest.mark.parametrize("resampling", list(Resampling))
def test_a_better_model_is_shown_to_be_and_an_equal_one_is_not(make_programs, resampling: Resampling) -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=400)
    programs = make_programs(truth, np.repeat(np.arange(20), 20))
    predictions = {
        "good": truth + 0.3 * random.normal(size=(3, 400)),
        "same": truth + 0.3 * random.normal(size=(3, 400)),
        "bad": truth + 2 * random.normal(size=(3, 400)),
    }
    found = {
        (entry.model, entry.other): entry
        for entry in compare(standings(programs, predictions, resampling), SETTINGS)
        if entry.metric == "kendall_tau"
    }
    assert list(found) == [("good", "same"), ("good", "bad"), ("same", "bad")]
    better, equal = found["good", "bad"], found["good", "same"]
    assert better.low > 0.2
    assert better.low < better.difference < better.high
    assert better.p_holm < 0.001
    assert better.workloads == 20
    assert better.shown(0.95)
    assert equal.low < 0 < equal.high
    assert not equal.shown(0.95)


def test_the_same_draws_make_the_difference_of_like_models_certain(make_programs) -> None:
    random = np.random.default_rng(0)
    # workloads differ much, the models hardly
    scale = np.repeat(np.linspace(0.1, 4, 10), 20)
    truth = random.normal(size=200)
    first = truth + scale * random.normal(size=200)
    second = first + 0.01 * random.normal(size=200)
    programs = make_programs(truth, np.repeat(np.arange(10), 20))
    found = standings(programs, {"first": first, "second": second}, Resampling.WORKLOADS_AND_PROGRAMS)
    (entry,) = (entry for entry in compare(found, SETTINGS) if entry.metric == "kendall_tau")
    single = np.ptp(np.percentile(found["first"]["kendall_tau"].drawn, SETTINGS.ends))
    assert entry.high - entry.low < single / 5


def test_rounding_is_no_difference() -> None:
    # the mean of five equal values is one of them but for its last digit
    values = np.random.default_rng(0).random(30)
    drawn = np.zeros(10)
    models = {
        name: {"kendall_tau": Standing(0.5, drawn, by_workload)}
        for name, by_workload in (("one", values), ("five", values * (1 + 2e-16) + 1e-17))
    }
    (entry,) = compare(models, SETTINGS)
    assert entry.p == 1.0


def test_only_metrics_that_both_have_are_compared() -> None:
    one = Standing(0.5, np.full(10, 0.5), np.full(3, 0.5))
    models = {"ranks": {"kendall_tau": one}, "times": {"kendall_tau": one, "mape": one}}
    assert [(entry.metric, entry.p) for entry in compare(models, SETTINGS)] == [("kendall_tau", 1.0)]
    assert compare({}, SETTINGS) == ()
