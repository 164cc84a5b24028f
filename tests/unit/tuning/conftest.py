"""What the tests of tuning share: one target, one server that forks workers, settings that are quick."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.host import cores_of_machine
from kernelcast.measurement.local import Bench, LocalDevice, LocalRunner, OpenLocalRunner, share_cores
from kernelcast.measurement.settings import Cache, RunnerSettings, TimingSettings, Way
from kernelcast.measurement.workloads import matmul
from kernelcast.tuning.search import SearchSettings
from kernelcast.tuning.tasks import Task
from kernelcast.tvm_compat import resolve_target

QUICK = RunnerSettings(
    builders=2,
    build_timeout_seconds=60,
    run_timeout_seconds=30,
    memory_limit_bytes=2**30,
    check_share=1.0,
    remeasure_share=0.0,
    timing=TimingSettings(
        way=Way.rounds,
        cache=Cache.warm,
        batch_size=8,
        least_rounds=3,
        most_rounds=3,
        uncertainty=0.1,
        budget_seconds=1.0,
        repeat_seconds=1e-4,
    ),
)

SMALL = SearchSettings(trials=6, trials_per_round=2, population=8, generations=1)


@dataclass(frozen=True)
class SharingRunner(LocalRunner):
    """This machine with the tests' one server: to start another one for every tuning takes seconds."""

    server: ForkServer | None = None

    @contextmanager
    def open(
        self, target: dict[str, Any], settings: RunnerSettings, seed: int, folder: Path
    ) -> Iterator[OpenLocalRunner]:
        assert self.server is not None
        timed, building = share_cores(cores_of_machine(), target["num-cores"], 1)
        bench = Bench(self.server, target, settings, seed, folder)
        device = LocalDevice("local", not set(timed[0]) & set(building), bench, timed[0])
        with device._reference.program:
            yield OpenLocalRunner([device], bench)


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
