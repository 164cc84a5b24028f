import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError
from kernelcast.records import Workload
from kernelcast.stages.config import register_schemas
from kernelcast.stages.workloads import make_workloads
from kernelcast.tvm_compat import available_cores

ROOT = Path(__file__).resolve().parents[3]
FAULTY_PROGRAMS = ROOT / "tests" / "unit" / "measurement"


def composed(*overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("measure", list(overrides))


def measure(*overrides: str) -> "subprocess.CompletedProcess[str]":
    """`scripts/measure.py` as a user types it."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "measure.py"), *overrides],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(FAULTY_PROGRAMS)},
        check=False,
    )


@pytest.mark.parametrize("suite", ["default", "tiny"])
def test_every_workload_of_a_suite_can_be_made(suite: str) -> None:
    config = composed(f"workload={suite}")
    workloads = make_workloads(config.workload)
    assert len({workload.key for workload in workloads}) == len(workloads)
    assert [workload.name for workload in workloads] == list(config.workload)


def test_the_default_suite_has_two_workloads_of_each_of_eight_kinds() -> None:
    kinds = [workload.kind for workload in make_workloads(composed().workload)]
    assert len(set(kinds)) == 8
    assert all(kinds.count(kind) == 2 for kind in kinds)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"_target_": "kernelcast.measurement.workloads.softmax", "rows": 0, "columns": 2}, "rows must be a positive"),
        ({"_target_": "kernelcast.measurement.workloads.softmax", "rows": 3}, "columns"),
        ({"_target_": "kernelcast.measurement.workloads.softmax", "rows": 3, "columns": 2, "width": 1}, "width"),
        ({"_target_": "kernelcast.measurement.workloads.sofmax", "rows": 3}, "sofmax"),
        ({"_target_": "builtins.dict", "rows": 3}, "makes no workload but a dict"),
        ({"rows": 3}, "expected a `_target_`"),
        (3, "expected a `_target_`"),
    ],
)
def test_an_entry_that_makes_no_workload_is_refused(node: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        make_workloads(OmegaConf.create({"mine": node}))
    assert "mine" in str(refused.value)


def test_an_entry_makes_its_workload() -> None:
    node = {"_target_": "kernelcast.measurement.workloads.softmax", "rows": 3, "columns": 2}
    (workload,) = make_workloads(OmegaConf.create({"mine": node}))
    assert isinstance(workload, Workload)
    assert (workload.name, workload.arguments) == ("mine", {"rows": 3, "columns": 2})


def test_of_eight_programs_one_aborts_and_one_hangs_and_six_are_measured(tmp_path: Path) -> None:
    suite = [
        "~workload.conv2d_small",
        "~workload.softmax_small",
        "~workload.layer_norm_small",
        "+workload.aborts={_target_: faulty_programs.calling, function: abort}",
        "+workload.hangs={_target_: faulty_programs.calling, function: pause}",
    ]
    done = measure(
        "workload=tiny",
        "runner=quick",
        "target=llvm",
        "samples_per_workload=6",
        "evolved_share=0",
        "runner.remeasure_share=0",
        "runner.run_timeout_seconds=2",
        f"paths.root={tmp_path}",
        *suite,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = pq.read_table(tmp_path / "data" / "measurements" / "measurements.parquet").to_pylist()
    assert len(table) == 8
    reasons = {row["workload_name"]: (row["outcome"], row["message"]) for row in table}
    assert reasons["aborts"] == ("crash", "SIGABRT while running")
    assert reasons["hangs"] == ("run_timeout", "still running after 2 s; stopped")
    assert [row["outcome"] for row in table].count("measured") == 6
    printed = done.stdout + done.stderr
    # what the target did not say was filled in
    assert f"'num-cores': {available_cores()}" in printed
    assert re.search("8 of 8 programs, .*, 1 crash, 6 measured, 1 run_timeout", printed)
    assert str(tmp_path / "data" / "measurements" / "measurements.parquet") in printed.replace("\n", "")
    assert leftovers() == []


def test_a_probe_takes_one_program_through_every_step(tmp_path: Path) -> None:
    # TEN-01: one program, measured in this process
    done = measure("--probe", "workload=tiny", "runner=quick", f"paths.root={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    for step in ("import", "sample", "build", "run", "time", "worker"):
        assert f"{step}: " in done.stdout
    assert "every step works: matmul_small can be measured here" in done.stdout
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("program", "override", "says"),
    [
        ("not_a_number", "runner.build_timeout_seconds=0.001", "the step `build: the program, LLVM included` takes"),
        ("not_a_number", "seed=0", "the step `run: random inputs and a first call` fails"),
        (
            "large, length: 20000000",
            "runner.memory_limit_bytes=10000000",
            "the program ends as out_of_memory",
        ),
    ],
)
def test_a_probe_names_the_step_that_fails(tmp_path: Path, program: str, override: str, says: str) -> None:
    # TEN-01: which of build, load, run and time out fails
    others = [f"~workload.{name}_small" for name in ("matmul", "conv2d", "softmax", "layer_norm")]
    wrong = f"+workload.wrong={{_target_: faulty_programs.{program}}}"
    done = measure("--probe", "workload=tiny", "runner=quick", f"paths.root={tmp_path}", *others, wrong, override)
    assert done.returncode == 5, done.stdout + done.stderr
    assert says in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def leftovers() -> list[psutil.Process]:
    """Servers of measuring processes that are gone: their parent is init."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "ppid"])
        if "kernelcast.measurement.forkserver" in (process.info["cmdline"] or []) and process.info["ppid"] == 1
    ]


@pytest.mark.parametrize(
    ("overrides", "status", "says"),
    [
        (["target.num-cores=0"], 2, "target.num-cores must be a positive integer"),
        (["runner.timing.least_rounds=0"], 2, "runner.timing.least_rounds must be a positive integer"),
    ],
)
def test_a_value_that_cannot_work_ends_it_before_any_work(
    tmp_path: Path, overrides: list[str], status: int, says: str
) -> None:
    done = measure(*overrides, f"paths.root={tmp_path}")
    assert done.returncode == status
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / "data").exists()
