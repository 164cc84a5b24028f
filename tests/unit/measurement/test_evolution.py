import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.measurement.evolution import RANDOM_SHARE, evolve_candidates
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.measurement.workloads import matmul
from kernelcast.records import Origin, Workload
from kernelcast.tvm_compat import resolve_target, scheduled_module, structural_key

WORKER = """
import json, os, sys, tempfile
from kernelcast.measurement.evolution import evolve_candidates, load_xgboost
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.workloads import matmul
from kernelcast.tvm_compat import load_tvm
load_tvm()
load_xgboost()
threads = len(os.listdir("/proc/self/task"))
if os.fork() == 0:
    target = {"kind": "llvm", "num-cores": 1}
    workload = matmul("matmul", 32, 32, 32)
    measured = [(each.trace, 1e-3 * (1 + i % 5)) for i, each in enumerate(sample_candidates(workload, target, 10, 0))]
    found = [each.program_key for each in evolve_candidates(workload, target, 6, 0, measured)]
    heavy = [name for name in ("torch", "sklearn", "pandas", "tvm.s_tir.tensor_intrin.cuda") if name in sys.modules]
    started = len(os.listdir("/proc/self/task"))
    print(json.dumps({"found": found, "heavy": heavy, "files": os.listdir(tempfile.gettempdir()), "threads": started}))
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""


def unrolling(workload: Workload, candidate: Candidate) -> bool:
    """Whether a program unrolls explicitly: a property that a search can be led towards."""
    return "pragma_unroll_explicit" in scheduled_module(workload, candidate.trace).script()


@pytest.fixture(scope="module")
def workload() -> Workload:
    return matmul("matmul", 64, 64, 64)


@pytest.fixture(scope="module")
def sampled(workload: Workload, target: dict[str, Any]) -> list[Candidate]:
    return sample_candidates(workload, target, 24, seed=0)


@pytest.fixture(scope="module")
def measured(workload: Workload, sampled: list[Candidate]) -> list[tuple[str, float]]:
    # a made-up machine on which explicit unrolling is ten times as fast
    return [(each.trace, 1e-4 if unrolling(workload, each) else 1e-3) for each in sampled]


@pytest.fixture(scope="module")
def evolved(workload: Workload, target: dict[str, Any], measured: list[tuple[str, float]]) -> list[Candidate]:
    return evolve_candidates(workload, target, 20, 1, measured)


def test_evolved_programs_are_new_distinct_and_what_their_traces_make(
    workload: Workload, sampled: list[Candidate], evolved: list[Candidate]
) -> None:
    assert len(evolved) == 20
    keys = {each.program_key for each in evolved}
    assert len(keys) == 20
    assert not keys & {each.program_key for each in sampled}
    assert all(each.origin is Origin.EVOLVED for each in evolved)
    for each in evolved[:3]:
        assert structural_key(scheduled_module(workload, each.trace)) == each.program_key


def test_the_search_goes_where_measured_programs_are_fast(
    workload: Workload, sampled: list[Candidate], evolved: list[Candidate]
) -> None:
    share = np.mean([unrolling(workload, each) for each in evolved])
    assert share > np.mean([unrolling(workload, each) for each in sampled])
    assert share >= 1 - 3 * RANDOM_SHARE


def test_the_same_arguments_give_the_same_programs_and_leave_numpy_alone(
    workload: Workload, target: dict[str, Any], measured: list[tuple[str, float]], evolved: list[Candidate]
) -> None:
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    assert evolve_candidates(workload, target, 20, 1, measured) == evolved
    assert np.random.random() == expected  # noqa: NPY002


@pytest.mark.parametrize("known", [0, 2])
def test_few_or_no_measured_programs_are_enough(
    workload: Workload, target: dict[str, Any], measured: list[tuple[str, float]], known: int
) -> None:
    one = evolve_candidates(workload, target, 5, 1, measured[:known])
    assert len(one) == 5
    assert evolve_candidates(workload, target, 5, 1, measured[:known]) == one


def test_a_small_space_gives_what_it_has(faulty: Any, target: dict[str, Any]) -> None:
    workload = faulty.large("copy", 1)
    all_of_it = sample_candidates(workload, target, 50, seed=0)
    evolved = evolve_candidates(workload, target, 50, 0, [(each.trace, 1e-3) for each in all_of_it])
    assert len(evolved) < 50
    assert not {each.program_key for each in evolved} & {each.program_key for each in all_of_it}


def test_what_is_no_trace_of_the_workload_is_refused(workload: Workload, target: dict[str, Any]) -> None:
    with pytest.raises(MalformedDataError, match="workload matmul"):
        evolve_candidates(workload, target, 4, 0, [("[]", 1e-3)])


def test_schedules_for_a_gpu_evolve_too(workload: Workload) -> None:
    target = resolve_target({"kind": "cuda", "arch": "sm_90"})
    sampled = sample_candidates(workload, target, 3, seed=0)
    evolved = evolve_candidates(workload, target, 4, 0, [(each.trace, 1e-3) for each in sampled])
    assert len(evolved) == 4
    assert all("threadIdx.x" in scheduled_module(workload, each.trace).script() for each in evolved)


def test_a_forked_worker_evolves_without_noise_files_threads_or_heavy_imports(tmp_path: Any) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True, env=environment)
        for _ in range(2)
    ]
    said = [json.loads(run.stdout) for run in runs]
    assert said[0] == said[1]
    assert len(said[0]["found"]) == 6
    assert said[0]["heavy"] == []
    assert said[0]["files"] == []
    assert runs[0].stderr == ""
