"""A tuning from its first round to its last, stopped in between and gone on with, on real programs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.files import only_process
from kernelcast.measurement.journal import JOURNAL_FILE
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.workloads import matmul
from kernelcast.records import Outcome
from kernelcast.trials import TRIALS_FILE, read_trials
from kernelcast.tuning.search import SearchSettings, Strategy
from kernelcast.tuning.session import MEASURED_FOLDER, trials_so_far, tune
from kernelcast.tuning.tasks import Task
from kernelcast.tvm_compat import load_tvm, make_target, parse_module

RECORDS = "database_tuning_record.json"


def random_model() -> Any:
    """TVM's model that knows nothing."""
    load_tvm()
    from tvm.s_tir.meta_schedule.cost_model import RandomModel

    return RandomModel(seed=0)


def watched_model(stop_at: int = 0) -> tuple[Any, list[list[float]]]:
    """A model that notes what it is told, and is interrupted when it is asked for the `stop_at`-th time."""
    load_tvm()
    import numpy as np
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel

    told: list[list[float]] = []

    @derived_object
    class Watched(PyCostModel):  # type: ignore[misc]
        asked = 0

        def predict(self, context: Any, candidates: Sequence[Any]) -> Any:
            self.asked += 1
            if self.asked == stop_at:
                raise KeyboardInterrupt
            return np.arange(1.0, len(candidates) + 1.0)

        def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
            told.append([float(result.run_secs[0]) for result in results])

    return Watched(), told


def database(folder: Path) -> Any:
    """TVM's own, of a tuning's folder."""
    load_tvm()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    return JSONDatabase(work_dir=str(folder), allow_missing=False)


class NeverOpened(LocalRunner):
    """A runner that must not be needed."""

    def open(self, *arguments: Any) -> Any:
        raise AssertionError("there is nothing to measure")


def test_tasks_share_the_trials_and_tvm_reads_what_was_measured(
    tmp_path: Path,
    task: Task,
    target: dict[str, Any],
    search: SearchSettings,
    runner: Any,
    settings: RunnerSettings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    tasks = [task, Task(matmul("matmul_heavy", rows=96, columns=64, depth=64), weight=50)]
    folder = tmp_path / "tuning"
    model = random_model()
    table = tune(tasks, target, model, search, runner, settings, folder, 3, "random", "net")
    rows = table.to_pylist()
    assert [row["trial"] for row in rows] == list(range(search.trials))
    assert len({(row["workload_key"], row["program_key"]) for row in rows}) == search.trials
    # one round each, then all for the one that the network runs so often
    assert [row["workload_name"] for row in rows] == ["matmul_small"] * 2 + ["matmul_heavy"] * 4
    assert {(row["method"], row["seed"], row["network"]) for row in rows} == {("random", 3, "net")}
    assert all(0 <= row["model_seconds"] <= row["search_seconds"] for row in rows)
    assert all(row["score"] is not None and row["measure_seconds"] > 0 for row in rows)
    rounds = {row["round"]: row for row in rows}
    assert rows[-1]["elapsed_seconds"] == pytest.approx(
        sum(row["search_seconds"] + row["measure_seconds"] for row in rounds.values())
    )
    assert f"trial {search.trials} of {search.trials}, matmul_heavy: best" in caplog.text
    # TVM finds the fastest of each
    stored = database(tmp_path / "tuning")
    assert len(stored) == search.trials
    for one in tasks:
        best = min(row["run_seconds"] for row in rows if row["workload_key"] == one.workload.key)
        record = stored.query_tuning_record(parse_module(one.workload.module), make_target(target), "main")
        assert float(record.run_secs[0]) == pytest.approx(best, rel=1e-6)
    # what is done is not done again
    again = tune(tasks, target, model, search, NeverOpened(), settings, folder, 3, "random", "net")
    assert again.equals(table)
    assert read_trials(tmp_path / "tuning" / TRIALS_FILE).equals(table)
    assert trials_so_far(tmp_path / "tuning").equals(table)


def test_tvm_06_an_interrupted_tuning_goes_on_and_tells_the_model_what_it_knows(
    tmp_path: Path,
    task: Task,
    target: dict[str, Any],
    search: SearchSettings,
    runner: Any,
    settings: RunnerSettings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # asked twice a round, for each of two generations: the second round is measured and the third is not proposed
    model, told = watched_model(stop_at=5)
    with pytest.raises(KeyboardInterrupt):
        tune([task], target, model, search, runner, settings, tmp_path, 0, "watched")
    assert "interrupted; 4 of 6 trials are kept, the same command goes on from here" in caplog.text
    before = trials_so_far(tmp_path).to_pylist()
    assert told == [[row["run_seconds"] for row in before[start : start + 2]] for start in (0, 2)]
    journal = (tmp_path / MEASURED_FOLDER / JOURNAL_FILE).read_text()
    model, told = watched_model()
    after = tune([task], target, model, search, runner, settings, tmp_path, 0, "watched").to_pylist()
    assert after[:4] == before
    assert len(after) == len({row["program_key"] for row in after}) == 6
    # told of all earlier trials before anything else
    assert told == [[row["run_seconds"] for row in rows] for rows in (before, after[4:])]
    added = (tmp_path / MEASURED_FOLDER / JOURNAL_FILE).read_text().removeprefix(journal)
    assert added.count('"event": "planned"') == 2


def test_tvm_05_torn_last_lines_are_set_aside_and_what_they_said_is_written_again(
    tmp_path: Path,
    task: Task,
    target: dict[str, Any],
    search: SearchSettings,
    runner: Any,
    settings: RunnerSettings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    arguments: tuple[Any, ...] = ([task], target, random_model(), search, runner, settings, tmp_path, 0, "random")
    table = tune(*arguments)
    # the disk was full when the last round was noted: its results and the last record are cut
    rounds, records = tmp_path / "rounds.jsonl", tmp_path / RECORDS
    for path in (rounds, records):
        path.write_bytes(path.read_bytes()[:-30])
    (tmp_path / TRIALS_FILE).unlink()
    lines = len(records.read_text().splitlines())
    again = tune(*arguments)
    assert f"{records}:{lines}: the last line is torn" in caplog.text
    assert f"{rounds}:" in caplog.text
    columns = ["trial", "program_key", "run_seconds", "measure_seconds"]
    # nothing was measured twice, so the times are the same
    assert again.select(columns).equals(table.select(columns))
    stored = sorted(float(record.run_secs[0]) for record in database(tmp_path).get_all_tuning_records())
    assert stored == pytest.approx(sorted(table["run_seconds"].to_pylist()), rel=1e-6)


def test_tvm_01_when_everything_fails_it_says_why_and_tries_again(
    tmp_path: Path, task: Task, target: dict[str, Any], runner: Any, settings: RunnerSettings
) -> None:
    search = SearchSettings(trials=16, trials_per_round=8, population=16, generations=1)
    hasty = replace(settings, build_timeout_seconds=1e-3)
    with pytest.raises(MeasurementError, match=r"0 of 8 programs measured, 8 build_timeout.*first build_timeout") as e:
        tune([task], target, random_model(), search, runner, hasty, tmp_path, 0, "random")
    assert "Raise runner.build_timeout_seconds" in str(e.value)
    assert not (tmp_path / TRIALS_FILE).exists()
    assert (tmp_path / RECORDS).read_text() == ""
    table = tune([task], target, random_model(), replace(search), runner, settings, tmp_path, 0, "random")
    assert table["outcome"].to_pylist() == ["measured"] * 16


def test_tvm_11_tun_03_programs_that_crash_are_trials_with_a_reason_and_never_in_the_database(
    tmp_path: Path,
    task: Task,
    target: dict[str, Any],
    runner: Any,
    settings: RunnerSettings,
    faulty: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # of 8 elements there are few schedules
    tasks = [Task(faulty.calling("aborting", "abort"), 1), task]
    search = SearchSettings(trials=8, trials_per_round=4, strategy=Strategy.replay_trace)
    table = tune(tasks, target, None, search, runner, settings, tmp_path, 0, "random")
    outcomes: dict[str, list[str]] = {name: [] for name in ("aborting", "matmul_small")}
    for row in table.to_pylist():
        outcomes[row["workload_name"]].append(row["outcome"])
        assert (row["run_seconds"] is None) == (row["outcome"] != Outcome.MEASURED)
    assert set(outcomes["aborting"]) == {Outcome.CRASH.value}
    assert set(outcomes["matmul_small"]) == {Outcome.MEASURED.value}
    assert table.num_rows == 8
    assert f"{len(outcomes['aborting'])} crash; first crash (aborting): SIGABRT while running" in caplog.text
    records = [json.loads(line) for line in (tmp_path / RECORDS).read_text().splitlines()]
    assert [number for number, _ in records] == [1] * len(outcomes["matmul_small"])
    assert max(seconds[0] for _, (_, seconds, *_) in records) < 1.0


def test_an_exhausted_space_ends_the_tuning_with_fewer_trials(
    tmp_path: Path,
    target: dict[str, Any],
    runner: Any,
    settings: RunnerSettings,
    faulty: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    search = SearchSettings(trials=500, trials_per_round=8, population=8, generations=1)
    copying = Task(faulty.large("copying", 4), 1)
    table = tune([copying], target, random_model(), search, runner, settings, tmp_path, 0, "random")
    assert 0 < table.num_rows < 500
    assert f"only {table.num_rows} of 500 programs (search.trials)" in caplog.text
    again = tune([copying], target, random_model(), search, NeverOpened(), settings, tmp_path, 0, "random")
    assert again.equals(table)


def test_methods_that_share_a_folder_of_measured_programs_measure_each_once(
    tmp_path: Path, task: Task, target: dict[str, Any], search: SearchSettings, runner: Any, settings: RunnerSettings
) -> None:
    shared = tmp_path / "measured"
    first, second = (
        tune([task], target, random_model(), search, runner, settings, tmp_path / name, 0, name, measured_folder=shared)
        for name in ("one", "other")
    )
    # the same seed proposes the same programs
    columns = ["program_key", "score", "run_seconds", "measure_seconds"]
    assert first.select(columns).equals(second.select(columns))
    assert (shared / JOURNAL_FILE).read_text().count('"event": "planned"') == first.num_rows


def test_more_trials_go_on_and_fewer_lose_nothing(
    tmp_path: Path, task: Task, target: dict[str, Any], search: SearchSettings, runner: Any, settings: RunnerSettings
) -> None:
    def tuned(trials: int) -> list[dict[str, Any]]:
        asked = replace(search, trials=trials)
        return list(tune([task], target, random_model(), asked, runner, settings, tmp_path, 0, "random").to_pylist())

    first = tuned(2)
    grown = tuned(6)
    assert len(grown) == 6
    assert grown[:2] == first
    assert len({row["program_key"] for row in grown}) == 6
    assert tuned(2) == grown


def test_a_folder_is_of_one_tuning_and_of_one_process(
    tmp_path: Path, task: Task, target: dict[str, Any], search: SearchSettings, runner: Any, settings: RunnerSettings
) -> None:
    def tuned(**changes: Any) -> None:
        arguments: dict[str, Any] = {
            "tasks": [task],
            "target": target,
            "cost_model": random_model(),
            "search": replace(search, trials=2),
            "runner": runner,
            "runner_settings": settings,
            "folder": tmp_path / "tuning",
            "seed": 0,
            "method": "random",
            "method_identity": {"method.verify_share": 0.25},
        }
        tune(**{**arguments, **changes})

    with only_process(tmp_path / "tuning", MeasurementError("")), pytest.raises(MeasurementError, match="another proc"):
        tuned()
    tuned()
    others: dict[str, dict[str, Any]] = {
        "seed = 0": {"seed": 1},
        "method = 'random'": {"method": "tvm_xgb"},
        "search.population = 8": {"search": replace(search, trials=2, population=16)},
        "runner.timing.most_rounds = 3": {
            "runner_settings": replace(settings, timing=replace(settings.timing, most_rounds=5))
        },
        "target = ": {"target": {**target, "num-cores": 1, "mcpu": "x86-64"}},
        "tasks = ": {"tasks": [Task(task.workload, 2)]},
        "method.verify_share = 0.25": {"method_identity": {"method.verify_share": 0.5}},
    }
    for named, changes in others.items():
        with pytest.raises(MeasurementError, match=f"was begun with {named}"):
            tuned(**changes)


@pytest.mark.parametrize(
    ("named", "values"),
    [
        ("search.trials", {"trials": 0}),
        ("search.exploration", {"exploration": 1.5}),
        ("search.population", {"population": 1}),
        ("search.strategy", {"strategy": "guess"}),
        ("search.first_round", {"first_round": -1}),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(search: SearchSettings, named: str, values: Any) -> None:
    with pytest.raises(ConfigError, match=named):
        replace(search, **values)


def test_tasks_that_cannot_be_tuned_are_refused(
    tmp_path: Path, task: Task, target: dict[str, Any], search: SearchSettings, runner: Any, settings: RunnerSettings
) -> None:
    for tasks, model, named in (
        ([], random_model(), "there is none to tune"),
        ([task, task], random_model(), "compute the same"),
        ([task], None, "cost_model"),
    ):
        with pytest.raises(ConfigError, match=named):
            tune(tasks, target, model, search, runner, settings, tmp_path, 0, "random")
    with pytest.raises(ConfigError, match="weight"):
        Task(task.workload, 0)
