from typing import Any

import pytest

from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.pool import ProgramProcess, build_programs
from kernelcast.measurement.reference import ReferenceKernel
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.timing import (
    SLOW_FACTOR,
    SLOW_ROUNDS,
    TimedProgram,
    TimedRepeat,
    is_hopeless,
    time_in_rounds,
)
from kernelcast.measurement.worker import calls_per_repeat
from kernelcast.records import Outcome, Workload


class Heard:
    """An observer that writes down what it hears."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, int]] = []
        self.repeats: list[TimedRepeat] = []

    def repeated(self, program: TimedProgram, repeat: TimedRepeat) -> None:
        self.events.append(("repeat", program.candidate.workload_key, repeat.round_index))
        self.repeats.append(repeat)

    def ended(self, program: TimedProgram) -> None:
        self.events.append(("end", program.candidate.workload_key, -1))

    def round_ended(self) -> None:
        self.events.append(("round", "", -1))


@pytest.fixture
def reference(server: ForkServer, target: dict[str, Any], settings: RunnerSettings) -> Any:
    kernel = ReferenceKernel(server, target, settings.memory_limit_bytes)
    with kernel.program:
        yield kernel


def test_programs_take_turns_and_a_failure_ends_only_its_own(
    faulty: Any,
    small_matmul: Workload,
    server: ForkServer,
    reference: ReferenceKernel,
    target: dict[str, Any],
    settings: RunnerSettings,
) -> None:
    broken = faulty.calling("aborts", "abort")
    resumed, fresh = sample_candidates(small_matmul, target, 2, seed=0)
    to_build = [(small_matmul, resumed), (broken, Candidate(broken.key, broken.key, "[[],[]]")), (small_matmul, fresh)]
    built = {candidate: program for candidate, program, _ in build_programs(server, to_build, target, settings)}
    programs = []
    for _, candidate in to_build:
        program = built[candidate]
        assert isinstance(program, ProgramProcess)
        programs.append(TimedProgram(candidate, program))
    programs[0].seconds = {0: 0.5}
    heard = Heard()
    time_in_rounds(programs, reference, settings, seed=0, observer=heard)
    for timed in programs:
        timed.program.close()
    matmul, abort = small_matmul.key, broken.key
    assert settings.rounds == 2
    assert heard.events == [
        ("end", abort, -1),
        # round 0 of the first program was there already
        ("repeat", matmul, 0),
        ("round", "", -1),
        ("repeat", matmul, 1),
        ("repeat", matmul, 1),
        ("round", "", -1),
        ("end", matmul, -1),
        ("end", matmul, -1),
    ]
    assert programs[1].failed is not None
    assert programs[1].failed.outcome is Outcome.CRASH
    assert [set(timed.seconds) for timed in programs] == [{0, 1}, set(), {0, 1}]
    assert all(repeat.run_seconds > 0 and repeat.reference_seconds > 0 for repeat in heard.repeats)
    ended = [repeat.ended_at for repeat in heard.repeats]
    assert ended == sorted(ended)


@pytest.mark.parametrize(
    ("seconds", "hopeless"),
    [
        ([2 * SLOW_FACTOR] * SLOW_ROUNDS, True),
        ([2 * SLOW_FACTOR] * (SLOW_ROUNDS - 1), False),
        # one quick repeat is a doubt
        ([2 * SLOW_FACTOR] * SLOW_ROUNDS + [SLOW_FACTOR / 2], False),
    ],
)
def test_a_program_is_hopeless_when_all_of_enough_repeats_are_slow(seconds: list[float], hopeless: bool) -> None:
    timed = TimedProgram(Candidate("workload", "program", ""), None, dict(enumerate(seconds)))  # type: ignore[arg-type]
    assert is_hopeless(timed, {"workload": 1.0}, repeat_seconds=1.0) is hopeless
    # its rounds are cheap: calls that take no longer than a repeat should
    assert not is_hopeless(timed, {"workload": 1.0}, repeat_seconds=100.0)


def test_a_repeat_is_filled_with_calls() -> None:
    assert calls_per_repeat(call_seconds=0.003, repeat_seconds=0.01) == 4
    assert calls_per_repeat(call_seconds=5.0, repeat_seconds=0.01) == 1
    assert calls_per_repeat(call_seconds=0.0, repeat_seconds=0.01) >= 1
