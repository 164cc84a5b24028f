"""Which of several tasks has the next round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BACKWARD_SHARE = 0.2
"""Weight of what the last rounds of a task gained, against what it may still gain. TVM's own value."""

WINDOW = 3
"""Rounds over which the gain is taken. TVM's own value."""


@dataclass(frozen=True)
class TaskHistory:
    """How far a task is.

    Attributes:
        weight: how often the network runs it.
        best_seconds: the fastest program after each of its rounds; infinite while none was measured.
        is_over: whether its space has no more programs.
    """

    weight: int
    best_seconds: Sequence[float]
    is_over: bool = False


def next_task(tasks: Sequence[TaskHistory], by_gain: bool) -> int | None:
    """The number of the task that has the next round; None when all are over.

    Every task has one round first. Then, by gain, the one with the largest::

        weight * (0.2 * (best[n-1-3] - best[n-1]) / 3 + 0.8 * best[n-1] / n)

    where `best` are its n values of `best_seconds` and the first term is 0 up to three rounds. Of equals, and in turn
    where it does not go by gain, the one with the fewest rounds.

    Args:
        tasks: all of them.
        by_gain: whether the gain decides; else all have their turns.

    Source:
        TVM's MetaSchedule, `gradient_based.cc`; the idea is from Zheng et al. 2020, Ansor, section 6. TVM draws lots
        among equals.
    """
    alive = [number for number, task in enumerate(tasks) if not task.is_over]
    untried = [number for number in alive if not tasks[number].best_seconds]
    if untried:
        return untried[0]
    if not alive:
        return None
    return min(alive, key=lambda number: (-_gain(tasks[number]) if by_gain else 0.0, len(tasks[number].best_seconds)))


def first_size(size: int, left: int, untried: int) -> int:
    """Programs of a task's first round: no more than its share of what is left, so that every task gets some.

    Args:
        size: of a round.
        left: programs of the whole budget that are left.
        untried: tasks that had no round yet, this one included.
    """
    return max(1, min(size, left // max(1, untried)))


def _gain(task: TaskHistory) -> float:
    best, rounds = task.best_seconds[-1], len(task.best_seconds)
    if not math.isfinite(best):
        # nothing of it could be measured yet: the others first
        return -math.inf
    earlier = task.best_seconds[rounds - 1 - WINDOW] if rounds > WINDOW else best
    # a round of failures before the first measured program tells nothing of the gain
    gained = (earlier - best) / WINDOW if math.isfinite(earlier) else 0.0
    return task.weight * (BACKWARD_SHARE * gained + (1.0 - BACKWARD_SHARE) * best / rounds)
