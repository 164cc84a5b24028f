"""What the tests of measuring share: one target, one server, settings that are quick."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelcast.measurement.campaign import Plan
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.workloads import matmul
from kernelcast.records import Workload
from kernelcast.tvm_compat import resolve_target

SETTINGS = RunnerSettings(
    builders=2,
    build_timeout_seconds=60,
    run_timeout_seconds=30,
    batch_size=4,
    rounds=2,
    repeat_seconds=1e-4,
    memory_limit_bytes=2**30,
)


@pytest.fixture(scope="session")
def target() -> dict[str, Any]:
    return resolve_target({"kind": "llvm", "num-cores": 1})


@pytest.fixture(scope="session")
def small_matmul() -> Workload:
    return matmul("matmul_small", rows=16, columns=16, depth=16)


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer(threads=1) as running:
        yield running


@pytest.fixture
def settings() -> RunnerSettings:
    return SETTINGS


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `faulty_programs` of this folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import faulty_programs

    return faulty_programs


@pytest.fixture
def make_plan(tmp_path: Path, target: dict[str, Any], small_matmul: Workload) -> Callable[..., Plan]:
    """A plan of 4 programs; every part can be replaced by keyword, parts of the settings as well."""
    plan = Plan(tmp_path / "measurements", [small_matmul], target, SETTINGS, 4, 0.3, 0)

    def make(**changes: Any) -> Plan:
        of_settings = {key: changes.pop(key) for key in list(changes) if hasattr(SETTINGS, key)}
        return replace(plan, settings=replace(SETTINGS, **of_settings), **changes)

    return make
