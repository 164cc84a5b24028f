"""What happens while a campaign measures goes into its journal and onto the screen."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from kernelcast.measurement.batches import Item
from kernelcast.measurement.journal import Ending, Journal
from kernelcast.measurement.messages import Failed
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Outcome

logger = logging.getLogger(__name__)


class Progress(Protocol):
    """Who shows how far it is."""

    def step(self, program_key: str) -> None:
        """A program was built, or had one repeat."""

    def ended(self, program_key: str, outcome: Outcome) -> None:
        """A program has its outcome."""

    def batch_ended(self) -> None:
        """A batch is done."""


class JournalRecorder:
    """Writes what happens into the journal, and shows it where there is a progress; threads of all devices use it."""

    def __init__(self, journal: Journal, progress: Progress | None = None) -> None:
        self._journal = journal
        self._progress = progress
        self._lock = threading.Lock()

    def built(self, item: Item, build_seconds: float) -> None:
        """A program is machine code."""
        with self._lock:
            # the build that counts is the one of the measurement
            if item.visit == 0:
                self._journal.built(item.entry, build_seconds)
            if self._progress is not None:
                self._progress.step(item.entry.program_key)

    def repeated(self, item: Item, repeat: TimedRepeat) -> None:
        """A repeat has ended."""
        with self._lock:
            self._journal.repeat(item.entry, repeat)
            if self._progress is not None:
                self._progress.step(item.entry.program_key)

    def ended(self, item: Item, device: str, failed: Failed | None, checked: bool, cut_short: bool) -> None:
        """A visit is over."""
        outcome = Outcome.MEASURED if failed is None else failed.outcome
        message = "" if failed is None else failed.message
        if failed is not None:
            logger.debug("%s %s: %s", item.entry.program_key, failed.outcome, failed.message)
        with self._lock:
            ending = Ending(outcome, message, device, checked, cut_short, time.time())
            self._journal.finish(item.entry, item.visit, ending)
            if self._progress is not None:
                self._progress.ended(item.entry.program_key, outcome)

    def round_ended(self) -> None:
        """All programs of a batch had their turn: now is the time to wait for the disk."""
        with self._lock:
            self._journal.sync()

    def batch_ended(self) -> None:
        """A batch is over."""
        if self._progress is not None:
            with self._lock:
                self._progress.batch_ended()
