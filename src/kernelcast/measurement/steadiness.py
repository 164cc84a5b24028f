"""Whether this machine is steady enough for measuring to be worth it, found out by the reference kernel alone.

The kernel is always the same, so its times differ by what else the machine does. What a campaign would make of them is
acted out: the rounds of several programs are taken from the stream of repeats in turns, and the label of each is its
minimum, as `timing` has it. Equal programs should have equal labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import MeasurementError
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.host import cores_of_machine
from kernelcast.measurement.local import share_cores
from kernelcast.measurement.reference import ReferenceKernel

NEAR_BEST = 1.05
"""Up to this many times its best the kernel counts as undisturbed."""

ROUNDS = 10
"""Of each acted-out program, as a campaign has them."""

IN_A_ROW = 5
"""Repeats of which the usual way takes the median."""

LEAST_REPEATS = 4 * ROUNDS
"""Fewer tell nothing."""

LONGEST_FACTOR = 10.0
"""After so many times the asked seconds a machine that has not done the least repeats is given up."""

MEMORY_LIMIT_BYTES = 4 * 2**30

SPEEDS_APART = 1.12
"""Two speeds are told apart from this ratio on: smaller differences are noise."""

SPEED_SHARE = 0.15
"""Share of the repeats that each of two speeds has at least."""

BETWEEN_SHARE = 0.75
"""Share of the variance that lies between two speeds; of one broad hump it is less than 0.7."""


@dataclass(frozen=True)
class Steadiness:
    """How steady the times of one kernel are.

    Attributes:
        repeats: how many there are.
        seconds: over how long they were spread.
        best_seconds: of the kernel.
        median: of the repeats, in best times.
        p90: of the repeats, the 90th percentile, in best times.
        near_best: share of the repeats that are at most `NEAR_BEST` best times.
        label_spread: ratio of the largest to the smallest label of equal programs, timed in rounds.
        in_a_row_spread: the same for the median of `IN_A_ROW` repeats in a row: the 90th to the 10th percentile.
        speeds: the medians of two groups of repeats in best times, where the machine has two speeds; else empty.
    """

    repeats: int
    seconds: float
    best_seconds: float
    median: float
    p90: float
    near_best: float
    label_spread: float
    in_a_row_spread: float
    speeds: tuple[float, ...]


def time_reference(target: dict[str, Any], seconds: float) -> list[float]:
    """Seconds of the reference kernel, repeat after repeat for about `seconds`, on the cores that a campaign would use.

    Args:
        target: the complete TVM target, of this machine's processor.
        seconds: how long.

    Raises:
        MeasurementError: the kernel cannot be built or run, or something else has the cores.
    """
    (timed, *_), building = share_cores(cores_of_machine(), target.get("num-cores", 1), 1)
    with TemporaryDirectory() as folder, ForkServer(target, building, Path(folder)) as server:
        return repeated(ReferenceKernel(server, target, MEMORY_LIMIT_BYTES, timed).seconds, seconds)


def repeated(kernel: Callable[[], float], seconds: float) -> list[float]:
    """What the kernel gives, again and again for about `seconds`, and `LEAST_REPEATS` times at least.

    Raises:
        MeasurementError: it cannot be done so often in `LONGEST_FACTOR` times as long.
    """
    found: list[float] = []
    started = time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds or len(found) < LEAST_REPEATS:
        if passed > LONGEST_FACTOR * seconds:
            raise MeasurementError(
                f"the reference kernel ran only {len(found)} times in {passed:.3g} s; something else has the cores"
            )
        found.append(kernel())
    return found


def steadiness(run_seconds: Sequence[float], seconds: float) -> Steadiness:
    """What the repeats of one kernel, in the order of time and `LEAST_REPEATS` at least, say of the machine.

    Args:
        run_seconds: of each repeat.
        seconds: over how long they were spread.
    """
    times = np.asarray(run_seconds, dtype=np.float64)
    assert len(times) >= LEAST_REPEATS, "too few repeats"
    best = float(times.min())
    ratio = times / best
    # program p of n has the repeats p, p + n, p + 2n, ...: rounds spread over all of the time
    programs = max(2, len(times) // ROUNDS)
    labels = [times[program::programs].min() for program in range(programs)]
    rows = times[: len(times) // IN_A_ROW * IN_A_ROW].reshape(-1, IN_A_ROW)
    low, high = np.percentile(np.median(rows, axis=1), [10, 90])
    return Steadiness(
        repeats=len(times),
        seconds=seconds,
        best_seconds=best,
        median=float(np.median(ratio)),
        p90=float(np.percentile(ratio, 90)),
        near_best=float(np.mean(ratio <= NEAR_BEST)),
        label_spread=float(max(labels) / min(labels)),
        in_a_row_spread=float(high / low),
        speeds=_two_speeds(ratio),
    )


def _two_speeds(ratio: Float64[np.ndarray, " repeats"]) -> tuple[float, ...]:
    """The medians of two groups, where the repeats fall into two; by Otsu's threshold of the logarithms.

    Source: Otsu, A threshold selection method from gray-level histograms, 1979.
    """
    # what lost its core altogether is no speed
    values = np.sort(np.log(ratio[ratio < 4.0]))
    count = np.arange(1, len(values))
    sums = np.cumsum(values)[:-1]
    below, above = sums / count, (values.sum() - sums) / (len(values) - count)
    between = count * (len(values) - count) / len(values) ** 2 * (above - below) ** 2
    share = count / len(values)
    place = int(np.argmax(np.where((share >= SPEED_SHARE) & (share <= 1 - SPEED_SHARE), between, -1.0)))
    variance = float(values.var())
    slow, fast = np.median(values[place + 1 :]), np.median(values[: place + 1])
    if variance == 0 or between[place] < BETWEEN_SHARE * variance or slow - fast < np.log(SPEEDS_APART):
        return ()
    return float(np.exp(fast)), float(np.exp(slow))
