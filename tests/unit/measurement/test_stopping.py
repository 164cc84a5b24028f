"""Campaigns that end before their time: killed, interrupted, without a disk, with an error of their own."""

import ctypes
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernelcast.errors import MeasurementError, StorageError
from kernelcast.measurement.campaign import run_campaign
from kernelcast.measurement.host import cores_of_machine
from kernelcast.measurement.journal import JOURNAL_FILE
from kernelcast.measurement.plan import Plan
from kernelcast.records import MEASUREMENTS_FILE

MakePlan = Callable[..., Plan]


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `stopping` of this folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import stopping

    return stopping


@pytest.fixture
def small_plan(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plan that the processes follow."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from measure_small import small_plan

    return small_plan


def assert_whole(stopping: Any, directory: Path, samples: int, repeats: list[dict[str, Any]]) -> None:
    """Every program is there once, with all rounds of its visits once, and every raw time that there ever was."""
    table = stopping.rows(directory)
    assert len(table) == len({(row["workload_key"], row["program_key"]) for row in table}) == 2 * samples
    assert {row["outcome"] for row in table} == {"measured"}
    again = 0
    for row in table:
        first = [index for index, visit in zip(row["round_index"], row["visit"], strict=True) if visit == 0]
        second = [index for index, visit in zip(row["round_index"], row["visit"], strict=True) if visit == 1]
        assert first == [0, 1, 2, 3]
        assert second in ([], [0, 1, 2, 3])
        again += bool(second)
    assert abs(again - samples) <= 2, "half of all, within one of each workload"
    names = ("program", "visit", "round_index", "calls", "run_seconds", "reference_seconds", "ended_at")
    columns = ("visit", "round_index", "calls", "run_seconds", "reference_seconds", "ended_at")
    kept = {
        (row["program_key"], *values)
        for row in table
        for values in zip(*(row[column] for column in columns), strict=True)
    }
    assert {tuple(event[name] for name in names) for event in repeats} <= kept


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_and_loses_nothing(stopping: Any, small_plan: Any, tmp_path: Path) -> None:
    directory, samples = tmp_path / "measurements", 4
    plan = small_plan(directory, samples)
    before: list[dict[str, Any]] = []
    # in the middle of a batch; of the next; of a batch of second visits
    for number, visit, further in [(signal.SIGKILL, 0, 2), (signal.SIGINT, 0, 14), (signal.SIGKILL, 1, 3)]:
        process = stopping.start(directory, samples)
        stopping.wait_for(process, directory, "repeat", further, visit)
        with pytest.raises(MeasurementError, match="another process is measuring"):
            run_campaign(plan)
        printed = stopping.end(process, number)
        assert process.returncode != 0
        if number == signal.SIGINT:
            assert "the same command goes on from here" in printed
        after = stopping.journalled(directory, "repeat")
        assert after[: len(before)] == before
        before = after
        assert {event["outcome"] for event in stopping.journalled(directory, "finished")} <= {"measured"}
        assert not (directory / MEASUREMENTS_FILE).exists()
        if number == signal.SIGKILL:
            # as if it had died while writing
            with (directory / JOURNAL_FILE).open("ab") as stream:
                stream.write(b'{"event": "repeat", "workl')

    run_campaign(plan)
    assert_whole(stopping, directory, samples, before)
    assert len(list(directory.glob(f"{JOURNAL_FILE}.torn-*"))) == 2
    assert not (directory / "scratch").exists()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_killed_at_twenty_random_moments_every_row_is_there_once(
    stopping: Any, small_plan: Any, tmp_path: Path
) -> None:
    generator = random.Random(0)
    directory, samples, kills = tmp_path / "measurements", 8, 0
    before: list[dict[str, Any]] = []
    while kills < 20:
        process = stopping.start(directory, samples, evolved_share=0.25)
        seen = len(stopping.events(directory))
        # some before the first line: starting, drawing; the others anywhere up to the table
        lines = seen + generator.choice([0, 0, generator.randint(1, 30), generator.randint(1, 30)])
        while process.poll() is None and len(stopping.events(directory)) < lines:
            time.sleep(0.005)
        time.sleep(generator.uniform(0, 0.3) if lines > seen else generator.uniform(0, 12))
        if process.poll() is None:
            stopping.end(process, signal.SIGKILL)
            kills += 1
        else:
            assert process.returncode == 0, process.communicate()[0]
            # done before its time: more to do
            samples += 4
        after = stopping.journalled(directory, "repeat")
        assert after[: len(before)] == before
        before = after
    run_campaign(small_plan(directory, samples, evolved_share=0.25))
    assert_whole(stopping, directory, samples, before)
    origins = [row["origin"] for row in stopping.rows(directory)]
    assert origins.count("evolved") == 2 * (samples // 4)


def test_ctrl_c_ends_a_campaign_that_builds_and_times_in_turn(stopping: Any, small_plan: Any, tmp_path: Path) -> None:
    # programs on all cores: nothing is built while something is timed
    directory, cores = tmp_path / "measurements", len(cores_of_machine())
    process = stopping.start(directory, 2, cores)
    stopping.wait_for(process, directory, "repeat", 5)
    assert "the same command goes on from here" in stopping.end(process, signal.SIGINT)
    repeats = stopping.journalled(directory, "repeat")
    run_campaign(small_plan(directory, 2, cores))
    assert_whole(stopping, directory, 2, repeats)


def test_ctrl_c_ends_a_campaign_that_draws(stopping: Any, small_plan: Any, tmp_path: Path) -> None:
    directory = tmp_path / "measurements"
    process = stopping.start(directory, 2)
    while len(psutil.Process(process.pid).children(recursive=True)) < 3:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    stopping.end(process, signal.SIGINT)
    assert process.returncode != 0
    assert stopping.journalled(directory, "finished") == []


def test_a_full_disk_ends_it_with_one_message_and_costs_nothing(stopping: Any, small_plan: Any, tmp_path: Path) -> None:
    directory = tmp_path / "measurements"
    process = stopping.start(directory, 2)
    stopping.wait_for(process, directory, "repeat", 2)
    # the disk is full from now on: a limit on the size of files stands for it
    size = (directory / JOURNAL_FILE).stat().st_size + 1000
    psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (size, size))
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 6, printed
    last = printed.strip().splitlines()[-1]
    assert last.startswith(f"StorageError: cannot write {directory / JOURNAL_FILE}: ")
    assert size - 1000 <= (directory / JOURNAL_FILE).stat().st_size <= size
    assert not (directory / MEASUREMENTS_FILE).exists()
    had = stopping.journalled(directory, "repeat")
    assert had
    run_campaign(small_plan(directory, 2))
    assert_whole(stopping, directory, 2, had)
    assert not list(directory.glob("*.torn-*"))


@contextmanager
def as_nobody() -> Iterator[None]:
    """Files are those of somebody else meanwhile, also for root, whom no permission stops."""
    library = ctypes.CDLL(None)
    library.setfsuid(65534)
    try:
        yield
    finally:
        library.setfsuid(os.geteuid())


def test_a_folder_that_may_not_be_written_is_a_storage_error(make_plan: MakePlan) -> None:
    plan = make_plan()
    plan.directory.mkdir()
    plan.directory.chmod(0o555)
    with as_nobody(), pytest.raises(StorageError, match=r"permission denied; make the folder writable"):
        run_campaign(plan)
    assert list(plan.directory.iterdir()) == []


def test_the_death_of_the_server_ends_the_campaign_and_no_program_is_blamed(
    stopping: Any, small_plan: Any, tmp_path: Path
) -> None:
    directory = tmp_path / "measurements"
    process = stopping.start(directory, 4)
    stopping.wait_for(process, directory, "repeat", 2)
    family = psutil.Process(process.pid).children(recursive=True)
    (server,) = psutil.Process(process.pid).children()
    server.kill()
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "the process that starts the workers ended" in printed.strip().splitlines()[-1]
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    assert {event["outcome"] for event in stopping.journalled(directory, "finished")} <= {"measured"}
    had = stopping.journalled(directory, "repeat")
    run_campaign(small_plan(directory, 4))
    assert_whole(stopping, directory, 4, had)
