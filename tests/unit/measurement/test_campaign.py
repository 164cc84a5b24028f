import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernelcast.errors import MalformedDataError, MeasurementError
from kernelcast.machine import Host
from kernelcast.measurement.campaign import run_campaign
from kernelcast.measurement.host import cpu_identity
from kernelcast.measurement.journal import JOURNAL_FILE, Journal
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.settings import Way
from kernelcast.measurement.workloads import matmul, softmax
from kernelcast.records import (
    CAMPAIGN_FILE,
    MEASUREMENTS_FILE,
    MEASUREMENTS_VERSION,
    WORKLOADS_FILE,
    Campaign,
    Origin,
    Workload,
    read_measurements,
    write_campaign,
)
from kernelcast.tvm_compat import available_cores, tvm_versions

MakePlan = Callable[..., Plan]


@pytest.fixture(autouse=True)
def nothing_left() -> Any:
    """However a campaign ends, none of its processes is left."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


def rows(directory: Path) -> list[dict[str, Any]]:
    return list(read_measurements(directory).table.to_pylist())


def journalled(directory: Path, kind: str) -> list[dict[str, Any]]:
    """The events of one kind."""
    lines = (directory / JOURNAL_FILE).read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_a_campaign_is_measured_once_and_grows(
    make_plan: MakePlan, small_matmul: Workload, caplog: pytest.LogCaptureFixture
) -> None:
    plan = make_plan(runner=LocalRunner())
    with caplog.at_level(logging.INFO):
        run_campaign(plan)
    first = rows(plan.directory)
    assert len(first) == 4
    # TVM-02: no build waits for what workers import; the log has the steps, the slowest first
    assert all(row["build_seconds"] < 10 for row in first)
    assert re.search(r"time spent: [a-z ]+ [\d:]+ (s|min), ", caplog.text)
    for row in first:
        assert row["outcome"] == "measured"
        assert row["workload_key"] == small_matmul.key
        assert row["origin"] == "random"
        assert row["device"] == "local"
        assert row["checked"]
        assert not row["cut_short"]
        assert row["round_index"] == [0, 1]
        assert row["visit"] == [0, 0]
        # TVM-12: every raw repeat is kept, with what the machine was like beside it
        assert all(number > 0 for number in row["run_seconds"] + row["reference_seconds"] + row["calls"])
        assert row["ended_at"] == sorted(row["ended_at"])
        assert row["finished_at"] >= row["ended_at"][-1]
        assert row["build_seconds"] > 0
        assert json.loads(row["target"]) == plan.target
    assert len({row["program_key"] for row in first}) == 4

    # the same command again measures nothing
    journal = (plan.directory / JOURNAL_FILE).read_bytes()
    assert run_campaign(plan).phases.seconds == {}
    assert (plan.directory / JOURNAL_FILE).read_bytes() == journal
    assert rows(plan.directory) == first

    # more samples and one more workload, in another way to check: what is there stays as it is
    more = make_plan(samples_per_workload=5, workloads=[small_matmul, softmax("rows", 4, 8)], check_share=0.0)
    run_campaign(more)
    grown = rows(plan.directory)
    assert grown[:4] == first
    assert [row["workload_name"] for row in grown].count("matmul_small") == 5
    assert not any(row["checked"] for row in grown[4:])
    assert set(read_measurements(plan.directory).workloads) == {workload.key for workload in more.workloads}

    # fewer again: the table holds what is asked for, the journal all
    run_campaign(plan)
    assert rows(plan.directory) == first
    assert len(journalled(plan.directory, "planned")) == len(grown)


def test_programs_that_go_wrong_are_rows_beside_the_others(make_plan: MakePlan, faulty: Any) -> None:
    workloads = [
        matmul("right", 4, 4, 4),
        faulty.calling("aborts", "abort"),
        faulty.calling("hangs", "pause"),
        faulty.reading_far_outside("wild"),
        faulty.needing_what_is_not_there("lacking"),
        faulty.hidden_order("hidden"),
        faulty.large("large", 2**26),
        faulty.large_inside("inside", 2**24),
        matmul("also_right", 4, 8, 4),
    ]
    plan = make_plan(
        workloads=workloads,
        samples_per_workload=1,
        max_failure_share=0.9,
        run_timeout_seconds=3.0,
        memory_limit_bytes=2**28,
    )
    run_campaign(plan)
    found = {row["workload_name"]: row for row in rows(plan.directory)}
    assert {name: row["outcome"] for name, row in found.items()} == {
        "right": "measured",
        "aborts": "crash",
        "hangs": "run_timeout",
        "wild": "crash",
        "lacking": "run_error",
        "hidden": "wrong_result",
        "large": "out_of_memory",
        "inside": "measured",
        "also_right": "measured",
    }
    # of `inside` there is nothing to compare with: unscheduled it does not fit into memory
    assert {name for name, row in found.items() if row["checked"]} == {"right", "also_right", "hidden"}
    assert found["hidden"]["message"].startswith("510 of 594 elements of `result` differ")
    assert found["hangs"]["message"] == "still running after 3 s; stopped"
    for row in found.values():
        assert bool(row["message"]) == (row["outcome"] != "measured") == (row["run_seconds"] == [])


def test_a_wrong_program_passes_where_nothing_is_compared(make_plan: MakePlan, faulty: Any) -> None:
    plan = make_plan(workloads=[faulty.hidden_order("hidden")], samples_per_workload=1, check_share=0.0)
    run_campaign(plan)
    (row,) = rows(plan.directory)
    assert (row["outcome"], row["checked"]) == ("measured", False)


def test_when_all_fail_it_says_so_and_the_next_run_tries_again(make_plan: MakePlan) -> None:
    hasty = make_plan(build_timeout_seconds=0.001)
    hasty.directory.mkdir(parents=True)
    (hasty.directory / MEASUREMENTS_FILE).write_text("of an earlier campaign")
    with pytest.raises(MeasurementError) as failed:
        run_campaign(hasty)
    assert str(failed.value).startswith("0 of 4 programs measured, 4 build_timeout: more failed than max_failure_share")
    assert "first build_timeout (matmul_small): still building after 0.001 s" in str(failed.value)
    assert "Raise runner.build_timeout_seconds" in str(failed.value)
    assert not (hasty.directory / MEASUREMENTS_FILE).exists()

    run_campaign(make_plan())
    assert [row["outcome"] for row in rows(hasty.directory)] == ["measured"] * 4
    assert len(journalled(hasty.directory, "retried")) == 4


def test_it_stops_as_soon_as_too_many_have_failed(make_plan: MakePlan) -> None:
    hasty = make_plan(build_timeout_seconds=0.001, batch_size=1, samples_per_workload=6, max_failure_share=0.2)
    with pytest.raises(MeasurementError, match="0 of 6 programs measured, 2 build_timeout, 4 not tried: more failed"):
        run_campaign(hasty)
    assert len(journalled(hasty.directory, "finished")) == 2


def test_some_programs_are_measured_again_when_all_are_measured(make_plan: MakePlan, small_matmul: Workload) -> None:
    plan = make_plan(
        workloads=[small_matmul, softmax("rows", 4, 8)], samples_per_workload=4, remeasure_share=0.5, batch_size=3
    )
    run_campaign(plan)
    table = rows(plan.directory)
    assert [row["visit"] for row in table] == [
        [0, 0, 1, 1] if plan.is_measured_again(workload, position) else [0, 0]
        for workload in plan.workloads
        for position in range(4)
    ]
    assert all(row["round_index"] in ([0, 1], [0, 1, 0, 1]) for row in table)
    times = [(visit, ended) for row in table for visit, ended in zip(row["visit"], row["ended_at"], strict=True)]
    assert max(ended for visit, ended in times if visit == 0) < min(ended for visit, ended in times if visit == 1)
    # nothing is measured a third time; a larger share adds to it
    assert run_campaign(plan).phases.seconds == {}
    run_campaign(replace(plan, settings=replace(plan.settings, remeasure_share=1.0)))
    more = rows(plan.directory)
    assert all(row["visit"] == [0, 0, 1, 1] for row in more)
    for old, new in zip(table, more, strict=True):
        assert new["run_seconds"][: len(old["run_seconds"])] == old["run_seconds"]
        assert (new["spread"], new["finished_at"]) == (old["spread"], old["finished_at"])


def test_a_second_visit_that_fails_leaves_the_measurement_as_it_is(make_plan: MakePlan) -> None:
    run_campaign(make_plan())
    hasty = make_plan(remeasure_share=1.0, build_timeout_seconds=0.001)
    first = rows(hasty.directory)
    run_campaign(hasty)
    assert rows(hasty.directory) == first
    again = [event for event in journalled(hasty.directory, "finished") if event["visit"] == 1]
    assert [event["outcome"] for event in again] == ["build_timeout"] * 4
    # neither is it tried again
    assert run_campaign(make_plan(remeasure_share=1.0)).phases.seconds == {}


def test_programs_evolve_from_those_that_were_measured(make_plan: MakePlan, small_matmul: Workload) -> None:
    plan = make_plan(evolved_share=0.5)
    run_campaign(plan)
    table = rows(plan.directory)
    assert [row["origin"] for row in table] == ["random", "random", "evolved", "evolved"]
    assert {row["outcome"] for row in table} == {"measured"}
    assert len({row["program_key"] for row in table}) == 4
    random, evolved = table[:2], table[2:]
    assert max(row["finished_at"] for row in random) < min(row["ended_at"][0] for row in evolved)


def test_a_workload_that_cannot_be_scheduled_is_left_out(
    make_plan: MakePlan, small_matmul: Workload, caplog: pytest.LogCaptureFixture
) -> None:
    torn = replace(small_matmul, key="0" * 16, name="torn", module="{}")
    others = [small_matmul, softmax("rows", 4, 8), softmax("more", 4, 16)]
    plan = make_plan(workloads=[torn, *others], samples_per_workload=1)
    # the same command again has only that one to draw, and ends in the same way
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            run_campaign(plan)
        assert "workload torn: no schedules can be drawn" in caplog.text
        assert [row["workload_name"] for row in rows(plan.directory)] == ["matmul_small", "rows", "more"]


def test_workloads_that_cannot_be_scheduled_at_all_are_an_error(make_plan: MakePlan, small_matmul: Workload) -> None:
    plan = make_plan(workloads=[replace(small_matmul, key="0" * 16, name="torn", module="{}")])
    with pytest.raises(MeasurementError, match="1 of 1 workloads cannot be scheduled; first: workload torn: "):
        run_campaign(plan)
    assert not (plan.directory / MEASUREMENTS_FILE).exists()


def test_two_slots_share_the_work(make_plan: MakePlan) -> None:
    plan = make_plan(runner=LocalRunner(slots=min(2, available_cores())), samples_per_workload=6, batch_size=2)
    run_campaign(plan)
    table = rows(plan.directory)
    assert {row["outcome"] for row in table} == {"measured"}
    assert {row["device"] for row in table} == ({"local-0", "local-1"} if available_cores() > 1 else {"local"})


def test_repeats_in_a_row_are_the_ways_of_other_tools(make_plan: MakePlan) -> None:
    plan = make_plan(way=Way.in_a_row, least_rounds=3, most_rounds=3)
    run_campaign(plan)
    order = [event["program"] for event in journalled(plan.directory, "repeat")]
    assert len(order) == 12
    assert all(len(set(order[start : start + 3])) == 1 for start in range(0, 12, 3))


def fake_campaign(plan: Plan, **changes: Any) -> Campaign:
    host = Host(changes.pop("cpu", cpu_identity()), 1, 2**30, "Linux", 1e9, 1e9, 4, 2**15)
    timing = plan.settings.timing.as_dict() | changes.pop("timing", {})
    fields = {
        "version": MEASUREMENTS_VERSION,
        "target": plan.target,
        "tvm": tvm_versions(),
        "timing": {key: value for key, value in timing.items() if value is not None},
        "seed": plan.seed,
    }
    return Campaign(**{"host": host, **fields, **changes})


def test_random_draws_make_up_for_what_evolved_before(make_plan: MakePlan, small_matmul: Workload) -> None:
    plan = make_plan(evolved_share=0.25)
    drawn = sample_candidates(small_matmul, plan.target, 3, plan.seed)
    write_campaign(plan.directory, fake_campaign(plan), {small_matmul.key: small_matmul})
    with Journal(plan.directory) as journal:
        journal.plan([replace(drawn[1], origin=Origin.EVOLVED)])
    run_campaign(plan)
    table = rows(plan.directory)
    assert [row["origin"] for row in table] == ["random"] * 3 + ["evolved"]
    assert table[-1]["program_key"] == drawn[1].program_key
    assert journalled(plan.directory, "exhausted") == []


@pytest.mark.parametrize(
    ("was", "says"),
    [
        ({"cpu": "an abacus"}, "host.cpu = 'an abacus'"),
        ({"seed": 7}, "seed = 7, this run has 0"),
        ({"target": {"kind": "llvm", "num-cores": 64}}, "target = {'kind': 'llvm', 'num-cores': 64}"),
        ({"tvm": {"apache-tvm": "0.26"}}, "tvm = {'apache-tvm': '0.26'}"),
        ({"timing": {"most_rounds": 9}}, "runner.timing.most_rounds = 9, this run has 2"),
        ({"timing": {"cache": "cold"}}, "runner.timing.cache = 'cold', this run has 'warm'"),
        ({"timing": {"batch_size": None}}, "runner.timing.batch_size = None, this run has 4"),
        ({"timing": {"of_another_version": 1}}, "runner.timing.of_another_version = 1, this run has None"),
        ({"host": None}, "holds imported measurements; nothing can be measured into it"),
        # the first release: its timing was in other words, which is not what the user has to set back
        (
            {"version": 1, "timing": {"rounds": 2, "way": None}},
            "was measured by an earlier kernelcast (version 1 of such folders, this one writes 2)",
        ),
    ],
)
def test_what_was_measured_otherwise_is_not_mixed(make_plan: MakePlan, was: dict[str, Any], says: str) -> None:
    plan = make_plan()
    write_campaign(plan.directory, fake_campaign(plan, **was), {workload.key: workload for workload in plan.workloads})
    (plan.directory / MEASUREMENTS_FILE).write_text("its table")
    (plan.directory / JOURNAL_FILE).write_text("its journal\n")
    with pytest.raises(MeasurementError) as refused:
        run_campaign(plan)
    assert says in str(refused.value)
    assert (plan.directory / MEASUREMENTS_FILE).read_text() == "its table"
    assert (plan.directory / JOURNAL_FILE).read_text() == "its journal\n"


def test_a_table_without_its_journal_is_gone_on_with(make_plan: MakePlan) -> None:
    plan = make_plan(samples_per_workload=3, evolved_share=0.4, remeasure_share=0.5)
    run_campaign(plan)
    first = rows(plan.directory)
    assert {row["origin"] for row in first} == {"random", "evolved"}
    assert any(1 in row["visit"] for row in first)
    (plan.directory / JOURNAL_FILE).unlink()
    run_campaign(plan)
    assert rows(plan.directory) == first
    (plan.directory / JOURNAL_FILE).write_text("")
    run_campaign(replace(plan, samples_per_workload=5))
    grown = rows(plan.directory)
    assert len(grown) == 5
    assert [row for row in grown if row["program_key"] in {one["program_key"] for one in first}] == first


def test_a_journal_without_its_campaign_is_refused(make_plan: MakePlan) -> None:
    plan = make_plan()
    plan.directory.mkdir(parents=True)
    (plan.directory / JOURNAL_FILE).write_text("a line\n")
    with pytest.raises(MalformedDataError, match=CAMPAIGN_FILE):
        run_campaign(plan)


def test_what_a_kill_leaves_before_the_first_line_does_not_stop_the_next_run(make_plan: MakePlan) -> None:
    plan = make_plan(samples_per_workload=1)
    (plan.directory / "scratch").mkdir(parents=True)
    for name in (JOURNAL_FILE, f".{WORKLOADS_FILE}.half", f".{MEASUREMENTS_FILE}.half", "scratch/results.npz"):
        (plan.directory / name).touch()
    run_campaign(plan)
    written = {JOURNAL_FILE, CAMPAIGN_FILE, WORKLOADS_FILE, MEASUREMENTS_FILE}
    assert {path.name for path in plan.directory.iterdir()} == written
