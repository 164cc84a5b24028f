"""Tunes a small task in a process of its own, to be stopped: FOLDER TRIALS."""

import logging
import sys
from pathlib import Path

from kernelcast.errors import KernelcastError
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.settings import Cache, RunnerSettings, TimingSettings, Way
from kernelcast.measurement.workloads import matmul
from kernelcast.tuning.search import SearchSettings
from kernelcast.tuning.session import tune
from kernelcast.tuning.tasks import Task
from kernelcast.tvm_compat import load_tvm, resolve_target


def tune_small(folder: Path, trials: int) -> None:
    """Rounds of 3 programs, long enough to be killed within each."""
    load_tvm()
    from tvm.s_tir.meta_schedule.cost_model import RandomModel

    timing = TimingSettings(
        way=Way.rounds,
        cache=Cache.warm,
        batch_size=3,
        least_rounds=4,
        most_rounds=4,
        uncertainty=0.1,
        budget_seconds=10.0,
        repeat_seconds=0.05,
    )
    settings = RunnerSettings(
        builders=2,
        build_timeout_seconds=60,
        run_timeout_seconds=30,
        memory_limit_bytes=2**30,
        check_share=0.5,
        remeasure_share=0.0,
        timing=timing,
    )
    search = SearchSettings(trials=trials, trials_per_round=3, population=8, generations=1)
    tasks = [Task(matmul("matmul", 64, 64, 64), 1), Task(matmul("other", 32, 64, 64), 2)]
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    tune(tasks, target, RandomModel(seed=0), search, LocalRunner(), settings, folder, 0, "random")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        tune_small(Path(sys.argv[1]), int(sys.argv[2]))
    except KernelcastError as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(error.exit_code)
