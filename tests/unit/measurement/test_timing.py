from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.measurement import timing as timing_module
from kernelcast.measurement.devices import LoadedProgram
from kernelcast.measurement.local import LocalDevice
from kernelcast.measurement.messages import Failed, Repeated
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.measurement.settings import Cache, RunnerSettings, TimingSettings, Way
from kernelcast.measurement.timing import (
    AGREEING,
    CALM_FACTOR,
    LONG_FACTOR,
    SLOW_FACTOR,
    MachineState,
    TimedProgram,
    TimedRepeat,
    is_hopeless,
    is_settled,
    time_programs,
)
from kernelcast.measurement.worker import calls_per_repeat
from kernelcast.measurement.workloads import elementwise
from kernelcast.records import Outcome, Workload

MakeDevice = Callable[..., LocalDevice]
MakeSettings = Callable[..., RunnerSettings]
SECONDS = st.floats(1e-7, 10)


class Heard:
    """An observer that writes down what it hears."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, int]] = []
        self.repeats: list[TimedRepeat] = []

    def repeated(self, program: TimedProgram, repeat: TimedRepeat) -> None:
        self.events.append(("repeat", program.candidate.program_key, repeat.round_index))
        self.repeats.append(repeat)

    def ended(self, program: TimedProgram) -> None:
        self.events.append(("end", program.candidate.program_key, -1))

    def round_ended(self) -> None:
        self.events.append(("round", "", -1))


@dataclass
class Script:
    """A device whose reference kernel, and a program whose calls, take what is written: times that decide nothing else.

    What is tested with it is what follows from times, which no machine repeats; that times come from real programs is
    tested with real ones.
    """

    name = "script"
    overlaps = False
    times: Iterator[float]
    asked: list[int] = field(default_factory=list)

    def load(self, *_: Any) -> Any:
        raise AssertionError("nothing is loaded while programs are timed")

    def reference_seconds(self) -> float:
        return next(self.times)

    def repeat(self, calls: int) -> Repeated | Failed:
        self.asked.append(calls)
        return Repeated(next(self.times), float(len(self.asked)))

    def close(self) -> None:
        """Holds nothing."""


def scripted(times: list[float], key: str = "p", call_seconds: float | None = None, visit: int = 0) -> TimedProgram:
    """A program with these times, the last one for ever; the rough time is the first unless it is given."""
    endless = (times[min(number, len(times) - 1)] for number in count())
    return TimedProgram(
        Candidate("w", key, ""), Script(endless), visit, times[0] if call_seconds is None else call_seconds
    )


def calm(*states: float) -> MachineState:
    """A machine whose reference kernel takes these times, the last one for ever."""
    return MachineState(Script(states[min(number, len(states) - 1)] for number in count()))


def timed(timing: TimingSettings, *programs: TimedProgram, machine: MachineState | None = None) -> Heard:
    heard = Heard()
    time_programs(programs, machine or calm(1e-5), timing, {}, heard)
    return heard


def repeats_of(seconds: list[float], references: list[float] | None = None) -> list[TimedRepeat]:
    states = references or [1e-5] * len(seconds)
    return [TimedRepeat(0, index, 1, *both, 0.0) for index, both in enumerate(zip(seconds, states, strict=True))]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference kernel is asked before every repeat, however quick the scripted ones are."""
    monkeypatch.setattr(timing_module, "REFERENCE_SECONDS", -1.0)


def test_programs_take_turns_and_a_failure_ends_only_its_own(
    faulty: Any, small_matmul: Workload, target: dict[str, Any], make_device: MakeDevice, settings: RunnerSettings
) -> None:
    device = make_device()
    programs = []
    for candidate in sample_candidates(small_matmul, target, 3, seed=0):
        program = device.load(small_matmul, candidate, None).program
        assert not isinstance(program, Failed)
        programs.append(TimedProgram(candidate, program))
    # one has a round of an earlier run, one is killed as the system does when memory is short
    first, killed, last = programs
    first.repeats = [TimedRepeat(0, 0, 1, 0.5, 1e-5, 0.0)]
    killed.program.worker._signal(9)  # type: ignore[attr-defined]
    heard = timed(settings.timing, *programs, machine=MachineState(device))
    for program in programs:
        program.program.close()
    one, two, three = (program.candidate.program_key for program in programs)
    assert heard.events == [
        ("repeat", one, 1),
        ("end", one, -1),
        ("end", two, -1),
        ("repeat", three, 0),
        ("round", "", -1),
        ("repeat", three, 1),
        ("end", three, -1),
        ("round", "", -1),
    ]
    assert killed.failed is not None
    assert killed.failed.outcome is Outcome.OUT_OF_MEMORY
    assert [len(program.repeats) for program in programs] == [2, 0, 2]
    assert all(repeat.run_seconds > 0 and repeat.reference_seconds > 0 for repeat in heard.repeats)
    ended = [repeat.ended_at for repeat in heard.repeats]
    assert ended == sorted(ended)
    assert last.failed is None


def test_in_a_row_a_program_has_all_its_repeats_before_the_next_begins(make_settings: MakeSettings) -> None:
    timing = make_settings(way=Way.in_a_row, least_rounds=3, most_rounds=3).timing
    heard = timed(timing, scripted([1.0], "a"), scripted([1.0], "b"))
    assert [event[:2] for event in heard.events if event[0] != "round"] == [
        *[("repeat", "a")] * 3,
        ("end", "a"),
        *[("repeat", "b")] * 3,
        ("end", "b"),
    ]


def test_a_settled_program_is_done_and_an_unsettled_one_goes_on(make_settings: MakeSettings, seen: None) -> None:
    timing = make_settings(least_rounds=4, most_rounds=9, uncertainty=0.01, budget_seconds=1e3).timing
    quiet = scripted([1.0, 1.005, 1.3, 1.2, 1.001], "quiet")
    steady = scripted([1.0], "steady")
    falling = scripted([1.0 - 0.05 * number for number in range(9)], "falling")
    timed(timing, quiet, steady, falling)
    # the third that agrees comes fifth; never fewer than the least, never more than the most
    assert [len(program.repeats) for program in (quiet, steady, falling)] == [5, 4, 9]
    assert not any(program.cut_short or program.failed for program in (quiet, steady, falling))


def test_while_the_machine_is_slow_nothing_settles(make_settings: MakeSettings, seen: None) -> None:
    timing = make_settings(least_rounds=3, most_rounds=9, uncertainty=0.01, budget_seconds=1e3).timing
    program = scripted([1.37] * 5 + [1.0])
    # it was fast before, so what it is now is known to be slow
    machine = MachineState(Script((1.37 if number < 5 else 1.0) for number in count()), earlier=[1.0] * 10)
    timed(timing, program, machine=machine)
    assert len(program.repeats) == 8, "until three agree that saw the calm machine"
    same = scripted([1.37])
    timed(timing, same, machine=MachineState(Script(1.37 for _ in count())))
    assert len(same.repeats) == 3, "a machine that was never faster is as calm as it gets"


def test_a_spent_budget_ends_a_program_with_three_repeats_at_least(make_settings: MakeSettings) -> None:
    timing = make_settings(least_rounds=8, most_rounds=20, budget_seconds=5.0, repeat_seconds=1.0).timing
    slow = scripted([10.0, 9.0, 8.0, 7.0, 6.0], "slow")
    medium = scripted([2.0], "medium")
    timed(timing, slow, medium)
    assert len(slow.repeats) == AGREEING
    assert len(medium.repeats) == AGREEING
    quick = scripted([0.01 * (1.5 - 0.1 * number) for number in range(10)], "quick")
    short = make_settings(
        least_rounds=2, most_rounds=20, uncertainty=0.0, budget_seconds=0.5, repeat_seconds=0.05
    ).timing
    timed(short, quick)
    assert len(quick.repeats) < 10
    assert quick.spent_seconds >= 0.5
    assert quick.spent_seconds - quick.repeats[-1].spent_seconds < 0.5


def test_a_hopeless_program_is_cut_short(make_settings: MakeSettings) -> None:
    timing = make_settings(least_rounds=4, most_rounds=4, budget_seconds=1e4, repeat_seconds=1e-3).timing
    fast, slow = scripted([1.0], "fast"), scripted([2 * SLOW_FACTOR], "slow")
    heard = timed(timing, fast, slow)
    assert (fast.cut_short, slow.cut_short) == (False, True)
    assert (len(fast.repeats), len(slow.repeats)) == (4, 1)
    assert ("end", "slow", -1) in heard.events
    # found out while its workload's fastest is not known yet: as soon as that is
    first, then = scripted([2 * SLOW_FACTOR], "slow"), scripted([1.0], "fast")
    timed(timing, first, then)
    assert (first.cut_short, len(first.repeats)) == (True, 1)


@pytest.mark.parametrize(
    ("seconds", "fastest", "repeat_seconds", "hopeless"),
    [
        ([2 * SLOW_FACTOR], 1.0, 1.0, True),
        # one quick repeat is a doubt
        ([2 * SLOW_FACTOR, SLOW_FACTOR / 2], 1.0, 1.0, False),
        ([SLOW_FACTOR], 1.0, 1.0, False),
        # its rounds are cheap: calls that take not much longer than a repeat should
        ([2 * SLOW_FACTOR], 1.0, 2 * SLOW_FACTOR / LONG_FACTOR, False),
        # the only one of its workload
        ([2 * SLOW_FACTOR], None, 1.0, False),
    ],
)
def test_hopeless_is_what_is_slow_and_expensive(
    seconds: list[float], fastest: float | None, repeat_seconds: float, hopeless: bool
) -> None:
    program = scripted([1.0])
    program.repeats = repeats_of(seconds)
    known = {} if fastest is None else {"w": fastest}
    assert is_hopeless(program, known, repeat_seconds) is hopeless


def test_what_an_earlier_run_measured_counts(make_settings: MakeSettings) -> None:
    timing = make_settings(least_rounds=4, most_rounds=4, budget_seconds=1e3).timing
    program = scripted([1.0])
    program.repeats = repeats_of([1.0, 1.0, 1.0])
    heard = timed(timing, program)
    assert [event for event in heard.events if event[0] == "repeat"] == [("repeat", "p", 3)]
    done = scripted([1.0])
    done.repeats = repeats_of([1.0] * 4)
    assert timed(timing, done).repeats == []


def test_a_repeat_says_which_visit_it_is_of(make_settings: MakeSettings) -> None:
    heard = timed(make_settings(least_rounds=2, most_rounds=2).timing, scripted([1.0], visit=1))
    assert [(repeat.visit, repeat.round_index) for repeat in heard.repeats] == [(1, 0), (1, 1)]


def test_calls_fill_a_repeat_by_the_best_time_known(make_settings: MakeSettings) -> None:
    timing = make_settings(least_rounds=3, most_rounds=3, uncertainty=0.0, repeat_seconds=0.01).timing
    # the rough time was taken beside others
    program = scripted([0.002, 0.001, 0.005], call_seconds=0.01)
    timed(timing, program)
    assert isinstance(program.program, Script)
    assert program.program.asked == [1, 5, 10]
    assert [repeat.calls for repeat in program.repeats] == [1, 5, 10]


@given(
    seconds=st.lists(SECONDS, min_size=1, max_size=12),
    slower=st.floats(1, 100),
    state=st.floats(1e-6, 1e-4),
    uncertainty=st.floats(0, 0.5),
)
def test_a_slower_repeat_never_unsettles(seconds: list[float], slower: float, state: float, uncertainty: float) -> None:
    machine = calm(1e-5)
    machine.reference_seconds()
    repeats = repeats_of(seconds, [1e-5 if number % 2 else 2e-5 for number in range(len(seconds))])
    third = sorted(seconds)[:AGREEING][-1]
    more = [*repeats, TimedRepeat(0, len(seconds), 1, third * slower, state, 0.0)]
    if len(seconds) >= AGREEING and is_settled(repeats, machine, uncertainty):
        assert is_settled(more, machine, uncertainty)


@given(
    seconds=st.lists(SECONDS, min_size=AGREEING, max_size=12, unique=True),
    uncertainty=st.floats(0, 0.5),
    data=st.data(),
)
def test_settled_is_what_agrees_in_whatever_order(seconds: list[float], uncertainty: float, data: Any) -> None:
    machine = calm(1e-5)
    machine.reference_seconds()
    best = sorted(seconds)[:AGREEING]
    settled = is_settled(repeats_of(seconds), machine, uncertainty)
    assert settled == (best[-1] / best[0] - 1 <= uncertainty)
    assert settled == is_settled(repeats_of(data.draw(st.permutations(seconds))), machine, uncertainty)
    busy = [2e-5] * len(seconds)
    assert not is_settled(repeats_of(seconds, busy), machine, uncertainty)


def test_the_reference_kernel_is_not_asked_more_often_than_the_machine_changes() -> None:
    numbers = count(1)
    machine = MachineState(Script(float(number) for number in numbers))
    times = {machine.reference_seconds() for _ in range(200)}
    # two hundred reads take well under one interval, unless the system is elsewhere in between
    assert len(times) < 100
    assert min(times) == 1.0


@given(
    usual=st.lists(st.floats(1e-5, 1.05e-5), min_size=30, max_size=60),
    lucky=st.floats(1e-7, 1e-5),
)
def test_one_lucky_time_does_not_make_the_machine_busy(usual: list[float], lucky: float) -> None:
    machine = MachineState(Script(iter([max(usual)])), earlier=[*usual, lucky])
    assert machine.is_calm(machine.reference_seconds())
    assert not machine.is_calm(1.05e-5 * CALM_FACTOR * 1.01)


def test_a_repeat_is_filled_with_calls() -> None:
    assert calls_per_repeat(call_seconds=0.003, repeat_seconds=0.01) == 4
    assert calls_per_repeat(call_seconds=5.0, repeat_seconds=0.01) == 1
    assert calls_per_repeat(call_seconds=0.0, repeat_seconds=0.01) >= 1


def test_cold_caches_cost_time(target: dict[str, Any], make_device: MakeDevice, make_settings: MakeSettings) -> None:
    # 128 KiB read and as much written: the second cache level of common processors holds it
    workload = elementwise("relu", shape=[32768], chain=["relu"])
    (candidate,) = sample_candidates(workload, target, 1, seed=0)
    least = {}
    for cache in Cache:
        timing = make_settings(cache=cache, least_rounds=12, most_rounds=12, uncertainty=0.0).timing
        device = make_device(cache=cache)
        program = device.load(workload, candidate, None).program
        assert not isinstance(program, Failed)
        one: LoadedProgram = program
        heard = timed(timing, TimedProgram(candidate, one, call_seconds=1e-5), machine=MachineState(device))
        one.close()
        least[cache] = min(repeat.run_seconds for repeat in heard.repeats)
        assert {repeat.calls == 1 for repeat in heard.repeats} == {cache is Cache.cold}
    assert least[Cache.cold] > 1.5 * least[Cache.warm]
