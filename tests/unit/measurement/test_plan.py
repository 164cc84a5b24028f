from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.workloads import matmul
from kernelcast.records import Origin, Workload

MakePlan = Callable[..., Plan]
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SHARES = st.floats(0, 1, allow_subnormal=False)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"samples_per_workload": 0}, "samples_per_workload must be a positive integer"),
        ({"max_failure_share": 1.5}, "max_failure_share must be between 0 and 1"),
        ({"evolved_share": -1}, "evolved_share must be between 0 and 1"),
        ({"evolved_share": 1.0}, r"evolved_share: 1 of 4 programs \(samples_per_workload\) leaves no random ones"),
        ({"workloads": []}, "there is none to measure"),
        ({"workloads": [matmul("one", 2, 2, 2), matmul("two", 2, 2, 2)]}, "one and two compute the same"),
        ({"target": {"kind": "hexagon"}}, "target.kind"),
        ({"runner": LocalRunner(slots=1000)}, "runner.devices.slots: 1000 programs of 1 threads"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(make_plan: MakePlan, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_plan(**changes)


@QUICK
@given(samples=st.integers(1, 1000), share=st.floats(0, 0.999))
def test_the_evolved_are_the_share_rounded_down(make_plan: MakePlan, samples: int, share: float) -> None:
    wanted = make_plan(samples_per_workload=samples, evolved_share=share).wanted
    assert sum(wanted.values()) == samples
    assert wanted[Origin.RANDOM] >= 1
    assert samples * share - 1 < wanted[Origin.EVOLVED] <= samples * share


@QUICK
@given(key=st.text("0123456789abcdef", min_size=16, max_size=16), share=SHARES, count=st.integers(0, 300))
def test_a_share_of_the_positions_is_picked_evenly(
    make_plan: MakePlan, small_matmul: Workload, key: str, share: float, count: int
) -> None:
    plan = make_plan(remeasure_share=share, check_share=share)
    workload = replace(small_matmul, key=key)
    again = [plan.is_measured_again(workload, position) for position in range(count)]
    # any stretch of positions, so a folder that grows keeps to the share as well
    for first in (0, count // 3):
        assert abs(sum(again[first:]) - (count - first) * share) <= 1 + 1e-6
    checked = [plan.is_checked(workload, position) for position in range(count)]
    assert abs(sum(checked) - count * share) <= 2 + 1e-6
    assert not checked or checked[0] == (share > 0), "a workload that goes wrong as a whole is found out"


@QUICK
@given(share=SHARES)
def test_a_larger_share_of_samples_leaves_the_picks_alone(
    make_plan: MakePlan, small_matmul: Workload, share: float
) -> None:
    few, many = (make_plan(samples_per_workload=n, remeasure_share=share, check_share=share) for n in (10, 200))
    for position in range(10):
        assert few.is_measured_again(small_matmul, position) == many.is_measured_again(small_matmul, position)
        assert few.is_checked(small_matmul, position) == many.is_checked(small_matmul, position)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_none_and_all_are_exact(make_plan: MakePlan, small_matmul: Workload, share: float) -> None:
    plan = make_plan(remeasure_share=share, check_share=share)
    for position in range(100):
        assert plan.is_checked(small_matmul, position) is (share == 1)
        assert plan.is_measured_again(small_matmul, position) is (share == 1)


def test_workloads_do_not_pick_the_same_positions(make_plan: MakePlan, small_matmul: Workload) -> None:
    plan = make_plan(remeasure_share=0.1)
    first = {
        next(
            position for position in range(20) if plan.is_measured_again(replace(small_matmul, key=str(key)), position)
        )
        for key in range(20)
    }
    assert len(first) > 5
