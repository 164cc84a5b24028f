"""What the tests of tuning share: one target, one server that forks workers, settings that are quick."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.workloads import matmul
from kernelcast.tuning.search import SearchSettings
from kernelcast.tuning.tasks import Task
from kernelcast.tvm_compat import resolve_target
from tests.unit.measurement.conftest import SETTINGS, SharingRunner, with_settings

QUICK = with_settings(SETTINGS, batch_size=8, least_rounds=3, most_rounds=3)
# one thread: the same seed proposes the same programs
SMALL = SearchSettings(trials=6, trials_per_round=2, population=8, generations=1, threads=1)


@pytest.fixture(scope="session")
def target() -> dict[str, Any]:
    return resolve_target({"kind": "llvm", "num-cores": 1})


@pytest.fixture(scope="session")
def runner(target: dict[str, Any]) -> Iterator[SharingRunner]:
    with ForkServer(target) as server:
        yield SharingRunner(server=server)


@pytest.fixture
def settings() -> RunnerSettings:
    return QUICK


@pytest.fixture
def search() -> SearchSettings:
    return SMALL


@pytest.fixture(scope="session")
def task() -> Task:
    return Task(matmul("matmul_small", rows=64, columns=64, depth=64), weight=1)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `faulty_programs` of the measurement's tests."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "measurement"))
    import faulty_programs

    return faulty_programs
