import os
import signal
import time
from dataclasses import replace
from typing import Any

import psutil
import pytest

from kernelcast.errors import MeasurementError
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.pool import ProgramProcess, build_programs, death_outcome
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.worker import Build, Built, Failed, Prepare, Prepared, Repeat, Repeated, says_out_of_memory
from kernelcast.records import Outcome, Workload

SCHEDULES_NOTHING = "[[],[]]"


def unscheduled(workload: Workload) -> tuple[Workload, Candidate]:
    return workload, Candidate(workload.key, workload.key, SCHEDULES_NOTHING)


def run_once(
    workload: Workload, server: ForkServer, target: dict[str, Any], settings: RunnerSettings, limit: float = 30.0
) -> Any:
    """The answer to the first run of a workload's program, or to its build if that fails."""
    with ProgramProcess(server, settings.memory_limit_bytes) as program:
        built = program.ask(Build(workload, SCHEDULES_NOTHING, target), 60.0, Outcome.BUILD_TIMEOUT)
        return program.ask(Prepare(seed=0), limit, Outcome.RUN_TIMEOUT) if isinstance(built, Built) else built


def workers(server: ForkServer) -> list[psutil.Process]:
    return psutil.Process(server.pid).children()


def test_a_program_is_built_prepared_and_timed(
    small_matmul: Workload, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    (candidate,) = sample_candidates(small_matmul, target, 1, seed=0)
    ((built, program, seconds),) = build_programs(server, [(small_matmul, candidate)], target, settings)
    assert isinstance(program, ProgramProcess)
    with program:
        assert built is candidate
        assert seconds > 0
        prepared = program.ask(Prepare(seed=0), 30, Outcome.RUN_TIMEOUT)
        assert isinstance(prepared, Prepared)
        repeated = program.ask(Repeat(calls=3), 30, Outcome.RUN_TIMEOUT)
        assert isinstance(repeated, Repeated)
        assert 0 < repeated.run_seconds < 1
    assert workers(server) == []


def test_a_worker_does_nothing_between_two_requests(
    small_matmul: Workload, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    with ProgramProcess(server, settings.memory_limit_bytes) as program:
        program.ask(Build(small_matmul, SCHEDULES_NOTHING, target), 60, Outcome.BUILD_TIMEOUT)
        (worker,) = workers(server)
        # the system stops it soon, not at once; if it never does, the test's time runs out
        while worker.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert isinstance(program.ask(Prepare(seed=0), 30, Outcome.RUN_TIMEOUT), Prepared)


def test_an_abort_is_a_crash_with_the_name_of_the_signal(
    faulty: Any, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    failed = run_once(faulty.calling("aborts", "abort"), server, target, settings)
    assert failed == Failed(Outcome.CRASH, "SIGABRT while running")


def test_a_program_that_never_returns_is_stopped(
    faulty: Any, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    failed = run_once(faulty.calling("hangs", "pause"), server, target, settings, limit=0.3)
    assert failed == Failed(Outcome.RUN_TIMEOUT, "still running after 0.3 s; stopped")
    assert workers(server) == []


def test_results_that_are_no_numbers_are_wrong(
    faulty: Any, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    failed = run_once(faulty.not_a_number("root"), server, target, settings)
    assert failed.outcome is Outcome.WRONG_RESULT
    assert "`result`" in failed.message


def test_memory_beyond_the_limit_is_refused(
    faulty: Any, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    little = replace(settings, memory_limit_bytes=2**28)
    failed = run_once(faulty.large("large", 2**26), server, target, little)
    assert failed.outcome is Outcome.OUT_OF_MEMORY
    assert isinstance(run_once(faulty.large("less", 2**20), server, target, little), Prepared)


def test_a_trace_of_another_workload_is_a_build_error(
    small_matmul: Workload, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    candidate = Candidate(small_matmul.key, "0" * 16, '[[["NoSuchInstruction",[],[],[]]],[]]')
    ((_, failed, _),) = build_programs(server, [(small_matmul, candidate)], target, settings)
    assert isinstance(failed, Failed)
    assert failed.outcome is Outcome.BUILD_ERROR
    assert "NoSuchInstruction" in failed.message


def test_builds_that_take_too_long_are_stopped(
    small_matmul: Workload, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    hasty = replace(settings, build_timeout_seconds=0.001)
    results = list(build_programs(server, [unscheduled(small_matmul)] * 3, target, hasty))
    assert [result.outcome for _, result, _ in results if isinstance(result, Failed)] == [Outcome.BUILD_TIMEOUT] * 3
    assert workers(server) == []


def test_whoever_stops_in_the_middle_of_builds_leaves_no_worker(
    small_matmul: Workload, server: ForkServer, target: dict[str, Any], settings: RunnerSettings
) -> None:
    builds = build_programs(server, [unscheduled(small_matmul)] * 3, target, settings)
    _, program, _ = next(builds)
    assert isinstance(program, ProgramProcess)
    builds.close()
    program.close()
    assert workers(server) == []


@pytest.mark.parametrize(
    ("code", "words", "outcome", "message"),
    [
        (-signal.SIGSEGV, "!!! Segfault !!!\n 0: frame", Outcome.CRASH, "SIGSEGV while running: !!! Segfault !!!"),
        (-signal.SIGABRT, "std::bad_alloc", Outcome.OUT_OF_MEMORY, "SIGABRT while running: std::bad_alloc"),
        (-signal.SIGKILL, "", Outcome.OUT_OF_MEMORY, "SIGKILL while running"),
        (3, "", Outcome.CRASH, "the process ended with status 3 while running"),
    ],
)  # fmt: skip
def test_what_a_death_means(code: int, words: str, outcome: Outcome, message: str) -> None:
    assert death_outcome(code, "running", words) == Failed(outcome, message)


def test_what_speaks_of_memory() -> None:
    assert says_out_of_memory("LLVM ERROR: out of memory")
    assert not says_out_of_memory("LLVM ERROR: Cannot select: intrinsic")


def test_a_server_that_was_killed_takes_its_workers_along_and_is_an_error(settings: RunnerSettings) -> None:
    server = ForkServer(threads=1)
    program = ProgramProcess(server, settings.memory_limit_bytes)
    (worker,) = workers(server)
    os.kill(server.pid, signal.SIGKILL)
    psutil.wait_procs([worker], timeout=20)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    with pytest.raises(MeasurementError, match="the process that starts the workers ended"):
        program.ask(Prepare(seed=0), 30, Outcome.RUN_TIMEOUT)
    program.close()
    server.close()


def test_ctrl_c_between_a_request_and_its_reply_still_ends_all_workers(
    settings: RunnerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(expected: bytes) -> int:
        raise KeyboardInterrupt

    with ForkServer(threads=1) as server:
        program = ProgramProcess(server, settings.memory_limit_bytes)
        family = [psutil.Process(server.pid), *workers(server)]
        with monkeypatch.context() as patch:
            patch.setattr(server, "_receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                ProgramProcess(server, settings.memory_limit_bytes)
        program.close()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
