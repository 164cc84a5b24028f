import io
import logging
import re
from collections import Counter

import pytest
from rich.console import Console
from rich.text import Text

from kernelcast.measurement.progress import CampaignProgress, duration
from kernelcast.records import Outcome


def progress_of(total: int, outcomes: Counter[Outcome], terminal: bool) -> tuple[CampaignProgress, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=160)
    return CampaignProgress(total, outcomes, rounds=2, batches=3, console=console), screen


def test_a_line_tells_counts_rate_and_time_left(caplog: pytest.LogCaptureFixture) -> None:
    progress, screen = progress_of(8, Counter({Outcome.MEASURED: 2}), terminal=False)
    with caplog.at_level(logging.INFO), progress:
        for _ in range(3):
            progress.step("p1")
        progress.ended("p1", Outcome.MEASURED)
        progress.ended("p2", Outcome.CRASH)
        progress.batch_ended()
    assert re.search(
        r"batch 1 of 3: 4 of 8 programs, \d+ s left, \d+ programs/min, 1 crash, 3 measured$", caplog.text.strip()
    )
    assert screen.getvalue() == ""


def test_a_failure_counts_as_much_as_all_rounds() -> None:
    progress, _ = progress_of(2, Counter(), terminal=False)
    for _ in range(3):
        progress.step("p1")
    progress.ended("p1", Outcome.MEASURED)
    progress.ended("p2", Outcome.BUILD_ERROR)
    assert ", 0 s left, " in progress.status()


def test_a_terminal_shows_a_bar(caplog: pytest.LogCaptureFixture) -> None:
    progress, screen = progress_of(1, Counter(), terminal=True)
    with caplog.at_level(logging.INFO), progress:
        progress.ended("p1", Outcome.MEASURED)
        progress.batch_ended()
    assert re.search(r"1 of 1 programs, 0 s left, \d+ programs/min, 1 measured", screen.getvalue())
    assert caplog.text == ""


def test_a_narrow_terminal_shows_all_of_it() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    outcomes = Counter({Outcome.MEASURED: 500, Outcome.RUN_TIMEOUT: 5, Outcome.BUILD_ERROR: 3, Outcome.CRASH: 2})
    with CampaignProgress(512, outcomes, rounds=2, batches=3, console=console) as progress:
        progress.step("p1")
    shown = Text.from_ansi(screen.getvalue()).plain
    assert "measuring" in shown
    words = " ".join(re.sub(r"measuring|[━╸╺]", "", shown).split())
    assert re.search(
        r"510 of 512 programs, 0 s left, \d+ programs/min, 3 build_error, 2 crash, 500 measured, 5 run_timeout$", words
    )


def test_a_program_that_settled_early_counts_as_much_as_one_with_all_rounds() -> None:
    progress, _ = progress_of(3, Counter(), terminal=False)
    # a build and one repeat, a build and five repeats
    for key, steps in (("p1", 2), ("p2", 6)):
        for _ in range(steps):
            progress.step(key)
        progress.ended(key, Outcome.MEASURED)
    progress.ended("p3", Outcome.MEASURED)
    assert progress.status().startswith("3 of 3 programs, 0 s left, ")
    assert progress.status().endswith(" programs/min, 3 measured")


def test_batches_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    progress, _ = progress_of(2, Counter(), terminal=False)
    with caplog.at_level(logging.INFO), progress:
        progress.batch_ended()
        progress.batch_ended()
    assert "batch 1 of 3: 0 of 2 programs" in caplog.text
    assert "batch 2 of 3: " in caplog.text


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0 s"), (35, "35 s"), (95, "1:35 min"), (3725, "1:02:05 h")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
