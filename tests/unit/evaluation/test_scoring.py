import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.scoring import TIMED_PROGRAMS, checked, predict_microseconds


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_prediction_that_is_no_number_names_the_model_and_the_count(broken: float) -> None:
    with pytest.raises(MalformedDataError, match=r"gcn predicts NaN or infinity for 1 of 3 programs; train it again"):
        checked(np.array([1.0, broken, 2.0]), 3, "gcn")


def test_predictions_of_another_number_are_refused() -> None:
    with pytest.raises(MalformedDataError, match=r"shape \(2, 1\) for 2 programs"):
        checked(np.zeros((2, 1)), 2, "gcn")


def test_predictions_become_float64() -> None:
    assert checked(np.array([1, 2], dtype=np.float32), 2, "gcn").dtype == np.float64


def test_timing_predicts_no_more_programs_than_a_tuner_asks_for_at_once(make_programs) -> None:
    asked = []

    def predict(programs) -> np.ndarray:
        asked.append(len(programs))
        return programs.log_seconds

    assert predict_microseconds(predict, make_programs([0.0, 1.0], [0, 0])) > 0
    assert set(asked) == {2}
    asked.clear()
    many = 3 * TIMED_PROGRAMS
    assert predict_microseconds(predict, make_programs(np.zeros(many), [0] * many)) > 0
    assert set(asked) == {TIMED_PROGRAMS}
