"""How well the measurements of a campaign repeat, as far as it measured programs again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelcast.measurement.journal import Try


@dataclass(frozen=True)
class Agreement:
    """Ratio of the larger to the smaller of two labels of a program, each the minimum of one visit's repeats.

    Attributes:
        programs: programs that were measured twice.
        ratio_median: median over the programs; 1 is no noise.
        ratio_p90: 90th percentile over the programs.
    """

    programs: int
    ratio_median: float
    ratio_p90: float


def agreement(tries: Sequence[Try]) -> Agreement | None:
    """The agreement of both visits of a campaign; None where no program was measured again."""
    ratios = []
    for entry in tries:
        visits = [[repeat.run_seconds for repeat in entry.repeats.of_visit(visit)] for visit in (0, 1)]
        if all(visits):
            low, high = sorted(min(seconds) for seconds in visits)
            ratios.append(high / low)
    if not ratios:
        return None
    median, p90 = np.quantile(ratios, [0.5, 0.9])
    return Agreement(len(ratios), float(median), float(p90))
