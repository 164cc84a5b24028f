from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from kernelcast.errors import ConfigError
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.tvm_compat import available_cores

MakeSettings = Callable[..., RunnerSettings]


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("builders", 0),
        ("memory_limit_bytes", "4 GiB"),
        # what the system's clocks and counters cannot hold
        ("memory_limit_bytes", 10**30),
        ("build_timeout_seconds", 1e300),
        ("run_timeout_seconds", 1e300),
        ("build_timeout_seconds", 0),
        ("run_timeout_seconds", float("inf")),
        ("timing.batch_size", 1.5),
        ("timing.least_rounds", -1),
        ("timing.most_rounds", True),
        ("timing.budget_seconds", 0),
        ("timing.repeat_seconds", float("nan")),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(make_settings: MakeSettings, name: str, bad: Any) -> None:
    with pytest.raises(ConfigError, match=f"runner.{name} must be a positive"):
        make_settings(**{name.split(".")[-1]: bad})


@pytest.mark.parametrize("name", ["check_share", "remeasure_share", "timing.uncertainty"])
@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), True, "half"])
def test_a_share_is_from_0_to_1(make_settings: MakeSettings, name: str, bad: Any) -> None:
    with pytest.raises(ConfigError, match=f"runner.{name} must be between 0 and 1"):
        make_settings(**{name.split(".")[-1]: bad})


@pytest.mark.parametrize(("name", "says"), [("way", "rounds, in_a_row"), ("cache", "warm, cold")])
def test_a_choice_names_what_there_is(make_settings: MakeSettings, name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"runner.timing.{name} must be one of {says}, got 'lukewarm'"):
        make_settings(**{name: "lukewarm"})


def test_a_repeat_that_would_always_be_stopped_is_refused(
    settings: RunnerSettings, make_settings: MakeSettings
) -> None:
    with pytest.raises(ConfigError, match=r"runner\.timing\.repeat_seconds.*runner\.run_timeout_seconds"):
        make_settings(repeat_seconds=settings.run_timeout_seconds)


def test_more_rounds_at_least_than_at_most_are_refused(make_settings: MakeSettings) -> None:
    with pytest.raises(ConfigError, match=r"runner\.timing\.least_rounds \(7\).*runner\.timing\.most_rounds \(6\)"):
        make_settings(least_rounds=7, most_rounds=6)


def test_the_timing_is_recorded_as_plain_values(settings: RunnerSettings) -> None:
    plain = settings.timing.as_dict()
    assert plain["way"] == "rounds"
    assert plain["cache"] == "warm"
    assert plain.keys() == asdict(settings.timing).keys()
    assert all(type(value) in (str, int, float) for value in plain.values())


def test_without_a_number_of_builders_each_core_has_one(make_settings: MakeSettings) -> None:
    assert make_settings(builders=None).builder_count == available_cores()
    assert make_settings(builders=7).builder_count == 7
