import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernelcast.errors import MeasurementError
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.messages import Build, Built, Failed, Prepare, Prepared, Repeat, Repeated, Sample, Sampled
from kernelcast.measurement.pool import ProgramProcess, death_outcome
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.worker import says_out_of_memory
from kernelcast.records import Outcome, Workload

MEMORY = 2**30


def workers(server: ForkServer) -> list[psutil.Process]:
    return psutil.Process(server.pid).children()


def build(program: ProgramProcess, workload: Workload, target: dict[str, Any]) -> Any:
    """Has the unscheduled workload built."""
    return program.ask(Build(workload, None, target), 60, Outcome.BUILD_TIMEOUT)


def test_a_program_is_built_prepared_and_timed(
    small_matmul: Workload, server: ForkServer, target: dict[str, Any]
) -> None:
    (candidate,) = sample_candidates(small_matmul, target, 1, seed=0)
    with ProgramProcess(server, MEMORY) as program:
        built = program.ask(Build(small_matmul, candidate.trace, target), 60, Outcome.BUILD_TIMEOUT)
        assert isinstance(built, Built)
        assert built.build_seconds > 0
        prepared = program.ask(Prepare(seed=0), 30, Outcome.RUN_TIMEOUT)
        assert isinstance(prepared, Prepared)
        repeated = program.ask(Repeat(calls=3), 30, Outcome.RUN_TIMEOUT)
        assert isinstance(repeated, Repeated)
        assert 0 < repeated.run_seconds < 1
    assert workers(server) == []


def test_candidates_are_drawn_in_a_worker_as_anywhere(
    small_matmul: Workload, server: ForkServer, target: dict[str, Any]
) -> None:
    with ProgramProcess(server, MEMORY) as program:
        sampled = program.ask(Sample(small_matmul, target, 3, seed=5), 60, Outcome.BUILD_TIMEOUT)
    assert sampled == Sampled(tuple(sample_candidates(small_matmul, target, 3, seed=5)), more=False)


def test_a_worker_does_nothing_between_two_requests(
    small_matmul: Workload, server: ForkServer, target: dict[str, Any]
) -> None:
    with ProgramProcess(server, MEMORY) as program:
        build(program, small_matmul, target)
        (worker,) = workers(server)
        # the system stops it soon, not at once; if it never does, the test's time runs out
        while worker.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert isinstance(program.ask(Prepare(seed=0), 30, Outcome.RUN_TIMEOUT), Prepared)


def affinities(pid: int) -> list[set[int]]:
    """The cores of each thread of a process that computes."""
    tasks = Path(f"/proc/{pid}/task")
    computing = [task for task in tasks.iterdir() if "jemalloc" not in (task / "comm").read_text()]
    return [os.sched_getaffinity(int(task.name)) for task in computing]


def test_a_repeat_moves_every_thread_to_a_core_of_its_own(small_matmul: Workload, target: dict[str, Any]) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    target = {**target, "num-cores": len(cores)}
    (candidate,) = sample_candidates(small_matmul, target, 1, seed=0)
    with ForkServer(target, cores[:1]) as server, ProgramProcess(server, MEMORY) as program:
        program.ask(Build(small_matmul, candidate.trace, target), 60, Outcome.BUILD_TIMEOUT)
        program.ask(Prepare(seed=0), 30, Outcome.RUN_TIMEOUT)
        (worker,) = workers(server)
        assert set.union(*affinities(worker.pid)) == set(cores[:1]), "it is built where nothing is timed"
        for wanted in (tuple(cores), tuple(cores[-1:])):
            assert isinstance(program.ask(Repeat(2, wanted), 30, Outcome.RUN_TIMEOUT), Repeated)
            now = affinities(worker.pid)
            assert all(len(one) == 1 for one in now)
            assert set.union(*now) == set(wanted)


def test_memory_counts_from_what_the_server_has(faulty: Any, server: ForkServer, target: dict[str, Any]) -> None:
    # 64 MiB of data in all do not fit into 32, a few MiB do
    for length, outcome in ((2**23, Outcome.OUT_OF_MEMORY), (2**16, None)):
        with ProgramProcess(server, 2**25) as program:
            assert isinstance(build(program, faulty.large("large", length), target), Built)
            reply = program.ask(Prepare(seed=0), 30, Outcome.RUN_TIMEOUT)
        assert (reply.outcome if isinstance(reply, Failed) else None) == outcome


def test_many_threads_can_ask_at_the_same_time(small_matmul: Workload, server: ForkServer, target: Any) -> None:
    def once(number: int) -> bool:
        with ProgramProcess(server, MEMORY) as program:
            return isinstance(build(program, small_matmul, target), Built)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(once, range(8)))
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


def test_a_worker_that_the_system_kills_ran_out_of_memory(
    faulty: Any, server: ForkServer, target: dict[str, Any]
) -> None:
    with ThreadPoolExecutor(1) as thread, ProgramProcess(server, MEMORY) as program:
        build(program, faulty.calling("hangs", "pause"), target)
        (worker,) = workers(server)
        reply = thread.submit(program.ask, Prepare(seed=0), 60, Outcome.RUN_TIMEOUT)
        worker.send_signal(signal.SIGKILL)
        assert reply.result() == Failed(Outcome.OUT_OF_MEMORY, "SIGKILL while running")


def test_a_server_that_was_killed_takes_its_workers_along_and_is_an_error(faulty: Any, target: dict[str, Any]) -> None:
    # the thread that comes second must not take the death for its program's either
    with ForkServer(target) as server, ThreadPoolExecutor(2) as threads:
        programs = [ProgramProcess(server, MEMORY) for _ in range(2)]
        hangs = faulty.calling("hangs", "pause")
        assert all(isinstance(build(program, hangs, target), Built) for program in programs)
        family = workers(server)
        replies = [threads.submit(program.ask, Prepare(seed=0), 60, Outcome.RUN_TIMEOUT) for program in programs]
        os.kill(server.pid, signal.SIGKILL)
        for reply in replies:
            with pytest.raises(MeasurementError, match="the process that starts the workers ended"):
                reply.result()
        with pytest.raises(MeasurementError, match="the process that starts the workers ended"):
            ProgramProcess(server, MEMORY)
        for program in programs:
            program.close()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


def test_ctrl_c_between_a_request_and_its_reply_still_ends_all_workers(
    target: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(expected: bytes) -> int:
        raise KeyboardInterrupt

    with ForkServer(target) as server:
        program = ProgramProcess(server, MEMORY)
        family = [psutil.Process(server.pid), *workers(server)]
        with monkeypatch.context() as patch:
            patch.setattr(server, "_receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                ProgramProcess(server, MEMORY)
        program.close()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
