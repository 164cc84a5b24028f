"""What the raw repeats of a program say, in the terms of other tools: one list of times, one label, or a failure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Any

FAILED_SECONDS = 1e10
"""What MetaSchedule writes as the run time of a program that failed."""

FAILURES_FROM_SECONDS = 1e9
"""Times from here on are no times but such marks."""


class Times(StrEnum):
    """What becomes of the repeats of a program; OmegaConf knows the members by their names."""

    all = "all"
    minimum = "minimum"
    median = "median"

    def of(self, repeats: Sequence[float]) -> list[float]:
        """The times to write of a program that has these usable repeats."""
        if self is Times.all:
            return list(repeats)
        return [min(repeats) if self is Times.minimum else median(repeats)]

    def label(self, repeats: Sequence[float]) -> float:
        """One time; of all repeats it is the minimum, which repeats best on a machine that others use too."""
        return median(repeats) if self is Times.median else min(repeats)


def usable_repeats(row: Mapping[str, Any]) -> list[float]:
    """The repeats of the first visit of a row of `MEASUREMENT_SCHEMA`; none where it failed or a repeat is no time."""
    # here, so that the configuration, which knows `Times`, does not load pyarrow
    from kernelcast.records import Outcome

    if row["outcome"] != Outcome.MEASURED:
        return []
    repeats = [seconds for seconds, visit in zip(row["run_seconds"], row["visit"], strict=True) if visit == 0]
    return [] if fault_of(repeats) else repeats


def fault_of(repeats: Sequence[float]) -> str:
    """Why these are not the run times of a program; empty where they are. One bad repeat makes all of them doubtful."""
    if not repeats:
        return "no run time"
    for seconds in repeats:
        if math.isnan(seconds):
            return "a run time that is not a number"
        if seconds >= FAILURES_FROM_SECONDS:
            return f"a run time of {seconds:g} s, the mark of a failure"
        if seconds <= 0:
            return f"a run time of {seconds:g} s"
    return ""
