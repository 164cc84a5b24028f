"""How far a campaign is: a bar on a terminal, one plain line a batch elsewhere."""

from __future__ import annotations

import logging
import time
from collections import Counter
from types import TracebackType

from rich.console import Console

from kernelcast.records import Outcome
from kernelcast.status_bar import REFRESH_SECONDS, status_bar

logger = logging.getLogger(__name__)


class CampaignProgress:
    """Counts what is done. A context manager.

    Drawing happens between two measurements, in this thread: a thread of its own would disturb what is being timed.
    """

    def __init__(
        self, total: int, outcomes: Counter[Outcome], rounds: int, batches: int, console: Console | None = None
    ) -> None:
        """Begins with what earlier runs left.

        Args:
            total: programs in all.
            outcomes: how many are done, by outcome.
            rounds: usual repeats of one program; one build counts as much as one repeat.
            batches: of this run.
            console: where to draw; the terminal's error stream when there is one.
        """
        self._total = total
        self._outcomes = Counter(outcomes)
        self._steps_each = rounds + 1
        self._batches = batches
        self._batches_ended = 0
        self._steps_now = 0
        self._steps_before = self.done * self._steps_each
        self._started = self._drawn = time.monotonic()
        self._steps_of: Counter[str] = Counter()
        self._bar = status_bar("measuring", console or Console(stderr=True))
        if self._bar is not None:
            self._task = self._bar.add_task("measuring", total=total * self._steps_each, status="")

    @property
    def done(self) -> int:
        """Programs that have an outcome."""
        return sum(self._outcomes.values())

    def step(self, program_key: str) -> None:
        """A program was built, or had one repeat."""
        self._steps_of[program_key] += 1
        self._steps_now += 1
        self._draw()

    def ended(self, program_key: str, outcome: Outcome) -> None:
        """A program has its outcome."""
        self._outcomes[outcome] += 1
        # what it did not need: fewer rounds, or a failure
        self._steps_now += self._steps_each - self._steps_of.pop(program_key, 0)
        self._draw()

    def batch_ended(self) -> None:
        """A batch is done; says so where there is no bar."""
        self._batches_ended += 1
        # devices share the last batches among them
        self._batches = max(self._batches, self._batches_ended)
        if self._bar is None:
            logger.info("batch %d of %d: %s", self._batches_ended, self._batches, self.status())
        else:
            self._draw(force=True)

    def status(self) -> str:
        """Programs done, time left, rate and counts by outcome, in one line."""
        elapsed = max(time.monotonic() - self._started, 1e-9)
        parts = [f"{self.done} of {self._total} programs"]
        if self._steps_now:
            left = self._total * self._steps_each - self._steps_before - self._steps_now
            parts.append(f"{duration(max(0, left) * elapsed / self._steps_now)} left")
        parts.append(f"{60 * self._steps_now / self._steps_each / elapsed:.0f} programs/min")
        parts += [f"{count} {outcome.value}" for outcome, count in sorted(self._outcomes.items()) if count]
        return ", ".join(parts)

    def _draw(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._bar is not None and (force or now - self._drawn >= REFRESH_SECONDS):
            self._drawn = now
            self._bar.update(self._task, completed=self._steps_before + self._steps_now, status=self.status())
            self._bar.refresh()

    def __enter__(self) -> CampaignProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._draw(force=True)
            self._bar.stop()


def duration(seconds: float) -> str:
    """`35` becomes `35 s`, `95` becomes `1:35 min`, `3725` becomes `1:02:05 h`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d} h"
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"
