"""Measures a small campaign on devices of an RPC tracker, in a process of its own, to be killed: FOLDER PORT KEY."""

import sys
from pathlib import Path

from kernelcast.measurement.campaign import run_campaign
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.remote import RpcRunner
from kernelcast.measurement.settings import Cache, RunnerSettings, TimingSettings, Way
from kernelcast.measurement.workloads import conv2d, matmul
from kernelcast.tvm_compat import resolve_target


def remote_plan(directory: Path, port: int, key: str, run_timeout_seconds: float = 30) -> Plan:
    """Two workloads, batches of 3 so that several are begun and done at any moment; all is checked, some twice."""
    timing = TimingSettings(Way.rounds, Cache.warm, 3, 4, 4, 0.1, 1.0, 0.001)
    settings = RunnerSettings(2, 60, run_timeout_seconds, 2**30, 1.0, 0.25, timing)
    return Plan(
        directory=directory,
        workloads=[matmul("matmul", 32, 32, 32), conv2d("conv2d", 6, 6, 4, 8, 3, 1, 1)],
        target=resolve_target({"kind": "llvm", "num-cores": 1}),
        runner=RpcRunner("127.0.0.1", port, key, None, 600, 30, None),
        settings=settings,
        samples_per_workload=4,
        evolved_share=0.0,
        max_failure_share=0.9,
        seed=0,
    )


if __name__ == "__main__":
    run_campaign(remote_plan(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
