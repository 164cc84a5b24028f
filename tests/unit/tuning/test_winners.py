"""Winners: the fastest of a tuning, measured again side by side and checked."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import ConfigError
from kernelcast.exchange.database import read_workloads
from kernelcast.exchange.set_aside import SetAside
from kernelcast.measurement.sampling import Candidate, candidate_of, sample_candidates
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.records import Origin, Outcome
from kernelcast.tuning.rounds import ProposedProgram, Result, Round, Rounds
from kernelcast.tuning.tasks import Task
from kernelcast.tuning.winners import WINNERS_FILE, WINNERS_FOLDER, Winner, measure_winners
from kernelcast.tvm_compat import load_tvm, make_target, parse_module


def tried(folder: Path, candidates: list[Candidate], labels: list[float]) -> None:
    """A tuning of one round."""
    folder.mkdir(exist_ok=True)
    with Rounds(folder) as rounds:
        programs = [ProposedProgram(one.program_key, one.trace, None) for one in candidates]
        rounds.propose(Round(candidates[0].workload_key, programs, 0.0, 0.0))
        results = [Result(Outcome.MEASURED, "", label) for label in labels]
        rounds.close_round(len(rounds.rounds) - 1, results, 0.0)


def in_order(task: Task) -> Candidate:
    """The schedule of `hidden_order` that leaves the order as it is, in blocks of columns."""
    load_tvm()
    from tvm.s_tir import Schedule

    schedule = Schedule(parse_module(task.workload.module), seed=1)
    _, column = schedule.get_loops(schedule.get_sblock("sum"))
    schedule.split(column, [None, 8])
    return candidate_of(task.workload, schedule, Origin.RANDOM)


def test_tun_04_tvm_21_the_fastest_that_is_right_wins_not_the_luckiest_time(
    tmp_path: Path,
    task: Task,
    target: dict[str, Any],
    runner: Any,
    settings: RunnerSettings,
    faulty: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hidden = Task(faulty.hidden_order("hidden"), 2)
    wrong, right = faulty.reordered(hidden.workload), in_order(hidden)
    tried(tmp_path, [wrong, right], [1e-9, 1e-8])
    drawn = sample_candidates(task.workload, target, 3, 0)
    # as trials, times that were lucky: none of them is what the programs take
    tried(tmp_path, drawn, [1e-9, 2e-9, 3e-9])
    first, second = measure_winners([hidden, task], target, runner, settings, tmp_path, top=2)
    assert first.program_key == right.program_key
    assert first.checked
    assert first.second_seconds is None
    assert not first.is_clear
    (dropped,) = first.wrong
    assert dropped.startswith(f"{wrong.program_key}: wrong_result: ")
    assert "hidden: a finalist is dropped" in caplog.text
    # the third was not among the fastest two
    assert second.program_key in {one.program_key for one in drawn[:2]}
    assert second.checked
    assert second.second_seconds is not None
    assert 1e-7 < second.run_seconds <= second.second_seconds
    # the trials said that one takes twice as long as the other
    assert second.noise > 0.1
    said = json.loads((tmp_path / WINNERS_FOLDER / WINNERS_FILE).read_text())
    assert [one["workload_name"] for one in said] == ["hidden", "matmul_small"]
    assert said[1]["run_seconds"] == second.run_seconds
    # TVM finds one schedule a workload, and the names are beside
    load_tvm()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    database = JSONDatabase(work_dir=str(tmp_path / WINNERS_FOLDER), allow_missing=False)
    assert len(database) == 2
    for winner in (first, second):
        module = parse_module(winner.task.workload.module)
        record = database.query_tuning_record(module, make_target(target), "main")
        assert float(record.run_secs[0]) == pytest.approx(winner.run_seconds, rel=1e-6)
    names = read_workloads(tmp_path / WINNERS_FOLDER / "database_workload.json", SetAside())
    assert [names[line].name for line in (0, 1)] == ["hidden", "matmul_small"]


def test_a_task_without_a_right_program_has_no_winner(
    tmp_path: Path,
    target: dict[str, Any],
    runner: Any,
    settings: RunnerSettings,
    faulty: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hidden = Task(faulty.hidden_order("hidden"), 1)
    tried(tmp_path, [faulty.reordered(hidden.workload)], [1e-6])
    assert measure_winners([hidden], target, runner, settings, tmp_path) == []
    assert "hidden: none of its programs is right" in caplog.text


def test_a_difference_counts_only_beyond_the_noise(task: Task) -> None:
    def winner(second: float | None, noise: float) -> Winner:
        return Winner(task, "0" * 16, "[[],[]]", 1.0, 1.0, True, second, noise)

    assert winner(1.05, 0.02).is_clear
    assert not winner(1.01, 0.02).is_clear
    assert not winner(None, 0.02).is_clear


def test_finalists_must_fit_into_a_batch(
    tmp_path: Path, task: Task, target: dict[str, Any], runner: Any, settings: RunnerSettings
) -> None:
    with pytest.raises(ConfigError, match="top"):
        measure_winners([task], target, runner, settings, tmp_path, top=settings.timing.batch_size + 1)
