"""Where a model is most wrong: single programs, and workloads in which following it costs most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.evaluation.report_page.explored import Explored, Predicted

MOST_PROGRAMS = 20
MOST_WORKLOADS = 10

COSTS = 1.02
"""A choice within this factor of the best is no loss: two measurements of one program differ as much."""


@dataclass(frozen=True)
class WrongProgram:
    """A program that a model puts far from where it belongs.

    Attributes:
        row: its place among the explored.
        measured: seconds.
        claimed: seconds that the model predicts, or those of the place that it gives the program.
        factor: the larger of both over the smaller.
    """

    row: int
    measured: float
    claimed: float
    factor: float

    @property
    def verdict(self) -> str:
        """Which way it is wrong."""
        return "slower than claimed" if self.measured > self.claimed else "faster than claimed"


@dataclass(frozen=True)
class Loss:
    """A workload of which the model prefers a program that is not the best.

    Attributes:
        workload: its number.
        programs: of it that were tested.
        chosen: place among the explored of the program that the model puts first.
        best: of the fastest one.
        factor: time of the chosen one over that of the best.
    """

    workload: int
    programs: int
    chosen: int
    best: int
    factor: float


def log_errors(explored: Explored, predicted: Predicted) -> Float64[np.ndarray, "tested"]:
    """Logarithm of claimed over measured time: above 0 where a program is faster than claimed."""
    return predicted.log_claimed - explored.log_seconds[predicted.rows]


def worst_programs(explored: Explored, predicted: Predicted, most: int = MOST_PROGRAMS) -> list[WrongProgram]:
    """The programs with the largest factor between claimed and measured time, in that order."""
    errors = log_errors(explored, predicted)
    found = []
    for place in np.argsort(-np.abs(errors), kind="stable")[:most].tolist():
        row = int(predicted.rows[place])
        measured, claimed = float(explored.log_seconds[row]), float(predicted.log_claimed[place])
        found.append(WrongProgram(row, np.exp(measured), np.exp(claimed), float(np.exp(abs(errors[place])))))
    return found


def losses(explored: Explored, predicted: Predicted, most: int = MOST_WORKLOADS) -> list[Loss]:
    """Workloads by how much slower the program is that the model puts first, those with a loss alone."""
    # the model's own order: times claimed by a model of order are those of its places
    claimed = predicted.log_claimed
    truth, workload = explored.log_seconds[predicted.rows], explored.workload[predicted.rows]
    found = []
    for number in np.unique(workload).tolist():
        places: Int64[np.ndarray, "places"] = np.flatnonzero(workload == number)
        chosen, best = places[np.argmin(claimed[places])], places[np.argmin(truth[places])]
        factor = float(np.exp(truth[chosen] - truth[best]))
        if factor > COSTS:
            found.append(Loss(number, len(places), int(predicted.rows[chosen]), int(predicted.rows[best]), factor))
    return sorted(found, key=lambda loss: -loss.factor)[:most]
