import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.scoring import checked, timed


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_prediction_that_is_no_number_names_the_model_and_the_count(broken: float) -> None:
    with pytest.raises(MalformedDataError, match=r"gcn predicts NaN or infinity for 1 of 3 programs; train it again"):
        checked(np.array([1.0, broken, 2.0]), 3, "gcn")


def test_predictions_of_another_number_are_refused() -> None:
    with pytest.raises(MalformedDataError, match=r"shape \(2, 1\) for 2 programs"):
        checked(np.zeros((2, 1)), 2, "gcn")


def test_predictions_become_float64() -> None:
    assert checked(np.array([1, 2], dtype=np.float32), 2, "gcn").dtype == np.float64


def test_timing_returns_the_prediction_and_a_time_per_program() -> None:
    predicted, microseconds = timed(lambda: np.arange(4.0), 4)
    assert predicted.tolist() == [0, 1, 2, 3]
    assert microseconds > 0
