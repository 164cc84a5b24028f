"""How well a measurement repeats: every program measured twice, batches apart, by both ways of timing, in turns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import matplotlib
import numpy as np
from campaigns import SEED, Suite, timed_seconds

from kernelcast.evaluation.metrics import kendall_tau
from kernelcast.measurement.journal import Try
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Outcome

matplotlib.use("Agg")
import matplotlib.pyplot as plt

logger = logging.getLogger(__name__)

GROUPS = 4
"""Turns of each way."""

REPEATS_IN_A_ROW = 5
LEAST_PER_WORKLOAD = 3
"""Programs of a workload from which a rank correlation says something."""


@dataclass(frozen=True)
class Visits:
    """Both measurements of one program."""

    workload_key: str
    first: list[TimedRepeat]
    second: list[TimedRepeat]


def noise_figures(suite: Suite, programs: int, quick: bool) -> dict[str, object]:
    """Ratio of the larger to the smaller of two labels of a program, median and 90th percentile; tau within workloads.

    The label is the minimum for kernelcast's rounds, and the median of repeats in a row for TVM's way, which gets at
    least as much time for each program: that of our repeats and of the reference kernels between them.
    """
    groups = 1 if quick else GROUPS
    per_workload = 2 if quick else max(2, programs // groups // len(suite.workloads))
    # at least two batches, so that the second measurement is batches apart
    batch = min(64, per_workload * len(suite.workloads) // 2)
    changes: dict[str, Any] = {"remeasure_share": 1.0, "check_share": 0.0, "batch_size": batch}
    ours, theirs = [], []
    for group in range(groups):
        settings = suite.settings(**changes)
        # a quick run takes those of the other part
        candidates = suite.candidates(settings, per_workload, SEED if quick else 100 + group)
        ours += _visits(suite.measure(settings, candidates).result.tries)
        seconds = mean(timed_seconds(visit.first) for visit in ours)
        in_a_row = suite.settings(
            "in_a_row",
            **changes,
            least_rounds=REPEATS_IN_A_ROW,
            most_rounds=REPEATS_IN_A_ROW,
            repeat_seconds=seconds / REPEATS_IN_A_ROW,
        )
        theirs += _visits(suite.measure(in_a_row, candidates).result.tries)
        logger.info("group %d of %d: %d programs measured twice by each way", group + 1, groups, len(candidates))
    figures = _figures("", ours, min) | _figures("_tvm_way", theirs, median)
    _draw_states(ours, suite.directory / "states.png")
    return {"noise_programs": len(ours), **figures}


def _visits(tries: list[Try]) -> list[Visits]:
    both = [
        Visits(entry.workload_key, entry.repeats.of_visit(0), entry.repeats.of_visit(1))
        for entry in tries
        if entry.outcome is Outcome.MEASURED
    ]
    return [visit for visit in both if visit.first and visit.second]


def _figures(way: str, visits: list[Visits], label: Callable[[list[float]], float]) -> dict[str, object]:
    first = np.array([label([repeat.run_seconds for repeat in visit.first]) for visit in visits])
    second = np.array([label([repeat.run_seconds for repeat in visit.second]) for visit in visits])
    ratio = np.maximum(first, second) / np.minimum(first, second)
    keys = np.array([visit.workload_key for visit in visits])
    taus = [
        kendall_tau(first[keys == key], second[keys == key])
        for key in dict.fromkeys(keys)
        if np.count_nonzero(keys == key) >= LEAST_PER_WORKLOAD
    ]
    return {
        f"repeat_ratio_median{way}": float(np.median(ratio)),
        f"repeat_ratio_p90{way}": float(np.quantile(ratio, 0.9)),
        f"kendall_tau_within_workloads{way}": float(np.mean(taus)) if taus else None,
        f"timed_seconds_per_program{way}": mean(timed_seconds(visit.first) for visit in visits),
        f"repeats_per_program{way}": mean(len(visit.first) for visit in visits),
    }


def _draw_states(visits: list[Visits], path: Path) -> None:
    """The reference kernel over time and how often it took how long: the speeds of the machine."""
    repeats = [repeat for visit in visits for repeat in (*visit.first, *visit.second)]
    at = np.array([repeat.ended_at for repeat in repeats])
    reference = np.array([repeat.reference_seconds for repeat in repeats])
    slowdown = reference / np.quantile(reference, 0.01)
    figure, (over_time, counts) = plt.subplots(1, 2, figsize=(10, 3.5), width_ratios=(2, 1), layout="constrained")
    over_time.plot((at - at.min()) / 60, slowdown, ".", markersize=2)
    over_time.set(
        xlabel="minutes", ylabel="reference kernel, times its best", title="the machine's state", yscale="log"
    )
    counts.hist(slowdown, bins=np.linspace(0.95, 2.0, 64))
    counts.set(xlabel="times its best", ylabel="repeats", title="its speeds")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    logger.info("the machine's states: %s", path)
