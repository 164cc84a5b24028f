"""Timing in rounds: every program of a batch has its turn in every round.

On a shared machine the processor's speed changes within seconds, so repeats in a row all see one state and the order of
two programs is partly luck. Repeats spread over the whole batch see all states, and the minimum over the rounds of one
program compares with that of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kernelcast.measurement.pool import ProgramProcess
from kernelcast.measurement.reference import ReferenceKernel
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.worker import Failed, Prepare, Repeat, calls_per_repeat
from kernelcast.records import Outcome

SLOW_FACTOR = 20.0
"""A program this many times slower than the fastest of its workload is one that nobody picks."""

LONG_FACTOR = 10.0
"""A call this many times longer than a repeat should last makes a program's rounds expensive."""

SLOW_ROUNDS = 3
"""Rounds of a program that is both."""


@dataclass(frozen=True)
class TimedRepeat:
    """One repeat of one program.

    Attributes:
        round_index: the round, from 0.
        run_seconds: mean seconds a call.
        reference_seconds: the reference kernel's seconds a call, just before.
        ended_at: seconds since 1970.
    """

    round_index: int
    run_seconds: float
    reference_seconds: float
    ended_at: float


@dataclass
class TimedProgram:
    """A loaded program and the repeats it has.

    Attributes:
        candidate: what it is.
        program: the worker that holds it.
        seconds: of each round done, possibly in an earlier run of the campaign.
        calls: calls in one repeat.
        failed: why it cannot be timed any more.
    """

    candidate: Candidate
    program: ProgramProcess
    seconds: dict[int, float] = field(default_factory=dict)
    calls: int = 1
    failed: Failed | None = None


class TimingObserver(Protocol):
    """Who is told what happens while it happens."""

    def repeated(self, program: TimedProgram, repeat: TimedRepeat) -> None:
        """A repeat has ended."""

    def ended(self, program: TimedProgram) -> None:
        """A program is done, or has `failed`; said once a program."""

    def round_ended(self) -> None:
        """All programs had their turn."""


def time_in_rounds(
    programs: Sequence[TimedProgram],
    reference: ReferenceKernel,
    settings: RunnerSettings,
    seed: int,
    observer: TimingObserver,
) -> None:
    """Times all programs, one at a time, until each has its rounds or has failed.

    Args:
        programs: loaded programs; rounds they already have are not repeated.
        reference: timed before each repeat.
        settings: rounds, length of a repeat, limit.
        seed: of the random inputs.
        observer: hears of every repeat and every end.
    """
    waiting = []
    for program in programs:
        prepared = program.program.ask(Prepare(seed), settings.run_timeout_seconds, Outcome.RUN_TIMEOUT)
        if isinstance(prepared, Failed):
            program.failed = prepared
            observer.ended(program)
        else:
            program.calls = calls_per_repeat(prepared.call_seconds, settings.repeat_seconds)
            waiting.append(program)
    for round_index in range(settings.rounds):
        fastest = fastest_by_workload(waiting)
        still = []
        for program in waiting:
            if is_hopeless(program, fastest, settings.repeat_seconds):
                observer.ended(program)
                continue
            if round_index not in program.seconds:
                _one_repeat(program, reference, settings, round_index, observer)
            if program.failed:
                observer.ended(program)
            else:
                still.append(program)
        waiting = still
        observer.round_ended()
    for program in waiting:
        observer.ended(program)


def fastest_by_workload(programs: Sequence[TimedProgram]) -> dict[str, float]:
    """Least seconds of any repeat of each workload's programs."""
    fastest: dict[str, float] = {}
    for program in programs:
        for seconds in program.seconds.values():
            key = program.candidate.workload_key
            fastest[key] = min(seconds, fastest.get(key, seconds))
    return fastest


def is_hopeless(program: TimedProgram, fastest: dict[str, float], repeat_seconds: float) -> bool:
    """Whether more rounds of a program cost much and tell nothing: `SLOW_ROUNDS` of them were all slow and long."""
    if len(program.seconds) < SLOW_ROUNDS:
        return False
    best = min(program.seconds.values())
    return best > SLOW_FACTOR * fastest[program.candidate.workload_key] and best > LONG_FACTOR * repeat_seconds


def _one_repeat(
    program: TimedProgram,
    reference: ReferenceKernel,
    settings: RunnerSettings,
    round_index: int,
    observer: TimingObserver,
) -> None:
    reference_seconds = reference.seconds()
    reply = program.program.ask(Repeat(program.calls), settings.run_timeout_seconds, Outcome.RUN_TIMEOUT)
    if isinstance(reply, Failed):
        program.failed = reply
        return
    program.seconds[round_index] = reply.run_seconds
    observer.repeated(program, TimedRepeat(round_index, reply.run_seconds, reference_seconds, reply.ended_at))
