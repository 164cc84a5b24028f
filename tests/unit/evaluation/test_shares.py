import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.shares import ceiling_share, share_of
from kernelcast.evaluation.summary import METRICS


@settings(deadline=None)
@given(st.sampled_from(METRICS), st.floats(0.6, 0.99))
def test_the_ceiling_itself_has_all_of_it_and_chance_nothing(metric, ceiling: float) -> None:
    assert ceiling_share(metric.name, ceiling, ceiling) == pytest.approx(1.0)
    if metric.by_chance is not None:
        assert ceiling_share(metric.name, metric.by_chance, ceiling) == pytest.approx(0.0)


@settings(deadline=None)
@given(st.sampled_from(METRICS), st.floats(0.6, 0.9), st.floats(0.3, 0.6))
def test_a_better_value_has_a_larger_share(metric, larger: float, smaller: float) -> None:
    shares = [ceiling_share(metric.name, value, 0.95) for value in (larger, smaller)]
    assert (shares[0] >= shares[1]) == metric.higher_is_better or larger == smaller


def test_a_ceiling_no_better_than_chance_has_no_share() -> None:
    assert ceiling_share("kendall_tau", 0.5, 0.0) is None
    assert ceiling_share("pairwise_accuracy", 0.7, 0.4) is None
    assert ceiling_share("mape", 0.0, 0.1) is None


def test_a_metric_that_either_lacks_has_no_share() -> None:
    half = {"kendall_tau": Estimate(0.5, 0.4, 0.6)}
    assert share_of("kendall_tau", half, {}) is None
    assert share_of("mape", half, half) is None
    assert share_of("kendall_tau", half, {"kendall_tau": Estimate(0.8, 0.7, 0.9)}) == pytest.approx(0.625)
