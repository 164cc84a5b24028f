"""Tunings whose programs run on devices behind a real RPC tracker."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelcast.measurement.journal import JOURNAL_FILE
from kernelcast.measurement.remote import RpcRunner
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.tuning.choices import Strategy
from kernelcast.tuning.running import measuring_bench
from kernelcast.tuning.search import SearchSettings
from kernelcast.tuning.session import MEASURED_FOLDER, tune
from kernelcast.tuning.tasks import Task
from tests.unit.measurement.lab import Lab, kill
from tests.unit.tuning.test_running import tuned_by_tvm

KEY = "board"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)


@pytest.fixture
def devices(lab: Lab) -> RpcRunner:
    return RpcRunner("127.0.0.1", lab.port, KEY, None, 600, 30, None)


def test_a_device_that_dies_costs_a_tuning_no_trial(
    tmp_path: Path,
    lab: Lab,
    devices: RpcRunner,
    task: Task,
    target: dict[str, Any],
    search: SearchSettings,
    settings: RunnerSettings,
) -> None:
    _, dying = lab.start(KEY, 2)
    journal = tmp_path / MEASURED_FOLDER / JOURNAL_FILE

    def kill_one() -> None:
        while not journal.exists() or '"event": "repeat"' not in journal.read_text():
            time.sleep(0.01)
        kill(dying)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    wanted = replace(search, trials=12, trials_per_round=4, strategy=Strategy.replay_trace)
    table = tune([task], target, None, wanted, devices, settings, tmp_path, 0, "random")
    killer.join(timeout=10)
    assert not killer.is_alive(), "it was killed while the tuning ran"
    rows = table.to_pylist()
    assert [row["outcome"] for row in rows] == ["measured"] * 12
    assert len({row["program_key"] for row in rows}) == 12
    assert all(0 < row["run_seconds"] < 1 for row in rows)


def test_tvms_own_search_measures_on_devices(
    tmp_path: Path, lab: Lab, devices: RpcRunner, task: Task, target: dict[str, Any], settings: RunnerSettings
) -> None:
    lab.start("other", 1)
    with measuring_bench(target, replace(devices, key="other"), settings, tmp_path / "measured") as bench:
        database = tuned_by_tvm(tmp_path, task.workload, target, bench, 4)
    labels = [float(seconds) for record in database.get_all_tuning_records() for seconds in record.run_secs]
    assert len(labels) == 4
    assert all(0 < seconds < 1 for seconds in labels)
