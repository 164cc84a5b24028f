"""Our builder and runner in TVM's own search."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import MeasurementError
from kernelcast.measurement.sampling import tune_context
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.records import Workload
from kernelcast.tuning.running import callbacks, measuring_bench
from kernelcast.tuning.tasks import Task


def tuned_by_tvm(
    folder: Path, workload: Workload, target: dict[str, Any], bench: tuple[Any, Any], trials: int, *more: Any
) -> Any:
    """What `tune_tasks` leaves in its database, with one round of random programs; `more` are further callbacks."""
    context = tune_context(workload, target, 0, "replay-trace")
    from tvm.s_tir import meta_schedule

    builder, runner = bench
    return meta_schedule.tune_tasks(
        tasks=[context],
        task_weights=[1.0],
        work_dir=str(folder),
        max_trials_global=trials,
        num_trials_per_iter=trials,
        builder=builder,
        runner=runner,
        cost_model="random",
        measure_callbacks=[*callbacks(), *more],
    )


def test_tvm_tunes_with_our_bench(
    tmp_path: Path, task: Task, target: dict[str, Any], runner: Any, settings: RunnerSettings
) -> None:
    with measuring_bench(target, runner, settings, tmp_path / "measured") as bench:
        database = tuned_by_tvm(tmp_path, task.workload, target, bench, 4)
    labels = [[float(seconds) for seconds in record.run_secs] for record in database.get_all_tuning_records()]
    assert len(labels) == 4
    assert all(len(one) == 1 and 0 < one[0] < 1 for one in labels)


def test_tvm_09_what_fails_is_told_by_name_and_stays_out_of_the_database(
    tmp_path: Path, target: dict[str, Any], runner: Any, settings: RunnerSettings, faulty: Any
) -> None:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback

    said: list[str] = []

    @derived_object
    class Listening(PyMeasureCallback):  # type: ignore[misc]
        def apply(self, scheduler: Any, number: int, candidates: Any, built: Any, results: Any) -> None:
            said.extend(str(result.error_msg) for result in results)

    with measuring_bench(target, runner, settings) as bench:
        database = tuned_by_tvm(tmp_path, faulty.calling("aborting", "abort"), target, bench, 3, Listening())
    assert len(said) == 3
    assert all(one.startswith("crash: SIGABRT while running") for one in said)
    assert len(database) == 0


def test_tvm_01_a_search_of_which_everything_fails_ends_with_the_reason(
    tmp_path: Path, task: Task, target: dict[str, Any], runner: Any, settings: RunnerSettings
) -> None:
    hasty = replace(settings, build_timeout_seconds=1e-3)
    with (
        measuring_bench(target, runner, hasty) as bench,
        pytest.raises(MeasurementError, match=r"8 build_timeout.*Raise runner.build_timeout_seconds"),
    ):
        tuned_by_tvm(tmp_path, task.workload, target, bench, 8)
