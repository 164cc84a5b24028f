import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import MalformedDataError, MeasurementError
from kernelcast.files import only_process
from kernelcast.machine import Calibration, Host, MemoryLevel
from kernelcast.measurement.calibrated_folder import calibrate_folder, main
from kernelcast.measurement.calibration import BEYOND, LARGEST_BYTES, block_bytes, calibrate
from kernelcast.measurement.host import caches_of, cores_of_machine
from kernelcast.measurement.workloads import matmul
from kernelcast.records import CAMPAIGN_FILE, MEASUREMENTS_VERSION, Campaign, read_campaign, write_campaign

KIB = 1024
CALIBRATION = Calibration(
    (MemoryLevel(32 * KIB, 1, 1e11, 2e11), MemoryLevel(None, 2, 1e10, 1e10)), 1e11, 1e10, 1e9, 0, 0
)


@pytest.fixture
def folder(tmp_path: Path, target: dict[str, Any]) -> Path:
    """A campaign of this machine, as it was written before there were calibrations."""
    from kernelcast.measurement.host import cpu_identity

    host = Host(cpu_identity(), 2, 2**34, "a system", 1e11, 1e10, 8, 2**20)
    campaign = Campaign(MEASUREMENTS_VERSION, target, host, {}, {}, 0)
    workload = matmul("matmul_small", rows=16, columns=16, depth=16)
    write_campaign(tmp_path / "measured", campaign, {workload.key: workload})
    path = tmp_path / "measured" / CAMPAIGN_FILE
    raw = json.loads(path.read_text())
    del raw["host"]["calibration"]
    path.write_text(json.dumps(raw))
    return tmp_path / "measured"


@pytest.mark.parametrize("cores", [1, 2])
def test_this_machine_gets_figures_that_a_processor_can_have(target: dict[str, Any], cores: int) -> None:
    affinity = os.sched_getaffinity(0)
    found = calibrate({**target, "num-cores": cores}, cores_of_machine(), [(32 * KIB, 1), (512 * KIB, 1)])
    assert os.sched_getaffinity(0) == affinity
    assert [level.size_bytes for level in found.levels] == [32 * KIB, 512 * KIB, None]
    for level in found.levels:
        assert 1e8 < level.core_bytes_per_second < 1e13
        assert level.core_bytes_per_second <= level.bytes_per_second
    assert 1e8 < found.scalar_flops_per_second < 1e12
    assert 1e8 < found.vector_flops_per_second < 1e13
    # an addition that waits for the last one, and one that does not: no processor is so fast that both are the same
    assert found.chained_flops_per_second < found.scalar_flops_per_second
    assert 0 < found.call_seconds < 1e-3
    assert 0 <= found.parallel_start_seconds < 0.1


def test_blocks_fit_into_their_level_and_not_into_the_one_before() -> None:
    caches = [(32 * KIB, 1), (1024 * KIB, 1), (32768 * KIB, 8)]
    for threads in (1, 2, 8, 64):
        blocks = block_bytes(caches, threads)
        shares = [size / min(threads, sharing) for size, sharing in caches]
        assert blocks[0] == shares[0] / 2
        for number in (1, 2):
            assert shares[number - 1] < blocks[number] < shares[number]
        assert threads * blocks[-1] == pytest.approx(BEYOND * 32768 * KIB, rel=1e-3)
    assert block_bytes([(2**30, 1)], 1)[-1] == LARGEST_BYTES


@pytest.mark.parametrize(
    ("siblings", "shared", "expected"),
    [
        ("0", ["0", "0", "0-3"], [(32 * KIB, 1), (1024 * KIB, 1), (32768 * KIB, 4)]),
        # two hardware threads a core
        ("0,8", ["0,8", "0,8", "0-15"], [(32 * KIB, 1), (1024 * KIB, 1), (32768 * KIB, 8)]),
        ("0-1", ["0-1", "0-3", "0-3,8-11"], [(32 * KIB, 1), (1024 * KIB, 2), (32768 * KIB, 4)]),
    ],
)
def test_caches_are_those_that_the_system_tells_of(
    tmp_path: Path, siblings: str, shared: list[str], expected: list[tuple[int, int]]
) -> None:
    (tmp_path / "topology").mkdir()
    (tmp_path / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
    sizes = [(3, "Unified", "32M", shared[2]), (1, "Data", "32K", shared[0]), (1, "Instruction", "64K", shared[0])]
    for number, values in enumerate([*sizes, (2, "Unified", "1024K", shared[1])]):
        cache = tmp_path / "cache" / f"index{number}"
        cache.mkdir(parents=True)
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
            (cache / name).write_text(f"{value}\n")
    assert caches_of(tmp_path) == expected
    shutil.rmtree(tmp_path / "cache")
    assert caches_of(tmp_path) == []
    assert caches_of(tmp_path / "absent") == []


def test_a_campaign_of_before_is_read_without_and_gets_a_calibration(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, workloads = read_campaign(folder)
    assert before.host is not None
    assert before.host.calibration is None
    assert main([str(folder)]) == 0
    assert "main memory" in capsys.readouterr().out
    after, same = read_campaign(folder)
    assert after.host is not None
    assert after.host.calibration is not None
    assert same == workloads
    assert dataclasses.replace(after, host=dataclasses.replace(after.host, calibration=None)) == before


def test_the_caches_of_another_machine_are_not_taken_for_those_of_this_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign, workloads = read_campaign(folder)
    assert campaign.host is not None
    others: list[Campaign] = [
        dataclasses.replace(campaign, host=dataclasses.replace(campaign.host, cpu="another one")),
        dataclasses.replace(campaign, host=None),
        dataclasses.replace(campaign, target={"kind": "cuda"}),
    ]
    for other in others:
        write_campaign(folder, other, workloads)
        assert main([str(folder)]) == MeasurementError.exit_code
        assert "on the machine that measured" in capsys.readouterr().err
        assert read_campaign(folder)[0] == other


def test_nothing_is_measured_beside_a_campaign(folder: Path) -> None:
    with only_process(folder, MeasurementError("taken")), pytest.raises(MeasurementError, match="wait for its end"):
        calibrate_folder(folder)


def test_a_calibration_is_read_as_it_was_written() -> None:
    raw = json.loads(json.dumps(dataclasses.asdict(CALIBRATION)))
    assert Calibration.from_json(raw) == CALIBRATION
    assert Calibration.from_json(None) is None


@pytest.mark.parametrize(
    "change",
    [
        {"levels": []},
        {"levels": [{"size_bytes": 1}]},
        {"levels": None},
        {"vector_flops_per_second": 0},
        {"scalar_flops_per_second": "fast"},
        {"call_seconds": -1.0},
        {"speed": 1.0},
    ],
)
def test_a_torn_calibration_is_refused(folder: Path, change: dict[str, Any]) -> None:
    path = folder / CAMPAIGN_FILE
    raw = json.loads(path.read_text())
    raw["host"]["calibration"] = {**dataclasses.asdict(CALIBRATION), **change}
    path.write_text(json.dumps(raw))
    with pytest.raises(MalformedDataError, match="is not what `measure` writes"):
        read_campaign(folder)
