"""What the tests of measuring share: one target, one server, settings that are quick."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from kernelcast.machine import Host
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.host import cores_of_machine, probe_host
from kernelcast.measurement.local import Bench, LocalDevice, LocalRunner, OpenLocalRunner, share_cores
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.settings import Cache, RunnerSettings, TimingSettings, Way
from kernelcast.measurement.workloads import matmul
from kernelcast.records import Workload
from kernelcast.tvm_compat import resolve_target

SETTINGS = RunnerSettings(
    builders=2,
    build_timeout_seconds=60,
    run_timeout_seconds=30,
    memory_limit_bytes=2**30,
    check_share=1.0,
    remeasure_share=0.0,
    timing=TimingSettings(
        way=Way.rounds,
        cache=Cache.warm,
        batch_size=4,
        least_rounds=2,
        most_rounds=2,
        uncertainty=0.1,
        budget_seconds=1.0,
        repeat_seconds=1e-4,
    ),
)


def with_settings(settings: RunnerSettings, **changes: Any) -> RunnerSettings:
    """Settings with some values replaced, those of the timing as well."""
    of_timing = {key: changes.pop(key) for key in list(changes) if hasattr(settings.timing, key)}
    return replace(settings, timing=replace(settings.timing, **of_timing), **changes)


@pytest.fixture(scope="session")
def target() -> dict[str, Any]:
    return resolve_target({"kind": "llvm", "num-cores": 1})


@pytest.fixture(scope="session")
def small_matmul() -> Workload:
    return matmul("matmul_small", rows=16, columns=16, depth=16)


@pytest.fixture(scope="session")
def server(target: dict[str, Any]) -> Iterator[ForkServer]:
    with ForkServer(target) as running:
        yield running


@pytest.fixture
def settings() -> RunnerSettings:
    return SETTINGS


@pytest.fixture
def make_settings() -> Callable[..., RunnerSettings]:
    """The quick settings with some values replaced by keyword, those of the timing as well."""

    def make(**changes: Any) -> RunnerSettings:
        return with_settings(SETTINGS, **changes)

    return make


@pytest.fixture
def make_bench(server: ForkServer, target: dict[str, Any], tmp_path: Path) -> Callable[..., Bench]:
    """What devices of this machine share, on the tests' one server; settings can be replaced by keyword."""

    def make(**changes: Any) -> Bench:
        return Bench(server, target, with_settings(SETTINGS, **changes), 0, tmp_path)

    return make


@pytest.fixture
def make_device(make_bench: Callable[..., Bench]) -> Iterator[Callable[..., LocalDevice]]:
    """A device on the tests' one server, with these cores (none: any) and settings."""
    devices: list[LocalDevice] = []

    def make(cores: tuple[int, ...] = (), **changes: Any) -> LocalDevice:
        devices.append(LocalDevice("local", True, make_bench(**changes), cores))
        return devices[-1]

    yield make
    for device in devices:
        # a runner ends its server, and all with it
        device._reference.program.close()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `faulty_programs` of this folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import faulty_programs

    return faulty_programs


@lru_cache(maxsize=1)
def this_host(target: str) -> Host:
    """This machine, looked at once."""
    return probe_host(json.loads(target))


@dataclass(frozen=True)
class SharingRunner(LocalRunner):
    """This machine with the tests' one server: to start another one for every campaign takes seconds."""

    server: ForkServer | None = None

    def host(self, target: dict[str, Any]) -> Host:
        return this_host(json.dumps(target))

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


@pytest.fixture
def make_plan(
    tmp_path: Path, target: dict[str, Any], small_matmul: Workload, server: ForkServer
) -> Callable[..., Plan]:
    """A plan of 4 programs on the tests' one server; every part can be replaced by keyword, also of the settings."""
    plan = Plan(
        directory=tmp_path / "measurements",
        workloads=[small_matmul],
        target=target,
        runner=SharingRunner(server=server),
        settings=SETTINGS,
        samples_per_workload=4,
        evolved_share=0.0,
        max_failure_share=0.3,
        seed=0,
    )

    def make(**changes: Any) -> Plan:
        of_plan = {key: changes.pop(key) for key in list(changes) if hasattr(plan, key)}
        return replace(plan, **{"settings": with_settings(SETTINGS, **changes), **of_plan})

    return make
