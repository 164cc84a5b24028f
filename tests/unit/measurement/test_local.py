import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.measurement import local
from kernelcast.measurement.devices import Loading
from kernelcast.measurement.host import cores_of_machine
from kernelcast.measurement.local import Bench, LocalDevice, LocalRunner, OpenLocalRunner, share_cores
from kernelcast.measurement.messages import Failed, Repeated
from kernelcast.measurement.sampling import PIECE, sample_candidates
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.workloads import matmul
from kernelcast.records import Outcome, Workload
from kernelcast.tvm_compat import assembly, available_cores, replayed_schedule, runnable_module

MakeBench = Callable[..., Bench]
MakeDevice = Callable[..., LocalDevice]


@st.composite
def machines(draw: Any) -> list[list[int]]:
    """Physical cores with one to four hardware threads each, numbered in any way; some taken away from the process."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=12))
    numbers = draw(st.permutations(range(sum(counts))))
    groups, start = [], 0
    for count in counts:
        groups.append(sorted(numbers[start : start + count]))
        start += count
    return sorted(groups)


@given(groups=machines(), data=st.data())
def test_cores_are_shared_so_that_nothing_disturbs_what_is_timed(groups: list[list[int]], data: Any) -> None:
    every = {core for group in groups for core in group}
    threads = data.draw(st.integers(1, len(every)))
    slots = data.draw(st.integers(1, len(every) // threads))
    timed, building = share_cores(groups, threads, slots)
    assert [len(cores) for cores in timed] == [threads] * slots
    used = [core for cores in timed for core in cores]
    assert len(set(used)) == len(used), "slots are disjoint"
    assert set(used) <= every
    assert building
    assert list(building) == sorted(set(building))

    busy = [group for group in groups if set(group) & set(used)]
    if threads * slots <= len(groups):
        assert len(busy) == threads * slots, "as long as there are enough, a physical core for each thread"
    if len(busy) < len(groups):
        # neither on a timed core nor on its hyperthread siblings
        assert not set(building) & {core for group in busy for core in group}
        assert set(building) == every - {core for group in busy for core in group}
    else:
        assert set(building) == every


def test_the_last_cores_are_timed() -> None:
    assert share_cores([[0], [1]], threads=1, slots=1) == ([(1,)], (0,))
    assert share_cores([[0], [1]], threads=2, slots=1) == ([(1, 0)], (0, 1))
    assert share_cores([[0, 4], [1, 5], [2, 6], [3, 7]], threads=1, slots=2) == ([(3,), (2,)], (0, 1, 4, 5))
    assert share_cores([[0, 2], [1, 3]], threads=2, slots=2) == ([(1, 0), (3, 2)], (0, 1, 2, 3))


def test_programs_that_do_not_fit_are_refused(target: dict[str, Any]) -> None:
    cores = available_cores()
    LocalRunner(slots=cores).check(target)
    with pytest.raises(
        ConfigError, match=rf"runner\.devices\.slots: {cores + 1} programs of 1 threads .*{cores} cores"
    ):
        LocalRunner(slots=cores + 1).check(target)
    with pytest.raises(ConfigError, match=r"target\.num-cores"):
        LocalRunner().check({**target, "num-cores": cores + 1})
    with pytest.raises(ConfigError, match=r"runner\.devices\.slots must be a positive integer"):
        LocalRunner(slots=0)


def test_all_hardware_threads_may_be_used(target: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    cores = available_cores()
    # a processor with two hardware threads a core, as the default configuration meets it
    monkeypatch.setattr(local, "cores_of_machine", lambda: [[number, number + cores] for number in range(cores)])
    LocalRunner(slots=2).check({**target, "num-cores": cores})


def worker_count(device: LocalDevice) -> int:
    return len(psutil.Process(device._bench.server.pid).children())


@pytest.mark.parametrize(
    ("faulty_program", "outcome", "message"),
    [
        (("calling", "abort"), Outcome.CRASH, "SIGABRT while running"),
        (("reading_far_outside",), Outcome.CRASH, "SIGSEGV while running: !!!!!!! Segfault encountered !!!!!!!"),
        (
            ("needing_what_is_not_there",),
            Outcome.RUN_ERROR,
            "Error: Cannot find function kernelcast.no_such_function in the imported modules or global registry.",
        ),
        (("not_a_number",), Outcome.WRONG_RESULT, "the results in `result` are not all finite numbers"),
        (("large", 2**26), Outcome.OUT_OF_MEMORY, "Unable to allocate 256. MiB for an array with shape (67108864,)"),
    ],
)
def test_a_program_that_goes_wrong_is_told_by_its_outcome(
    faulty: Any, make_device: MakeDevice, faulty_program: tuple[Any, ...], outcome: Outcome, message: str
) -> None:
    make, *arguments = faulty_program
    workload = getattr(faulty, make)("faulty", *arguments)
    device = make_device(memory_limit_bytes=2**28)
    before = worker_count(device)
    loading = device.load(workload, faulty.unscheduled(workload), None)
    assert isinstance(loading.program, Failed)
    assert loading.program.outcome is outcome
    assert message in loading.program.message
    assert loading.build_seconds is not None
    assert not loading.checked
    assert worker_count(device) == before, "its worker is gone"


def test_a_program_that_never_returns_is_stopped(faulty: Any, make_device: MakeDevice) -> None:
    hangs = faulty.calling("hangs", "pause")
    loading = make_device(run_timeout_seconds=0.3).load(hangs, faulty.unscheduled(hangs), None)
    assert loading.program == Failed(Outcome.RUN_TIMEOUT, "still running after 0.3 s; stopped")


def test_a_program_whose_one_call_is_within_the_limit_is_timed(faulty: Any, make_device: MakeDevice) -> None:
    sleeps = faulty.sleeping("sleeps", 700_000)
    program = make_device(run_timeout_seconds=1.2).load(sleeps, faulty.unscheduled(sleeps), None).program
    assert not isinstance(program, Failed)
    repeated = program.repeat(1)
    program.close()
    # two calls in a repeat would have run into it
    assert isinstance(repeated, Repeated), repeated
    assert repeated.run_seconds > 0.6


def test_a_build_that_takes_too_long_is_stopped(faulty: Any, small_matmul: Workload, make_device: MakeDevice) -> None:
    loading = make_device(build_timeout_seconds=0.001).load(small_matmul, faulty.unscheduled(small_matmul), None)
    assert loading == Loading(Failed(Outcome.BUILD_TIMEOUT, "still building after 0.001 s; stopped"))


def test_a_trace_of_another_workload_is_a_build_error(
    faulty: Any, small_matmul: Workload, make_device: MakeDevice
) -> None:
    candidate = faulty.with_trace(small_matmul, [["NoSuchInstruction", [], [], []]])
    loading = make_device().load(small_matmul, candidate, None)
    assert isinstance(loading.program, Failed)
    assert loading.program.outcome is Outcome.BUILD_ERROR
    assert loading.program.message.startswith("MalformedDataError: the trace does not apply to workload matmul_small")
    assert "NoSuchInstruction" in loading.program.message
    assert loading.build_seconds is None


def test_a_loaded_program_is_timed_on_its_cores(
    small_matmul: Workload, target: dict[str, Any], make_device: MakeDevice
) -> None:
    (candidate,) = sample_candidates(small_matmul, target, 1, seed=0)
    core = cores_of_machine()[-1][0]
    device = make_device((core,))
    program = device.load(small_matmul, candidate, None).program
    assert not isinstance(program, Failed)
    repeated = program.repeat(3)
    assert isinstance(repeated, Repeated)
    assert 0 < repeated.run_seconds < 1
    assert 0 < device.reference_seconds() < 1
    assert [process.cpu_affinity() for process in psutil.Process(device._bench.server.pid).children()] == [[core]] * 2
    program.close()
    program.close()


def test_what_was_built_for_its_code_is_not_built_again_where_it_runs(
    small_matmul: Workload, target: dict[str, Any], make_device: MakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = cores_of_machine()[-1][0]
    device = make_device((core,))
    runner = OpenLocalRunner([device], device._bench)
    before = worker_count(device)
    candidates = sample_candidates(small_matmul, target, 3, seed=0)
    listings = [runner.read_code(small_matmul, each, 60.0) for each in candidates]
    modules = [runnable_module(replayed_schedule(small_matmul, each.trace).mod) for each in candidates]
    assert listings == [assembly(module, target) for module in modules]
    assert worker_count(device) == before + 3
    program = device.load(small_matmul, candidates[1], runner.expected(small_matmul)).program
    assert not isinstance(program, Failed)
    assert worker_count(device) == before + 3, "its worker has it"
    assert isinstance(program.repeat(3), Repeated)
    runner.forget_built()
    assert worker_count(device) == before + 1
    assert [core] in [process.cpu_affinity() for process in psutil.Process(device._bench.server.pid).children()]
    program.close()

    # a worker that something else ends while it waits costs a build, no more
    assert runner.read_code(small_matmul, candidates[0], 60.0) == listings[0]
    assert runner.has_built(candidates[0])
    worker, _ = device._bench.built[candidates[0].workload_key, candidates[0].program_key]
    os.kill(worker._pid, signal.SIGKILL)
    program = device.load(small_matmul, candidates[0], None).program
    assert not isinstance(program, Failed)
    program.close()

    # those above the limit are built again, and nothing else is lost
    monkeypatch.setattr(local, "MOST_BUILT", 1)
    assert [runner.read_code(small_matmul, each, 60.0) for each in candidates] == listings
    assert worker_count(device) == before + 1
    late = runner.read_code(small_matmul, candidates[0], 0.001)
    assert isinstance(late, Failed)
    assert late.outcome is Outcome.BUILD_TIMEOUT
    runner.forget_built()
    assert worker_count(device) == before


def test_a_workload_that_does_not_run_unscheduled_is_not_compared_with(
    faulty: Any, make_device: MakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    device = make_device(memory_limit_bytes=2**28)
    runner = OpenLocalRunner([device], device._bench)
    workload = faulty.large_inside("inside", 2**24)
    with caplog.at_level(logging.WARNING):
        assert runner.expected(workload) is None
        assert runner.expected(workload) is None
    warning = "inside: its programs cannot be checked, the unscheduled module does not run (out_of_memory: "
    assert caplog.text.count(warning) == 1, "computed once"
    loading = device.load(workload, faulty.inlined(workload), None)
    assert not isinstance(loading.program, Failed)
    assert not loading.checked
    loading.program.close()


def test_the_results_of_a_workload_are_computed_once(small_matmul: Workload, make_bench: MakeBench) -> None:
    bench = make_bench()
    runner = OpenLocalRunner([], bench)
    path = runner.expected(small_matmul)
    assert path is not None
    written = path.stat().st_mtime_ns
    assert runner.expected(small_matmul) == path
    assert path.stat().st_mtime_ns == written


def test_a_workload_that_cannot_be_drawn_from_is_named(small_matmul: Workload, make_bench: MakeBench) -> None:
    runner = OpenLocalRunner([], make_bench())
    with pytest.raises(MeasurementError, match=r"workload torn: no schedules .* leave it out with '~workload.torn'"):
        list(runner.sample(replace(small_matmul, name="torn", module=small_matmul.module[:99]), 3, 0, ()))


def test_many_candidates_come_in_pieces_and_in_the_same_order(make_bench: MakeBench) -> None:
    workload, count = matmul("matmul", 64, 64, 64), PIECE + 20
    runner = OpenLocalRunner([], make_bench())
    drawn = runner.sample(workload, count, 3, ())
    wanted = sample_candidates(workload, make_bench().target, count, 3)
    assert [next(drawn), *drawn] == wanted
    assert len(wanted) == count


def test_after_the_context_nothing_is_left(
    small_matmul: Workload, target: dict[str, Any], settings: RunnerSettings, tmp_path: Path
) -> None:
    others = set(psutil.Process().children(recursive=True))
    with LocalRunner(slots=2).open(target, settings, 0, tmp_path) as opened:
        assert [device.name for device in opened.devices] == ["local-0", "local-1"]
        family = psutil.Process().children(recursive=True)
        (candidate,) = opened.sample(small_matmul, 1, 0, ())
        # a program that nobody closes
        assert not isinstance(opened.devices[0].load(small_matmul, candidate, None).program, Failed)
        family += psutil.Process().children(recursive=True)
        assert opened.devices[0].overlaps == (len(cores_of_machine()) > 2)
    _, alive = psutil.wait_procs(set(family) - others, timeout=20)
    assert alive == []
