"""Memory of a long campaign: all its processes, from the 100th candidate to the last."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import numpy as np
import psutil
from campaigns import SEED, Suite

from kernelcast.measurement.journal import JOURNAL_FILE

logger = logging.getLogger(__name__)

FROM = 100
SAMPLE_SECONDS = 0.5


def memory_growth(suite: Suite, programs: int) -> dict[str, object]:
    """Private and shared memory (PSS) of this process, the fork server and its workers, early and late in one campaign.

    The median over the candidates from the 100th to a fifth beside that over the last fifth: batches come and go.
    """
    settings = suite.settings(
        remeasure_share=0.0, least_rounds=2, most_rounds=2, repeat_seconds=1e-4, budget_seconds=0.01
    )
    candidates = suite.candidates(settings, programs // len(suite.workloads), SEED)
    plan = suite.plan(settings, candidates)
    samples: list[tuple[int, int]] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(plan.directory / JOURNAL_FILE, samples, done))
    watcher.start()
    try:
        suite.run(plan)
    finally:
        done.set()
        watcher.join()
    finished = np.array([count for count, _ in samples])
    memory = np.array([used for _, used in samples], dtype=np.float64)
    last = len(candidates)
    fifth = max(last // 5, 1)
    early = float(np.median(memory[(finished >= FROM) & (finished < FROM + fifth)]))
    late = float(np.median(memory[finished >= last - fifth]))
    logger.info("memory: %.0f MiB early, %.0f MiB late, over %d candidates", early / 2**20, late / 2**20, last)
    return {
        "memory_candidates": last,
        "memory_early_bytes": early,
        "memory_late_bytes": late,
        "memory_late_over_early": late / early,
    }


def _watch(journal: Path, samples: list[tuple[int, int]], done: threading.Event) -> None:
    """Notes finished candidates and memory until the campaign is over."""
    position, finished = 0, 0
    while not done.wait(SAMPLE_SECONDS):
        with journal.open("rb") as stream:
            stream.seek(position)
            lines = stream.read()
        position += len(lines)
        finished += lines.count(b'"event": "finished"')
        samples.append((finished, _memory()))


def _memory() -> int:
    used = 0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            used += process.memory_full_info().pss
        except psutil.Error:  # it ended meanwhile
            continue
    return used
