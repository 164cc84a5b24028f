"""How far a training is: a bar on a terminal, one plain line an epoch elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console

from kernelcast.models.best_epoch import BestEpoch
from kernelcast.status_bar import REFRESH_SECONDS, status_bar

logger = logging.getLogger(__name__)


class EpochReport:
    """Tells of batches and epochs. A context manager.

    Drawing happens between two batches, in this thread: one of its own would take time from small batches.

    Args:
        max_epochs: epochs at most.
        first_epoch: the epoch that this process begins with.
        patience: epochs without a better one before training stops.
        quiet: tell nothing: one of several processes does.
        console: where to draw; the terminal's error stream when there is one.
    """

    def __init__(
        self, max_epochs: int, first_epoch: int, patience: int, quiet: bool = False, console: Console | None = None
    ) -> None:
        self._max_epochs = max_epochs
        self._first_epoch = first_epoch
        self._patience = patience
        self._started = self._drawn = time.monotonic()
        self._told = ""
        self._quiet = quiet
        self._bar = None if quiet else status_bar("training", console or Console(stderr=True))
        if self._bar is not None:
            self._task = self._bar.add_task("training", total=max_epochs, completed=first_epoch, status="")

    def batch_ended(self, epoch: int, batch: int, batches: int) -> None:
        """Batch number `batch` of `batches` of an epoch, both counted from 0, is done."""
        now = time.monotonic()
        if self._bar is None or now - self._drawn < REFRESH_SECONDS:
            return
        done = epoch + (batch + 1) / batches
        left = (self._max_epochs - done) * (now - self._started) / (done - self._first_epoch)
        place = f"epoch {epoch + 1} of {self._max_epochs}, batch {batch + 1} of {batches}"
        self._draw(done, ", ".join(part for part in (place, self._told, f"{left:.0f} s left at most") if part))

    def epoch_ended(self, epoch: int, metrics: Mapping[str, float], best: BestEpoch) -> None:
        """An epoch, counted from 0, has these metrics."""
        shown = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        if best.epoch == epoch:
            standing = "the best"
        else:
            standing = f"{best.waited} of {self._patience} after the best, epoch {best.epoch + 1}"
        self._told = f"{shown} ({standing})"
        line = f"epoch {epoch + 1} of at most {self._max_epochs}: {self._told}"
        if self._bar is None and not self._quiet:
            logger.info("%s", line)
        elif self._bar is not None:
            self._draw(epoch + 1, line)

    def _draw(self, completed: float, status: str) -> None:
        assert self._bar is not None
        self._drawn = time.monotonic()
        self._bar.update(self._task, completed=completed, status=status)
        self._bar.refresh()

    def __enter__(self) -> EpochReport:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
