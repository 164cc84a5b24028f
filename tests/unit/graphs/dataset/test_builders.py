import os
import time

import pytest

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.dataset.builders import Processes, Ray


def doubled(job: int) -> tuple[int, int]:
    # later jobs first, so that results come out of order
    time.sleep(0.01 * (5 - job % 5))
    return 2 * job, os.getpid()


def killed(job: int) -> int:
    if job == 3:
        os._exit(1)
    return job


def refused(job: int) -> int:
    raise MalformedDataError(f"job {job} is bad")


def test_one_worker_builds_in_this_process() -> None:
    results = dict(Processes(1).run(doubled, range(4)))
    assert results == {job: (2 * job, os.getpid()) for job in range(4)}


def test_every_job_has_its_result_whatever_the_order() -> None:
    results = dict(Processes(2).run(doubled, range(20)))
    assert {job: value for job, (value, _) in results.items()} == {job: 2 * job for job in range(20)}
    assert os.getpid() not in {pid for _, pid in results.values()}


def test_nothing_to_do_is_no_error() -> None:
    assert list(Processes().run(doubled, ())) == []
    assert list(Processes(2).run(doubled, ())) == []


def test_a_process_that_dies_ends_the_build_with_what_to_do() -> None:
    with pytest.raises(MalformedDataError, match=r"a process that built graphs died.*run the same command again"):
        list(Processes(2).run(killed, range(10)))


def test_an_error_of_a_job_comes_out_as_it_is() -> None:
    with pytest.raises(MalformedDataError, match="job 0 is bad"):
        list(Processes(2).run(refused, [0]))


@pytest.mark.parametrize("workers", [0, -1, True])
def test_impossible_numbers_of_workers_are_refused(workers: int) -> None:
    with pytest.raises(ConfigError, match=r"builder\.workers"):
        Processes(workers)


@pytest.mark.slow
def test_a_cluster_gives_the_same_results_as_processes() -> None:
    # a real one of this machine
    results = dict(Ray(workers=2).run(doubled, range(12)))
    assert {job: value for job, (value, _) in results.items()} == {job: 2 * job for job in range(12)}
    assert os.getpid() not in {pid for _, pid in results.values()}


def test_a_cluster_that_does_not_answer_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"builder\.address=auto: no Ray cluster answers.*ray start --head"):
        list(Ray(address="auto").run(doubled, range(2)))
