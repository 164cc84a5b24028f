"""Where units are built: in processes of this machine, or on the machines of a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.tvm_compat import available_cores

logger = logging.getLogger(__name__)

Job = TypeVar("Job")
Result = TypeVar("Result")

UNITS_PER_PROCESS = 8
"""Fewer units than this for each process are not worth the seconds that it needs to load TVM."""

AHEAD = 2
"""Units handed out for each worker beside the one it works at: none waits, and few results lie in memory."""


class Builder(Protocol):
    """What `conf/builder` instantiates."""

    def run(self, build: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """Results with the numbers of their jobs as they come; an error of a job ends the run."""


@dataclass(frozen=True)
class Processes:
    """Processes of this machine.

    Attributes:
        workers: how many; None takes the cores that this process may use, and fewer where there is little to do.
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and (isinstance(self.workers, bool) or self.workers < 1):
            raise ConfigError(f"builder.workers={self.workers}: at least 1, or null for the cores of this machine")

    def run(self, build: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """Results as they come; with one worker in this process itself."""
        workers = self.workers or min(available_cores(), -(-len(jobs) // UNITS_PER_PROCESS))
        if workers <= 1:
            for number, job in enumerate(jobs):
                yield number, build(job)
            return
        # TVM and its threads do not survive a plain fork
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            try:
                yield from _in_turn(lambda job: pool.submit(build, job), _first_done, jobs, workers * (1 + AHEAD))
            except BrokenProcessPool as error:
                raise MalformedDataError(
                    "a process that built graphs died: a schedule crashes TVM, or the memory ran out; what was built "
                    "is kept: run the same command again, with fewer processes (builder.workers=1) if memory was short"
                ) from error
            except BaseException:
                # or leaving would wait for every unit
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@dataclass(frozen=True)
class Ray:
    """The machines of a Ray cluster, all with this kernelcast and this TVM installed.

    Attributes:
        address: of the cluster, as `ray.init` takes it (`auto`, `ray://HOST:10001`); None starts one on this machine.
        workers: units at once; None takes the cores of the cluster.
        cores_per_unit: cores that Ray reserves for a unit.
    """

    address: str | None = None
    workers: int | None = None
    cores_per_unit: float = 1.0

    def run(self, build: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """Results as they come; a unit whose machine is lost is built again elsewhere.

        Raises:
            ConfigError: Ray is not installed, or there is no cluster at the address.
        """
        ray = _ray()
        started = not ray.is_initialized()
        if started:
            try:
                ray.init(
                    address=self.address, log_to_driver=False, logging_level=logging.WARNING, include_dashboard=False
                )
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise ConfigError(
                    f"builder.address={self.address}: no Ray cluster answers ({reason}); start one with "
                    "`ray start --head`, or leave the address out to use this machine"
                ) from error
        try:
            cores = int(ray.cluster_resources().get("CPU", 1) / self.cores_per_unit)
            workers = self.workers or max(1, cores)
            logger.info("Ray: %d units at once on %d machines", workers, len(ray.nodes()))
            remote = ray.remote(num_cpus=self.cores_per_unit, max_retries=3)(build)

            def first_done(running: Sequence[Any]) -> tuple[Any, Any]:
                done = ray.wait(list(running), num_returns=1)[0][0]
                return done, ray.get(done)

            yield from _in_turn(remote.remote, first_done, jobs, workers * (1 + AHEAD))
        finally:
            if started:
                ray.shutdown()


def _in_turn(
    submit: Callable[[Job], Any],
    first_done: Callable[[Sequence[Any]], tuple[Any, Result]],
    jobs: Sequence[Job],
    at_once: int,
) -> Iterator[tuple[int, Result]]:
    """Hands jobs out a few at a time: memory holds the results of these alone, however many there are."""
    waiting = iter(enumerate(jobs))
    running: dict[Any, int] = {}
    while True:
        while len(running) < at_once and (entry := next(waiting, None)) is not None:
            running[submit(entry[1])] = entry[0]
        if not running:
            return
        done, result = first_done(tuple(running))
        yield running.pop(done), result


def _first_done(running: Sequence[Future[Result]]) -> tuple[Future[Result], Result]:
    done = next(iter(wait(running, return_when=FIRST_COMPLETED).done))
    return done, done.result()


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            "builder=ray needs Ray, which is not installed; install it with `pip install 'kernelcast[ray]'`, or build "
            "in processes of this machine: builder=processes"
        ) from error
