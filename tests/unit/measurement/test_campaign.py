import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from kernelcast.errors import ConfigError, MalformedDataError, MeasurementError
from kernelcast.measurement.campaign import Plan, run_campaign
from kernelcast.measurement.host import cpu_identity
from kernelcast.measurement.journal import JOURNAL_FILE
from kernelcast.measurement.workloads import matmul, softmax
from kernelcast.records import (
    CAMPAIGN_FILE,
    MEASUREMENTS_FILE,
    MEASUREMENTS_VERSION,
    WORKLOADS_FILE,
    Campaign,
    Host,
    read_measurements,
    write_campaign,
)
from kernelcast.tvm_compat import tvm_versions

MakePlan = Callable[..., Plan]
PROGRAM = Path(__file__).with_name("measure_small.py")


def rows(directory: Path) -> list[dict[str, Any]]:
    table: pa.Table = read_measurements(directory).table
    return list(table.to_pylist())


def journalled(directory: Path, kind: str) -> list[dict[str, Any]]:
    """The events of one kind; a torn last line is none."""
    path = directory / JOURNAL_FILE
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_a_campaign_is_measured_once_and_grows(make_plan: MakePlan, small_matmul: Any) -> None:
    plan = make_plan()
    run_campaign(plan)
    first = rows(plan.directory)
    assert len(first) == 4
    for row in first:
        assert row["outcome"] == "measured"
        assert row["workload_key"] == small_matmul.key
        assert row["round_index"] == [0, 1]
        assert all(seconds > 0 for seconds in row["run_seconds"] + row["reference_seconds"])
        assert row["ended_at"] == sorted(row["ended_at"])
        assert json.loads(row["target"]) == plan.target
    assert len({row["program_key"] for row in first}) == 4

    # the same command again measures nothing
    journal = (plan.directory / JOURNAL_FILE).read_bytes()
    run_campaign(plan)
    assert (plan.directory / JOURNAL_FILE).read_bytes() == journal
    assert rows(plan.directory) == first

    # more samples and one more workload: what is there stays as it is
    more = make_plan(samples_per_workload=5, workloads=[small_matmul, softmax("rows", 4, 8)])
    run_campaign(more)
    grown = rows(plan.directory)
    assert grown[:4] == first
    assert [row["workload_name"] for row in grown].count("matmul_small") == 5
    assert set(read_measurements(plan.directory).workloads) == {workload.key for workload in more.workloads}

    # fewer again: the table holds what is asked for, the journal all
    run_campaign(plan)
    assert rows(plan.directory) == first
    assert len(journalled(plan.directory, "planned")) == len(grown)


def test_when_all_fail_it_says_so_and_the_next_run_tries_again(make_plan: MakePlan) -> None:
    hasty = make_plan(build_timeout_seconds=0.001)
    (hasty.directory / "x").parent.mkdir(parents=True)
    (hasty.directory / MEASUREMENTS_FILE).write_text("of an earlier campaign")
    with pytest.raises(MeasurementError) as failed:
        run_campaign(hasty)
    assert str(failed.value).startswith("0 of 4 programs measured, 4 build_timeout: more failed than max_failure_share")
    assert "first build_timeout (matmul_small): still building after 0.001 s" in str(failed.value)
    assert "Raise runner.build_timeout_seconds" in str(failed.value)
    assert not (hasty.directory / MEASUREMENTS_FILE).exists()

    run_campaign(make_plan())
    assert [row["outcome"] for row in rows(hasty.directory)] == ["measured"] * 4


def fake_campaign(plan: Plan, **changes: Any) -> Campaign:
    host = Host(changes.pop("cpu", cpu_identity()), 1, 2**30, "Linux", 1e9, 1e9, 4, 2**15)
    fields = {
        "version": MEASUREMENTS_VERSION,
        "target": plan.target,
        "tvm": tvm_versions(),
        "timing": plan.settings.timing,
        "seed": plan.seed,
    }
    return Campaign(host=host, **{**fields, **changes})


@pytest.mark.parametrize(
    ("was", "says"),
    [
        ({"cpu": "an abacus"}, "host.cpu = 'an abacus'"),
        ({"seed": 7}, "seed = 7, this run has 0"),
        ({"target": {"kind": "llvm", "num-cores": 64}}, "target = {'kind': 'llvm', 'num-cores': 64}"),
        ({"tvm": {"apache-tvm": "0.26"}}, "tvm = {'apache-tvm': '0.26'}"),
        ({"timing": {"rounds": 9, "repeat_seconds": 1e-4, "batch_size": 4}}, "runner.rounds = 9, this run has 2"),
        ({"timing": {}}, "runner.batch_size = None, this run has 4"),
    ],
)
def test_what_was_measured_otherwise_is_not_mixed(make_plan: MakePlan, was: dict[str, Any], says: str) -> None:
    plan = make_plan()
    write_campaign(plan.directory, fake_campaign(plan, **was), {workload.key: workload for workload in plan.workloads})
    (plan.directory / MEASUREMENTS_FILE).write_text("its table")
    with pytest.raises(MeasurementError) as refused:
        run_campaign(plan)
    assert says in str(refused.value)
    assert (plan.directory / MEASUREMENTS_FILE).read_text() == "its table"


def test_a_journal_without_its_campaign_is_refused(make_plan: MakePlan) -> None:
    plan = make_plan()
    plan.directory.mkdir(parents=True)
    (plan.directory / JOURNAL_FILE).write_text("a line\n")
    with pytest.raises(MalformedDataError, match=CAMPAIGN_FILE):
        run_campaign(plan)


def test_what_a_kill_leaves_before_the_first_line_does_not_stop_the_next_run(make_plan: MakePlan) -> None:
    plan = make_plan(samples_per_workload=1)
    plan.directory.mkdir(parents=True)
    for name in (JOURNAL_FILE, f".{WORKLOADS_FILE}.half", f".{MEASUREMENTS_FILE}.half"):
        (plan.directory / name).touch()
    run_campaign(plan)
    written = {JOURNAL_FILE, CAMPAIGN_FILE, WORKLOADS_FILE, MEASUREMENTS_FILE}
    assert {path.name for path in plan.directory.iterdir()} == written


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"samples_per_workload": 0}, "samples_per_workload must be a positive integer"),
        ({"max_failure_share": 1.5}, "max_failure_share must be between 0 and 1"),
        ({"workloads": []}, "there is none to measure"),
        ({"workloads": [matmul("one", 2, 2, 2), matmul("two", 2, 2, 2)]}, "one and two compute the same"),
        ({"target": {"kind": "cuda"}}, "target.kind"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(make_plan: MakePlan, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_plan(**changes)


def start(directory: Path, samples: int) -> "subprocess.Popen[str]":
    command = [sys.executable, str(PROGRAM), str(directory), str(samples)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_repeats(process: "subprocess.Popen[str]", directory: Path, count: int) -> None:
    while len(journalled(directory, "repeat")) < count:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def end(process: "subprocess.Popen[str]", number: int) -> str:
    """Sends a signal and makes sure that neither the process nor anything it started is left. Returns its output."""
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2, "a server and its workers"
    process.send_signal(number)
    printed, _ = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    return printed


def test_killed_at_any_moment_it_goes_on_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    from measure_small import small_plan

    directory, samples, rounds = tmp_path / "measurements", 4, 4
    before: list[dict[str, Any]] = []
    for number, further in [(signal.SIGKILL, 2), (signal.SIGINT, 9), (signal.SIGKILL, 10)]:
        process = start(directory, samples)
        wait_for_repeats(process, directory, len(before) + further)
        with pytest.raises(MeasurementError, match="another process is measuring"):
            run_campaign(small_plan(directory, samples))
        printed = end(process, number)
        assert process.returncode != 0
        if number == signal.SIGINT:
            assert "the same command goes on from here" in printed
        after = journalled(directory, "repeat")
        assert after[: len(before)] == before
        before = after
        assert not (directory / MEASUREMENTS_FILE).exists()
        if number == signal.SIGKILL:
            # as if it had died while writing
            with (directory / JOURNAL_FILE).open("ab") as stream:
                stream.write(b'{"event": "repeat", "workl')

    run_campaign(small_plan(directory, samples))
    table = rows(directory)
    assert len(table) == len({(row["workload_key"], row["program_key"]) for row in table}) == 2 * samples
    assert {row["outcome"] for row in table} == {"measured"}
    assert all(row["round_index"] == list(range(rounds)) for row in table)
    kept = {
        (row["program_key"], index, seconds, reference, ended)
        for row in table
        for index, seconds, reference, ended in zip(
            row["round_index"], row["run_seconds"], row["reference_seconds"], row["ended_at"], strict=True
        )
    }
    fields = ("program", "round", "run_seconds", "reference_seconds", "ended_at")
    assert {tuple(event[field] for field in fields) for event in before} <= kept
    assert len(list(directory.glob(f"{JOURNAL_FILE}.torn-*"))) == 2


def test_a_full_disk_ends_it_with_one_message_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    from measure_small import small_plan

    directory = tmp_path / "measurements"
    process = start(directory, 2)
    wait_for_repeats(process, directory, 2)
    # the disk is full from now on: a limit on the size of files stands for it
    size = (directory / JOURNAL_FILE).stat().st_size + 1000
    psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (size, size))
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 6, printed
    last = printed.strip().splitlines()[-1]
    assert last.startswith(f"StorageError: cannot write {directory / JOURNAL_FILE}: ")
    assert (directory / JOURNAL_FILE).stat().st_size == size
    assert not (directory / MEASUREMENTS_FILE).exists()
    had = journalled(directory, "repeat")
    assert had
    run_campaign(small_plan(directory, 2))
    assert len(rows(directory)) == 4
    assert journalled(directory, "repeat")[: len(had)] == had
