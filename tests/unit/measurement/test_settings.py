from dataclasses import replace
from typing import Any

import pytest

from kernelcast.errors import ConfigError
from kernelcast.measurement.settings import RunnerSettings


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("builders", 0),
        ("batch_size", 1.5),
        ("rounds", -1),
        ("memory_limit_bytes", "4 GiB"),
        # what the system's clocks and counters cannot hold
        ("memory_limit_bytes", 10**30),
        ("build_timeout_seconds", 1e300),
        ("run_timeout_seconds", 1e300),
        ("build_timeout_seconds", 0),
        ("run_timeout_seconds", float("inf")),
        ("repeat_seconds", float("nan")),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(settings: RunnerSettings, name: str, bad: Any) -> None:
    with pytest.raises(ConfigError, match=f"runner.{name} must be a positive"):
        replace(settings, **{name: bad})


def test_a_repeat_that_would_always_be_stopped_is_refused(settings: RunnerSettings) -> None:
    with pytest.raises(ConfigError, match=r"runner\.repeat_seconds.*runner\.run_timeout_seconds"):
        replace(settings, repeat_seconds=settings.run_timeout_seconds)


def test_limits_are_no_part_of_the_timing(settings: RunnerSettings) -> None:
    assert replace(settings, build_timeout_seconds=1.0, builders=7).timing == settings.timing
    assert replace(settings, rounds=7).timing != settings.timing
