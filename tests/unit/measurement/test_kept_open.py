"""A runner that is started once, on the tests' one server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.kept_open import kept_open
from kernelcast.measurement.local import OpenLocalRunner
from kernelcast.measurement.settings import RunnerSettings
from tests.unit.measurement.conftest import SETTINGS, SharingRunner


@dataclass(frozen=True)
class Counting(SharingRunner):
    """Notes when it is started and ended."""

    events: list[str] = field(default_factory=list)

    @contextmanager
    def open(
        self, target: dict[str, Any], settings: RunnerSettings, seed: int, folder: Path
    ) -> Iterator[OpenLocalRunner]:
        self.events.append("started")
        with super().open(target, settings, seed, folder) as opened:
            yield opened
        self.events.append("ended")


def test_it_is_started_once_and_ends_with_the_context(
    server: ForkServer, target: dict[str, Any], tmp_path: Path
) -> None:
    runner = Counting(server=server)
    with kept_open(runner, target, SETTINGS) as kept:
        assert kept.identity(target) == runner.identity(target)
        with kept.open(target, SETTINGS, 0, tmp_path) as first, kept.open(target, SETTINGS, 0, tmp_path) as second:
            assert first is second
        # within one that is kept open, another one is the same
        with kept_open(kept, target, SETTINGS) as inner, inner.open(target, SETTINGS, 0, tmp_path) as third:
            assert third is first
        assert first.devices[0].reference_seconds() > 0
        assert runner.events == ["started"]
    assert runner.events == ["started", "ended"]


def test_other_settings_start_another_one(server: ForkServer, target: dict[str, Any], tmp_path: Path) -> None:
    runner = Counting(server=server)
    with kept_open(runner, target, SETTINGS) as kept:
        for settings, seed in ((replace(SETTINGS, build_timeout_seconds=59), 0), (SETTINGS, 1)):
            with kept.open(target, settings, seed, tmp_path) as opened:
                assert opened is not kept.opened
    assert runner.events == ["started", *["started", "ended"] * 2, "ended"]
