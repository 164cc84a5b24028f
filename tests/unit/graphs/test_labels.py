import numpy as np
import pytest

from kernelcast.errors import ConfigError
from kernelcast.graphs.labels import log_seconds


def test_impossible_times_are_dropped_with_their_reason() -> None:
    values, reasons = log_seconds(["measured"] * 6, [[1e-5], [0.0], [1e10], [np.nan], [np.inf], []], "minimum")
    assert reasons == ["", "not_positive", "failure_value", "not_a_number", "infinite", "no_times"]
    assert values[0] == pytest.approx(np.log(1e-5))
    assert np.isnan(values[1:]).all()


def test_what_was_not_measured_has_its_outcome_as_reason() -> None:
    values, reasons = log_seconds(["crash", "measured", "run_timeout"], [[], [2.0], None], "median")
    assert reasons == ["crash", "", "run_timeout"]
    assert values[1] == pytest.approx(np.log(2.0))


def test_one_bad_repeat_makes_all_doubtful() -> None:
    assert log_seconds(["measured"], [[1e-3, -1.0]], "median")[1] == ["not_positive"]


@pytest.mark.parametrize(("label", "seconds"), [("minimum", 1.0), ("median", 3.0), ("low_quantile", 1.4)])
def test_labels(label: str, seconds: float) -> None:
    values, _ = log_seconds(["measured"], [[5.0, 1.0, 3.0, 2.0, 4.0]], label)
    assert np.exp(values[0]) == pytest.approx(seconds)


def test_an_unknown_label_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'mean' is unknown; choose one of minimum, median, low_quantile"):
        log_seconds([], [], "mean")
