"""Candidates per second beside TVM's LocalBuilder and LocalRunner, and wall time over work."""

from __future__ import annotations

import logging
from statistics import median

import tvm_way
from campaigns import SEED, Suite, work_seconds

logger = logging.getLogger(__name__)

PASSES = 3
CANDIDATES_PER_WORKLOAD = 4
QUICK_LIMIT_SECONDS = 2.0


def speed_figures(suite: Suite, quick: bool) -> dict[str, object]:
    """The same candidates through both, in turns; medians over the passes.

    Both times begin before any worker is started, and neither compares results. In a
    quick run TVM as it is gets a few seconds for the build of one candidate: its figure is a lower bound then.
    """
    settings = suite.settings(remeasure_share=0.0, check_share=0.0)
    candidates = suite.candidates(settings, 2 if quick else CANDIDATES_PER_WORKLOAD, SEED)
    ours, repaired, over = [], [], []
    for number in range(1 if quick else PASSES):
        measured = suite.measure(settings, candidates)
        tries = measured.result.tries
        ours.append(sum(not entry.has_failed for entry in tries) / measured.wall_seconds)
        over.append(measured.wall_seconds / work_seconds(tries, settings.builder_count))
        logger.info("pass %d, kernelcast: %.2f candidates/s; %s", number + 1, ours[-1], measured.result.phases)
        passed = tvm_way.measure(suite.workloads, suite.target, candidates, repaired=True)
        repaired.append(passed.rate)
        logger.info("pass %d, TVM repaired: %.2f candidates/s (%d)", number + 1, passed.rate, passed.measured)
    if quick:
        stock = tvm_way.build_one(suite.workloads, suite.target, candidates[0], QUICK_LIMIT_SECONDS)
    else:
        stock = tvm_way.measure(suite.workloads, suite.target, candidates, repaired=False)
    logger.info("TVM as it is: %d measured in %.1f s", stock.measured, stock.wall_seconds)
    figures: dict[str, object] = {
        "candidates": len(candidates),
        "candidates_per_second": median(ours),
        "candidates_per_second_tvm_repaired": median(repaired),
        "speedup_vs_tvm_repaired": median(ours) / median(repaired),
        "speedup_vs_tvm_stock": median(ours) / stock.rate,
        "stock_measured": stock.measured,
        "stock_seconds": stock.wall_seconds,
    }
    if quick:
        figures["wall_over_work"] = median(over)
    return figures


def work_figures(suite: Suite, programs: int) -> dict[str, object]:
    """Wall time of a whole campaign over the time that its builds and timed runs take."""
    settings = suite.settings(remeasure_share=0.0)
    candidates = suite.candidates(settings, programs // len(suite.workloads), SEED + 1)
    measured = suite.measure(settings, candidates)
    wall, work = measured.wall_seconds, work_seconds(measured.result.tries, settings.builder_count)
    logger.info("%d programs in %.1f s, work %.1f s; %s", len(candidates), wall, work, measured.result.phases)
    return {"work_programs": len(candidates), "work_wall_seconds": wall, "wall_over_work": wall / work}
