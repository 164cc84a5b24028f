import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exchange.times import FAILURES_FROM_SECONDS, Times, fault_of, usable_repeats


@pytest.mark.parametrize(
    ("repeats", "says"),
    [
        ([], "no run time"),
        ([1e10], "1e+10 s, the mark of a failure"),
        ([FAILURES_FROM_SECONDS], "mark of a failure"),
        ([math.inf], "mark of a failure"),
        ([0.0], "0 s"),
        ([-1.0], "-1 s"),
        ([math.nan], "not a number"),
        ([1e-3, 1e10], "mark of a failure"),
        ([1e-3], ""),
    ],
)
def test_what_is_no_time_has_a_reason(repeats: list[float], says: str) -> None:
    fault = fault_of(repeats)
    assert says in fault
    assert bool(fault) == bool(says)


@given(st.lists(st.floats(1e-9, 1e3), min_size=1))
def test_times_of_usable_repeats(repeats: list[float]) -> None:
    assert Times.all.of(repeats) == repeats
    assert Times.minimum.of(repeats) == [min(repeats)] == [Times.all.label(repeats)]
    assert Times.median.of(repeats) == [Times.median.label(repeats)]
    assert min(repeats) <= Times.median.label(repeats) <= max(repeats)


def test_only_the_first_visit_of_a_measured_program_counts() -> None:
    row = {"outcome": "measured", "run_seconds": [2.0, 1e10, 3.0], "visit": [0, 1, 0]}
    assert usable_repeats(row) == [2.0, 3.0]
    assert usable_repeats({**row, "outcome": "wrong_result"}) == []
    assert usable_repeats({**row, "visit": [1, 1, 1]}) == []
    assert usable_repeats({**row, "visit": [0, 0, 0]}) == []
