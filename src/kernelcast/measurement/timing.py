"""Timing in rounds: every program of a batch has its turn in every round.

On a shared machine the processor's speed changes within seconds, so repeats in a row all see one state and the order of
two programs is partly luck. Repeats spread over the whole batch see all states, and the minimum over the rounds of one
program compares with that of another. How many rounds a program needs shows in the rounds: see `is_settled`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelcast.measurement.devices import Device, LoadedProgram
from kernelcast.measurement.messages import Failed
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import Cache, TimingSettings, Way
from kernelcast.measurement.worker import UNWARMED_SECONDS, calls_per_repeat

SLOW_FACTOR = 20.0
"""A program this many times slower than the fastest of its workload is one that nobody picks."""

LONG_FACTOR = 10.0
"""A call this many times longer than a repeat should last makes a program's rounds expensive."""

AGREEING = 3
"""Fastest repeats that have to agree, and the repeats of a program whose budget is spent."""

CALM_FACTOR = 1.08
"""The machine is calm while the reference kernel takes no longer than this times its usual best."""

CALM_QUANTILE = 0.01
"""The best of the reference kernel: this quantile of its times so far, which one lucky time does not move."""

BUSY_FACTOR = 1.1
"""A batch whose repeats are further apart than this (see `disagreement`) was timed on a busy core. On an idle shared
machine it is 1.01 to 1.02."""

REFERENCE_SECONDS = 0.05
"""A state of the machine lasts longer than this, so the reference kernel is timed at most so often."""


@dataclass(frozen=True, slots=True)
class TimedRepeat:
    """One repeat of one program.

    Attributes:
        visit: 0 for the measurement, 1 when the program is measured again.
        round_index: the round of the visit, from 0.
        calls: calls in the repeat.
        run_seconds: mean seconds a call.
        reference_seconds: the reference kernel's seconds a call, just before.
        ended_at: seconds since 1970.
    """

    visit: int
    round_index: int
    calls: int
    run_seconds: float
    reference_seconds: float
    ended_at: float

    @property
    def spent_seconds(self) -> float:
        """Time that the repeat took, the call before it included where there was one."""
        return (self.calls + (self.run_seconds < UNWARMED_SECONDS)) * self.run_seconds


@dataclass
class TimedProgram:
    """A loaded program and the repeats that it has in this visit.

    Attributes:
        candidate: what it is.
        program: what runs it.
        visit: 0, or 1 when it is measured again.
        call_seconds: a rough time of one call.
        checked: whether its results were compared with those of the unscheduled workload.
        repeats: those done, possibly in an earlier run of the campaign.
        failed: why it cannot be timed any more.
        cut_short: hopelessly slow, so it got fewer repeats than others.
    """

    candidate: Candidate
    program: LoadedProgram
    visit: int = 0
    call_seconds: float = 0.0
    checked: bool = False
    repeats: list[TimedRepeat] = field(default_factory=list)
    failed: Failed | None = None
    cut_short: bool = False

    @property
    def spent_seconds(self) -> float:
        """Time that the repeats took."""
        return sum(repeat.spent_seconds for repeat in self.repeats)


class TimingObserver(Protocol):
    """Who is told what happens while it happens."""

    def repeated(self, program: TimedProgram, repeat: TimedRepeat) -> None:
        """A repeat has ended."""

    def ended(self, program: TimedProgram) -> None:
        """A program is done, or has `failed`; said once a program."""

    def round_ended(self) -> None:
        """All programs had their turn."""


class MachineState:
    """What the reference kernel of one device says about the machine."""

    def __init__(self, device: Device, earlier: Iterable[float] = ()) -> None:
        """Begins with the reference times of earlier runs of the campaign."""
        self._device = device
        self._times = list(earlier)
        self._read_at = -float("inf")
        self._best = float("inf")

    def reference_seconds(self) -> float:
        """The reference kernel's time, not older than `REFERENCE_SECONDS`."""
        if time.monotonic() - self._read_at > REFERENCE_SECONDS:
            self._times.append(self._device.reference_seconds())
            self._best = float(np.quantile(self._times[-10_000:], CALM_QUANTILE, method="higher"))
            self._read_at = time.monotonic()
        return self._times[-1]

    def is_calm(self, reference_seconds: float) -> bool:
        """Whether the machine was in its fast state when the reference kernel took so long."""
        return reference_seconds <= CALM_FACTOR * self._best


def time_programs(
    programs: Sequence[TimedProgram],
    machine: MachineState,
    timing: TimingSettings,
    fastest: dict[str, float],
    observer: TimingObserver,
) -> None:
    """Times all programs, one at a time, until each is done or has failed.

    Args:
        programs: loaded programs; repeats they already have count.
        machine: its state is noted with each repeat.
        timing: how.
        fastest: least seconds of a call by workload key; kept up to date.
        observer: hears of every repeat and every end.

    Raises:
        DeviceLost: the device is gone; the programs that did not end have to be loaded elsewhere.
    """
    if timing.way is Way.in_a_row:
        for program in programs:
            while not _is_over(program, machine, timing, fastest):
                _one_repeat(program, machine, timing, fastest, observer)
            observer.ended(program)
            observer.round_ended()
        return
    waiting = list(programs)
    while waiting:
        still = []
        for program in waiting:
            if not _is_over(program, machine, timing, fastest):
                _one_repeat(program, machine, timing, fastest, observer)
            if _is_over(program, machine, timing, fastest):
                observer.ended(program)
            else:
                still.append(program)
        waiting = still
        observer.round_ended()


def _is_over(program: TimedProgram, machine: MachineState, timing: TimingSettings, fastest: dict[str, float]) -> bool:
    if program.failed is not None or len(program.repeats) >= timing.most_rounds:
        return True
    if program.repeats and is_hopeless(program, fastest, timing.repeat_seconds):
        program.cut_short = True
        return True
    if timing.way is Way.in_a_row:
        return False
    if len(program.repeats) >= min(AGREEING, timing.least_rounds) and program.spent_seconds >= timing.budget_seconds:
        return True
    return len(program.repeats) >= timing.least_rounds and is_settled(program.repeats, machine, timing.uncertainty)


def is_settled(repeats: Sequence[TimedRepeat], machine: MachineState, uncertainty: float) -> bool:
    """Whether more rounds would hardly lower the minimum.

    The `AGREEING` fastest repeats lie within `uncertainty` of each other, and the machine was calm at one of them:
    while it stays slow all repeats agree as well, but not on the right time.
    """
    best = _fastest(repeats)
    return _apart(best) - 1.0 <= uncertainty and any(machine.is_calm(repeat.reference_seconds) for repeat in best)


def disagreement(programs: Sequence[TimedProgram]) -> float:
    """By what factor the `AGREEING` fastest repeats of a program are apart, the median over the programs.

    Far from 1 while other processes take the timed core from the programs: a long repeat is interrupted, while the
    short reference kernel still finds an undisturbed moment and says that all is well. Such times are no labels.
    """
    factors = [fastest_apart(program.repeats) for program in programs if len(program.repeats) >= AGREEING]
    return float(np.median(factors)) if factors else 1.0


def fastest_apart(repeats: Sequence[TimedRepeat]) -> float:
    """By what factor the `AGREEING` fastest repeats of one program are apart; there is one at least."""
    return _apart(_fastest(repeats))


def _fastest(repeats: Sequence[TimedRepeat]) -> list[TimedRepeat]:
    return sorted(repeats, key=lambda repeat: repeat.run_seconds)[:AGREEING]


def _apart(best: Sequence[TimedRepeat]) -> float:
    return best[-1].run_seconds / best[0].run_seconds


def is_hopeless(program: TimedProgram, fastest: dict[str, float], repeat_seconds: float) -> bool:
    """Whether more rounds of a program cost much and tell nothing: it is slow and its calls are long."""
    best = min((repeat.run_seconds for repeat in program.repeats), default=program.call_seconds)
    return (
        best > SLOW_FACTOR * fastest.get(program.candidate.workload_key, best) and best > LONG_FACTOR * repeat_seconds
    )


def _one_repeat(
    program: TimedProgram,
    machine: MachineState,
    timing: TimingSettings,
    fastest: dict[str, float],
    observer: TimingObserver,
) -> None:
    reference_seconds = machine.reference_seconds()
    # the rough time was taken while others were building: later repeats know better
    call_seconds = min((repeat.run_seconds for repeat in program.repeats), default=program.call_seconds)
    calls = 1 if timing.cache is Cache.cold else calls_per_repeat(call_seconds, timing.repeat_seconds)
    reply = program.program.repeat(calls)
    if isinstance(reply, Failed):
        program.failed = reply
        return
    key = program.candidate.workload_key
    fastest[key] = min(reply.run_seconds, fastest.get(key, reply.run_seconds))
    round_index = program.repeats[-1].round_index + 1 if program.repeats else 0
    repeat = TimedRepeat(program.visit, round_index, calls, reply.run_seconds, reference_seconds, reply.ended_at)
    program.repeats.append(repeat)
    observer.repeated(program, repeat)
