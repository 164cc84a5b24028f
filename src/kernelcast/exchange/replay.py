"""Applies schedule traces to find out which programs they make, over as many processes as pay."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.records import Workload
from kernelcast.tvm_compat import available_cores, prepare_for, scheduled_module, structural_key

CHUNK_TRACES = 64
"""Traces that one process applies at a time."""

TRACES_PER_WORKER = 512
"""Fewer than this many are not worth the seconds that another process needs to load TVM."""


@dataclass(frozen=True)
class Replayed:
    """What a trace makes.

    Attributes:
        program_key: structural hash of the program; empty where the trace does not apply.
        fault: why it does not apply.
    """

    program_key: str
    fault: str = ""


def replay(
    jobs: Sequence[tuple[Workload, str]], target: dict[str, Any], progress: Callable[[int, int], None]
) -> list[Replayed]:
    """What each trace makes of its workload, in the order of `jobs`.

    Args:
        jobs: workloads and traces.
        target: what the traces are for; they may name tensor intrinsics of its kind.
        progress: called with traces done and in all.
    """
    done: dict[int, list[Replayed]] = {}
    chunks = [jobs[start : start + CHUNK_TRACES] for start in range(0, len(jobs), CHUNK_TRACES)]
    finished = 0
    for number, replayed in _run(chunks, partial(prepare_for, target)):
        done[number] = replayed
        finished += len(replayed)
        progress(finished, len(jobs))
    return [one for number in range(len(chunks)) for one in done[number]]


def _run(
    chunks: Sequence[Sequence[tuple[Workload, str]]], prepare: Callable[[], None]
) -> Iterator[tuple[int, list[Replayed]]]:
    workers = min(available_cores(), math.ceil(sum(map(len, chunks)) / TRACES_PER_WORKER))
    if workers <= 1:
        prepare()
        for number, chunk in enumerate(chunks):
            yield number, _replay_chunk(chunk)
        return
    # TVM and its threads do not survive a plain fork
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=prepare) as pool:
        futures = {pool.submit(_replay_chunk, chunk): number for number, chunk in enumerate(chunks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise MalformedDataError(
                "a process that applied traces died: one of them crashes TVM, or the memory ran out; import a part of "
                "the database, or give it more memory"
            ) from error
        except BaseException:
            # or leaving would wait for every chunk
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _replay_chunk(chunk: Sequence[tuple[Workload, str]]) -> list[Replayed]:
    replayed = []
    for workload, trace in chunk:
        try:
            replayed.append(Replayed(structural_key(scheduled_module(workload, trace))))
        except MalformedDataError as error:
            replayed.append(Replayed("", str(error)))
    return replayed
