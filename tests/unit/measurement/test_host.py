import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from kernelcast.measurement import host as host_module
from kernelcast.measurement.host import (
    PRIVATE_CACHE_BYTES,
    cores_of_machine,
    cpu_identity,
    flush_bytes,
    peak_flops_per_second,
    private_cache_bytes,
    probe_host,
)
from kernelcast.tvm_compat import available_cores


def test_this_machine_is_described(target: dict[str, Any]) -> None:
    host = probe_host(target)
    assert host.cpu == cpu_identity()
    assert "\n" not in host.cpu
    assert host.cores >= 1
    assert host.memory_bytes > 2**28
    # no machine that runs TVM is slower than this, and none of today is faster
    assert 1e8 < host.peak_flops_per_second < 1e15
    assert 1e8 < host.bytes_per_second < 1e13
    assert host.vector_lanes in (4, 8, 16)
    assert host.cache_bytes >= 2**15


def test_the_peak_is_that_of_all_cores_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def watched(work: Callable[[], object]) -> float:
        threads.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        work()
        return 1.0

    monkeypatch.setattr(host_module, "_best_seconds", watched)
    # as OMP_NUM_THREADS=1 does
    with threadpool_limits(1, user_api="blas"):
        peak_flops_per_second()
    assert set(threads) == {available_cores()}


def write_caches(cpu: Path, siblings: str, caches: list[tuple[int, str, str, str]]) -> None:
    (cpu / "topology").mkdir(parents=True)
    (cpu / "topology" / "thread_siblings_list").write_text(siblings + "\n")
    for number, values in enumerate(caches):
        folder = cpu / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
            (folder / name).write_text(f"{value}\n")


@pytest.mark.parametrize(
    ("siblings", "caches", "expected"),
    [
        ("0", [(1, "Data", "32K", "0"), (1, "Instruction", "64K", "0"), (2, "Unified", "1M", "0")], 2**20),
        ("0,8", [(1, "Data", "48K", "0,8"), (2, "Unified", "2048K", "0,8"), (3, "Unified", "32M", "0-15")], 2**21),
        ("0", [(1, "Data", "32K", "0"), (2, "Unified", "4M", "0-3")], 2**15),
        ("0", [(1, "Data", "32K", "0-3")], PRIVATE_CACHE_BYTES),
    ],
)
def test_the_private_cache_is_the_last_that_is_not_shared(
    tmp_path: Path, siblings: str, caches: list[tuple[int, str, str, str]], expected: int
) -> None:
    write_caches(tmp_path, siblings, caches)
    assert private_cache_bytes(tmp_path) == expected


def test_every_core_of_this_process_is_in_one_physical_core() -> None:
    groups = cores_of_machine()
    assert sorted(core for group in groups for core in group) == sorted(os.sched_getaffinity(0))
    assert groups == sorted(sorted(group) for group in groups)


def test_a_process_that_may_use_less_counts_less() -> None:
    # the affinity belongs to the thread that sets it
    def of_one_core(core: int) -> list[list[int]]:
        os.sched_setaffinity(0, {core})
        return cores_of_machine()

    core = max(os.sched_getaffinity(0))
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(of_one_core, core).result() == [[core]]


def test_what_is_flushed_is_more_than_the_caches_hold(target: dict[str, Any]) -> None:
    assert flush_bytes(target) >= 2 * private_cache_bytes(Path("/sys/devices/system/cpu/cpu0"))


def test_a_system_that_does_not_tell_gets_a_common_size(tmp_path: Path) -> None:
    assert private_cache_bytes(tmp_path) == PRIVATE_CACHE_BYTES
