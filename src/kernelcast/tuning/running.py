"""Our bench as MetaSchedule's builder and runner, for anyone's `tune_tir` or `tune_tasks`.

    with measuring_bench(target, LocalRunner(), settings) as (builder, runner):
        meta_schedule.tune_tir(..., builder=builder, runner=runner, measure_callbacks=callbacks())

Every program is built and run in a process of its own, a batch is timed in rounds, and a program that comes twice is
measured once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernelcast.errors import MeasurementError, StorageError
from kernelcast.files import storage_errors
from kernelcast.measurement.devices import Runner
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.tuning.building import handed_program, handing_builder
from kernelcast.tuning.measuring import Bench, Measured, open_bench
from kernelcast.tvm_compat import keep_exceptions, load_tvm, prepare_for


@contextmanager
def measuring_bench(
    target: dict[str, Any],
    runner: Runner,
    settings: RunnerSettings,
    folder: Path | None = None,
    seed: int = 0,
) -> Iterator[tuple[Any, Any]]:
    """A builder and a runner for MetaSchedule, which belong together; no process of theirs is left after the context.

    Args:
        target: the complete TVM target, as `tvm_compat.resolve_target` gives it; the search must tune for the same.
        runner: where programs run: `LocalRunner`, or `RpcRunner` for devices behind a tracker.
        settings: limits and timing.
        folder: where measured programs are kept for later searches; None for one that is removed at the end.
        seed: of the random inputs.

    Raises:
        ConfigError: programs of the target cannot be timed here; names the key.
        MeasurementError: another process measures in the folder, or it belongs to another machine, target or timing.
    """
    runner.check(target)
    prepare_for(target)
    with tempfile.TemporaryDirectory(prefix="kernelcast-") as temporary:
        artifacts = Path(temporary) / "programs"
        with storage_errors(artifacts):
            artifacts.mkdir()
        kept = Path(temporary) / "measured" if folder is None else folder
        with open_bench(kept, target, runner, settings, seed) as bench:
            yield handing_builder(artifacts), timing_runner(bench)


def timing_runner(bench: Bench) -> Any:
    """A MetaSchedule runner that measures what `building.handing_builder` hands on.

    Results hold one time, the label: the minimum over the rounds. MetaSchedule ranks by the mean or the median of the
    times it gets, which a single one leaves as it is. A failed program has the reason by name in its message:
    `build_timeout: still building after 60 s; stopped`. Its results are not compared with those of the unscheduled
    module, which MetaSchedule does not hand to runners; numbers that are not finite are a failure.

    Where the first programs of a search have all failed, its batch raises a `MeasurementError` that says why.
    """
    load_tvm()
    keep_exceptions(KeyboardInterrupt, MeasurementError, StorageError)
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerFuture, RunnerResult

    def future(measured: Measured) -> Any:
        seconds = None if measured.run_seconds is None else [measured.run_seconds]
        result = RunnerResult(seconds, measured.error)
        return RunnerFuture(f_done=lambda: True, f_result=lambda: result)

    @derived_object
    class TimingRunner(PyRunner):  # type: ignore[misc]
        """TVM's side of the runner."""

        def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
            programs = [handed_program(str(one.artifact_path)) for one in runner_inputs]
            # a search may propose one program twice in a batch
            distinct = {candidate.program_key: (workload, candidate) for workload, candidate in programs}
            measured = dict(zip(distinct, bench.measure(list(distinct.values())), strict=True))
            bench.refuse_failures()
            return [future(measured[candidate.program_key]) for _, candidate in programs]

    return TimingRunner()


def callbacks() -> list[Any]:
    """MetaSchedule's measure callbacks, with a database that failed programs do not get into.

    TVM's own `AddToDatabase` writes those as programs of 1e10 seconds.
    """
    load_tvm()
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.database import TuningRecord
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback, RemoveBuildArtifact, UpdateCostModel

    @derived_object
    class AddMeasured(PyMeasureCallback):  # type: ignore[misc]
        """Adds the programs that were measured."""

        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: Sequence[Any],
            builder_results: Sequence[Any],
            runner_results: Sequence[Any],
        ) -> None:
            database = task_scheduler.database_
            if database is None:
                return
            context = task_scheduler.tasks_[task_id].ctx
            workload = database.commit_workload(context.mod)
            for one, result in zip(measure_candidates, runner_results, strict=True):
                if result.run_secs:
                    database.commit_tuning_record(
                        TuningRecord(one.sch.trace, workload, list(result.run_secs), context.target, one.args_info)
                    )

    return [AddMeasured(), RemoveBuildArtifact(), UpdateCostModel()]
