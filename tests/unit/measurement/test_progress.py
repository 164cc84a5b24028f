import io
import logging
from collections import Counter

import pytest
from rich.console import Console

from kernelcast.measurement.progress import CampaignProgress, duration
from kernelcast.records import Outcome


def progress_of(total: int, outcomes: Counter[Outcome], terminal: bool) -> tuple[CampaignProgress, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=160)
    return CampaignProgress(total, outcomes, rounds=2, console=console), screen


def test_a_line_tells_counts_rate_and_time_left(caplog: pytest.LogCaptureFixture) -> None:
    progress, screen = progress_of(8, Counter({Outcome.MEASURED: 2}), terminal=False)
    with caplog.at_level(logging.INFO), progress:
        for _ in range(3):
            progress.step("p1")
        progress.ended("p1", Outcome.MEASURED)
        progress.ended("p2", Outcome.CRASH)
        progress.batch_ended(1, 3)
    assert "batch 1 of 3: 4 of 8 programs, 1 crash, 3 measured, " in caplog.text
    assert "programs/min" in caplog.text
    assert "left" in caplog.text
    assert screen.getvalue() == ""


def test_a_failure_counts_as_much_as_all_rounds() -> None:
    progress, _ = progress_of(2, Counter(), terminal=False)
    for _ in range(3):
        progress.step("p1")
    progress.ended("p1", Outcome.MEASURED)
    progress.ended("p2", Outcome.BUILD_ERROR)
    assert progress.status().endswith("0:00 left")


def test_a_terminal_shows_a_bar(caplog: pytest.LogCaptureFixture) -> None:
    progress, screen = progress_of(1, Counter(), terminal=True)
    with caplog.at_level(logging.INFO), progress:
        progress.ended("p1", Outcome.MEASURED)
        progress.batch_ended(1, 1)
    assert "1 of 1 programs, 1 measured" in screen.getvalue()
    assert caplog.text == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0:00"), (95, "1:35"), (3725, "1:02:05")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
