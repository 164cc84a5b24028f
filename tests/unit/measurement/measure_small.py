"""Measures a small campaign in a process of its own, to be stopped: FOLDER SAMPLES CORES EVOLVED_SHARE."""

import logging
import sys
from pathlib import Path

from kernelcast.errors import KernelcastError
from kernelcast.measurement.campaign import run_campaign
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.settings import Cache, RunnerSettings, TimingSettings, Way
from kernelcast.measurement.workloads import conv2d, matmul
from kernelcast.tvm_compat import resolve_target

ROUNDS = 4


def small_plan(directory: Path, samples: int, cores: int = 1, evolved_share: float = 0.0) -> Plan:
    """Two workloads, batches of 3 so that several are begun and done at any moment, half of all measured again."""
    timing = TimingSettings(
        way=Way.rounds,
        cache=Cache.warm,
        batch_size=3,
        least_rounds=ROUNDS,
        most_rounds=ROUNDS,
        uncertainty=0.1,
        budget_seconds=10.0,
        repeat_seconds=0.02,
    )
    settings = RunnerSettings(
        builders=2,
        build_timeout_seconds=60,
        run_timeout_seconds=30,
        memory_limit_bytes=2**30,
        check_share=0.5,
        remeasure_share=0.5,
        timing=timing,
    )
    return Plan(
        directory=directory,
        workloads=[matmul("matmul", 16, 16, 16), conv2d("conv2d", 6, 6, 4, 8, 3, 1, 1)],
        target=resolve_target({"kind": "llvm", "num-cores": cores}),
        runner=LocalRunner(),
        settings=settings,
        samples_per_workload=samples,
        evolved_share=evolved_share,
        max_failure_share=0.3,
        seed=0,
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    folder, samples, cores, evolved_share = sys.argv[1:]
    try:
        run_campaign(small_plan(Path(folder), int(samples), int(cores), float(evolved_share)))
    except KernelcastError as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(error.exit_code)
