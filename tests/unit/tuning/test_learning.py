"""What is learned from trials, on made-up workloads whose truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernelcast.errors import ConfigError
from kernelcast.tuning.learning import Frozen, Refit, Trials, Unchanged, joined
from kernelcast.tuning.scores import as_scores, fastest_of

FEATURES = 12
RESIDUAL = 0.3


def made_up(count: int, seed: int, missed: float, unit: float = 1.0) -> Trials:
    """Programs of which the model misses what two features do; its prediction is in `unit` of ln(seconds)."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, FEATURES)).astype(np.float32)
    rows[:, 5] = 3.0
    known = 0.5 * rows[:, 2] - 0.3 * rows[:, 3]
    truth = -9 + known + missed * (np.sin(rows[:, 0]) + 0.5 * rows[:, 1]) + 0.02 * random.normal(size=count)
    return Trials(known.astype(np.float64) / unit, rows, truth.astype(np.float64))


def agreement(predicted: np.ndarray, trials: Trials) -> float:
    return float(np.corrcoef(predicted, trials.log_seconds)[0, 1])


def part(trials: Trials, rows: slice) -> Trials:
    return Trials(trials.predicted[rows], trials.rows[rows], trials.log_seconds[rows])


@pytest.mark.parametrize("unit", [1.0, 0.01])
def test_it_learns_what_the_model_misses_in_whatever_unit_the_model_predicts(unit: float) -> None:
    trials = made_up(464, 0, missed=0.6, unit=unit)
    seen, new = part(trials, slice(64)), part(trials, slice(64, None))
    learned = Refit().learn(seen, unit, RESIDUAL).apply(new.predicted, new.rows)
    assert agreement(new.predicted, new) < 0.8
    assert agreement(learned, new) > agreement(new.predicted, new) + 0.08
    # in ln(seconds)
    assert np.mean((learned - new.log_seconds) ** 2) < 0.5 * new.log_seconds.var()
    np.testing.assert_array_equal(Refit().learn(seen, unit, RESIDUAL).apply(new.predicted, new.rows), learned)


def test_a_model_that_misses_nothing_stays_as_it_is() -> None:
    for seed in range(5):
        trials = made_up(40, seed, missed=0.0)
        random = np.random.default_rng(seed)
        noisy = dataclasses.replace(trials, log_seconds=trials.log_seconds + 0.3 * random.normal(size=40))
        new = made_up(200, 100 + seed, missed=0.0)
        learned = Refit().learn(noisy, 1.0, RESIDUAL).apply(new.predicted, new.rows)
        assert agreement(learned, new) > 0.95


def test_far_from_all_trials_the_order_is_that_of_the_model() -> None:
    trials = made_up(64, 0, missed=0.6)
    learned = Refit().learn(trials, 1.0, RESIDUAL)
    assert not isinstance(learned, Unchanged)
    new = made_up(50, 1, missed=0.6)
    far = learned.apply(new.predicted, new.rows + np.float32(1e4))
    np.testing.assert_array_equal(np.argsort(far), np.argsort(new.predicted))


def test_too_few_trials_and_failed_ones_teach_nothing() -> None:
    trials = made_up(64, 0, missed=0.6)
    failed = np.arange(64) >= 7
    few = dataclasses.replace(trials, log_seconds=np.where(failed, np.nan, trials.log_seconds))
    assert isinstance(Refit().learn(few, 1.0, RESIDUAL), Unchanged)
    whole = part(trials, slice(40))
    with_failed = joined([whole, part(few, slice(40, 64))])
    assert len(with_failed) == 64
    first, second = (Refit().learn(each, 1.0, RESIDUAL) for each in (whole, with_failed))
    np.testing.assert_array_equal(*(each.apply(trials.predicted, trials.rows) for each in (first, second)))


def test_programs_without_a_prediction_keep_none() -> None:
    trials = made_up(64, 0, missed=0.6)
    predicted = trials.predicted.copy()
    predicted[3] = np.inf
    corrected = Refit().learn(trials, 1.0, RESIDUAL).apply(predicted, trials.rows)
    np.testing.assert_array_equal(np.flatnonzero(~np.isfinite(corrected)), [3])
    scores = as_scores(corrected)
    assert scores[3] == 0 < np.delete(scores, 3).min()
    assert scores.max() == 1


def test_equal_trials_do_no_harm() -> None:
    trials = made_up(1, 0, missed=0.6)
    same = joined([trials] * 12)
    learned = Refit().learn(same, 0.0, 0.0).apply(same.predicted, same.rows)
    assert np.isfinite(learned).all()


def test_frozen_learns_nothing() -> None:
    trials = made_up(64, 0, missed=0.6)
    np.testing.assert_array_equal(
        Frozen().learn(trials, 1.0, RESIDUAL).apply(trials.predicted, trials.rows), trials.predicted
    )


@pytest.mark.parametrize("changes", [{"least_trials": 2}, {"least_trials": 8.5}, {"most_trials": 4}])
def test_numbers_that_cannot_work_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"learning\.(least|most)_trials"):
        Refit(**changes)  # type: ignore[arg-type]


def test_scores_are_positive_and_the_fastest_is_highest() -> None:
    predicted = np.array([-3.0, -5.0, np.inf, 2000.0])
    np.testing.assert_allclose(as_scores(predicted), [np.exp(-2.0), 1.0, 0.0, 0.0])
    assert as_scores(predicted, fastest_of(predicted) + 1.0)[1] == pytest.approx(np.e)
    assert as_scores(np.array([np.inf, np.inf])).tolist() == [0.0, 0.0]
    assert np.isfinite(as_scores(np.array([-5000.0]), 0.0)).all()
