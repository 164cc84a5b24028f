import numpy as np
import pytest

from kernelcast.evaluation.bootstrap import (
    Bootstrap,
    Estimate,
    Resampled,
    Resampling,
    drawn_again,
    seed_shares,
)
from kernelcast.evaluation.scoring import score
from kernelcast.evaluation.summary import summarise

SETTINGS = Bootstrap(samples=300, confidence=0.95, seed=0)


def estimates(
    programs, predicted, resampling: Resampling, bootstrap: Bootstrap = SETTINGS, kind: str = "log_seconds"
) -> dict[str, Estimate]:
    resampled = Resampled.of(programs, resampling, bootstrap)
    return score(programs, np.atleast_2d(predicted), kind, "model", resampled, {}).metrics


def test_the_interval_of_a_random_prediction_holds_chance(make_programs) -> None:
    random = np.random.default_rng(3)
    programs = make_programs(random.normal(size=160), np.repeat(np.arange(8), 20))
    for resampling in Resampling:
        found = estimates(programs, random.normal(size=160), resampling)
        assert found["kendall_tau"].low < 0 < found["kendall_tau"].high
        assert found["pairwise_accuracy"].low < 0.5 < found["pairwise_accuracy"].high


def test_the_interval_of_a_good_prediction_excludes_chance_and_holds_the_value(make_programs) -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=160)
    predicted = truth + random.normal(size=160)
    programs = make_programs(truth, np.repeat(np.arange(8), 20))
    overall = summarise(programs, predicted, "log_seconds").overall
    for resampling in Resampling:
        found = estimates(programs, predicted, resampling)
        assert found["kendall_tau"].low > 0
        assert {name: estimate.value for name, estimate in found.items()} == pytest.approx(overall)
        for name in ("kendall_tau", "spearman", "pairwise_accuracy", "mape", "median_ape", "log_rmse"):
            assert found[name].low < overall[name] < found[name].high


def test_the_interval_covers_the_true_value_about_as_often_as_it_says(make_programs) -> None:
    random = np.random.default_rng(1)
    # bivariate normal: tau = 2 / pi * arcsin(r)
    correlation = 0.6
    expected = 2 / np.pi * np.arcsin(correlation)
    covered, trials = 0, 120
    for seed in range(trials):
        truth = random.normal(size=120)
        predicted = correlation * truth + np.sqrt(1 - correlation**2) * random.normal(size=120)
        programs = make_programs(truth, np.repeat(np.arange(4), 30))
        found = estimates(programs, predicted, Resampling.PROGRAMS, Bootstrap(200, 0.9, seed), "rank")
        covered += found["kendall_tau"].low <= expected <= found["kendall_tau"].high
    assert 0.82 <= covered / trials <= 0.97


def test_unseen_workloads_that_differ_make_the_interval_wider(make_programs) -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=(6, 40))
    # right on half of the workloads, wrong on the others
    predicted = truth * np.array([1, -1, 1, -1, 1, -1])[:, None] + 0.3 * random.normal(size=truth.shape)
    programs = make_programs(truth.ravel(), np.repeat(np.arange(6), 40))
    width = {
        resampling: found.high - found.low
        for resampling in Resampling
        for found in [estimates(programs, predicted.ravel(), resampling)["kendall_tau"]]
    }
    assert width[Resampling.WORKLOADS_AND_PROGRAMS] > 3 * width[Resampling.PROGRAMS]


def test_the_same_seed_gives_the_same_interval(make_programs) -> None:
    random = np.random.default_rng(0)
    programs = make_programs(random.normal(size=30), [0] * 15 + [1] * 15)
    predicted = random.normal(size=30)

    def found(seed: int) -> object:
        return estimates(programs, predicted, Resampling.WORKLOADS_AND_PROGRAMS, Bootstrap(50, 0.9, seed))

    assert found(1) == found(1)
    assert found(1) != found(2)


def test_workloads_drawn_again_have_the_mean_of_the_workloads() -> None:
    replicates = np.repeat([[0.0], [1.0], [5.0]], 4000, axis=1)
    drawn = drawn_again(replicates, Resampling.WORKLOADS_AND_PROGRAMS, Bootstrap(4000, 0.95, 0))
    assert drawn.shape == replicates.shape
    assert drawn.mean() == pytest.approx(2.0, abs=0.1)
    assert drawn.mean(axis=0).std() == pytest.approx(np.std([0.0, 1.0, 5.0]) / np.sqrt(3), rel=0.05)


def test_two_programs_never_look_certain(make_programs) -> None:
    programs = make_programs([-1.0, -2.0], [0, 0])
    tau = estimates(programs, np.array([-1.0, -2.0]), Resampling.PROGRAMS)["kendall_tau"]
    assert (tau.low, tau.high) == (0.0, 1.0)


def test_the_interval_of_a_choice_holds_its_value_though_draws_have_fewer_different_programs(make_programs) -> None:
    random = np.random.default_rng(0)
    programs = make_programs(random.normal(size=1200), np.repeat(np.arange(40), 30))
    for predicted in (random.normal(size=1200), programs.log_seconds + 0.5 * random.normal(size=1200)):
        for resampling in Resampling:
            found = estimates(programs, predicted, resampling)
            for name in ("top_1", "top_5", "tile_size_ape"):
                assert found[name].low < found[name].value < found[name].high
                assert found[name].low >= 0
            assert found["top_5"].high <= 1


@pytest.mark.parametrize("seeds", [2, 5])
def test_drawn_seeds_vary_as_the_mean_of_independent_seeds_does(seeds: int) -> None:
    values = np.random.default_rng(0).normal(size=seeds)
    shares = seed_shares(seeds, Bootstrap(20_000, 0.95, 0), "gcn")
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    # the unbiased variance of a mean, not (r - 1) / r of it
    assert (shares @ values).var() == pytest.approx(values.var(ddof=1) / seeds, rel=0.05)


def test_models_have_their_own_draws_of_seeds() -> None:
    assert (seed_shares(5, SETTINGS, "gcn") != seed_shares(5, SETTINGS, "xgboost")).any()
    assert (seed_shares(1, SETTINGS, "gcn") == 1).all()


def test_seeds_that_differ_widen_the_interval_and_are_averaged(make_programs) -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=400)
    programs = make_programs(truth, np.repeat(np.arange(10), 40))
    noise = random.normal(size=400)
    good, bad = truth + 0.5 * noise, truth + 3 * noise
    alike = estimates(programs, np.stack([good, good]), Resampling.PROGRAMS)["kendall_tau"]
    apart = estimates(programs, np.stack([good, bad]), Resampling.PROGRAMS)["kendall_tau"]
    single = [estimates(programs, one, Resampling.PROGRAMS)["kendall_tau"] for one in (good, bad)]
    assert alike.seed_deviation == 0.0
    assert single[0].seed_deviation is None
    assert (alike.low, alike.high) == pytest.approx((single[0].low, single[0].high))
    assert apart.value == pytest.approx((single[0].value + single[1].value) / 2)
    assert apart.seed_deviation == pytest.approx(abs(single[0].value - single[1].value) / np.sqrt(2))
    # of two seeds a draw has one or the other
    assert apart.low < single[1].value < single[0].value < apart.high


def test_the_interval_over_seeds_covers_the_mean_of_all_seeds_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    resampled = Resampled(np.zeros(0, dtype=np.int64), (), Resampling.PROGRAMS, Bootstrap(400, 0.9, 0))
    covered, trials = 0, 400
    for trial in range(trials):
        # the scatter over seeds alone; what each draw of programs adds is the same for all
        values = random.normal(size=10)
        estimate, _ = resampled.over_seeds(values, np.repeat(values[:, None], 400, axis=1), f"model{trial}")
        covered += estimate.low <= 0.0 <= estimate.high
    assert 0.83 <= covered / trials <= 0.95
