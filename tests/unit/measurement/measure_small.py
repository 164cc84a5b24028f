"""Measures a small campaign in a process of its own, to be killed: FOLDER SAMPLES."""

import logging
import sys
from pathlib import Path

from kernelcast.errors import KernelcastError
from kernelcast.measurement.campaign import Plan, run_campaign
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.workloads import conv2d, matmul
from kernelcast.tvm_compat import resolve_target


def small_plan(directory: Path, samples: int) -> Plan:
    """Two workloads, batches of 3 so that several are begun and done at any moment."""
    settings = RunnerSettings(
        builders=2,
        build_timeout_seconds=60,
        run_timeout_seconds=30,
        batch_size=3,
        rounds=4,
        repeat_seconds=0.005,
        memory_limit_bytes=2**30,
    )
    workloads = [matmul("matmul", 16, 16, 16), conv2d("conv2d", 6, 6, 4, 8, 3, 1, 1)]
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    return Plan(directory, workloads, target, settings, samples, 0.3, seed=0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        run_campaign(small_plan(Path(sys.argv[1]), int(sys.argv[2])))
    except KernelcastError as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(error.exit_code)
