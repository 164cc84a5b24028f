"""How steady a machine is, of streams of repeats whose state is known, and of the real kernel."""

import time

import numpy as np
import pytest

from kernelcast.errors import MeasurementError
from kernelcast.measurement.steadiness import LEAST_REPEATS, repeated, steadiness, time_reference
from kernelcast.tvm_compat import resolve_target


def noise(count: int = 600, scale: float = 0.01) -> np.ndarray:
    return 1.0 + scale * np.abs(np.random.default_rng(0).normal(size=count))


def test_a_calm_machine_gives_equal_labels() -> None:
    measured = steadiness(2e-3 * noise(), seconds=6)
    assert measured.repeats == 600
    assert measured.best_seconds == pytest.approx(2e-3, rel=1e-3)
    assert measured.label_spread < 1.01
    assert measured.near_best == 1.0
    assert measured.speeds == ()


def test_two_speeds_are_found_and_minima_over_rounds_cope_with_them() -> None:
    # TVM-12: in one state for seconds, then in the other: repeats in a row differ by the ratio, minima of rounds do not
    slow = np.arange(600) // 75 % 2 == 1
    measured = steadiness(noise() * np.where(slow, 1.37, 1.0), seconds=6)
    fast_ratio, slow_ratio = measured.speeds
    assert slow_ratio / fast_ratio == pytest.approx(1.37, rel=0.01)
    assert measured.in_a_row_spread == pytest.approx(1.37, rel=0.02)
    assert measured.label_spread < 1.02


@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform"])
def test_a_busy_machine_is_not_taken_for_one_of_two_speeds(draw: str) -> None:
    generator = np.random.default_rng(1)
    disturbance = np.abs(getattr(generator, draw)(size=600))
    measured = steadiness(1.0 + disturbance, seconds=6)
    assert measured.speeds == ()
    assert measured.near_best < 0.2
    assert measured.label_spread > 1.03


def test_equal_repeats_and_lost_cores_do_no_harm() -> None:
    assert steadiness(np.ones(LEAST_REPEATS), seconds=1).label_spread == 1.0
    lost = noise()
    lost[::50] = 30.0
    assert steadiness(lost, seconds=1).speeds == ()


def test_the_real_kernel_is_timed() -> None:
    repeats = time_reference(resolve_target({"kind": "llvm", "num-cores": 1}), 0.3)
    assert len(repeats) >= LEAST_REPEATS
    assert 1e-6 < min(repeats) < 1.0


def test_an_overtaken_machine_is_given_up() -> None:
    def slow() -> float:
        time.sleep(0.02)
        return 0.02

    with pytest.raises(MeasurementError, match=r"ran only \d+ times in 0\.\d+ s; something else has the cores"):
        repeated(slow, seconds=0.01)
