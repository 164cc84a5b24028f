"""Random schedules from MetaSchedule's own search space."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernelcast.errors import KernelcastError, MeasurementError
from kernelcast.records import Origin, Workload
from kernelcast.tvm_compat import make_target, parse_module, prepare_for, structural_key

logger = logging.getLogger(__name__)

DRAW_SIZE = 32
"""Traces drawn at once. Constant, so that asking for more programs begins with the same ones."""

PIECE = 256
"""Candidates that are sent and planned at once: seconds of work, so that a kill while many are drawn costs little."""

MOST_TRIALS = 2**31 - 1
"""TVM counts them in 32 bits."""

YIELD_WINDOW = 4
"""Draws in a row that are judged together."""

LEAST_YIELD = 0.05
"""Share of new programs among the traces of `YIELD_WINDOW` draws below which a space counts as exhausted. A small
space trickles its rarest programs for ever."""


@dataclass(frozen=True)
class Candidate:
    """One program to measure.

    Attributes:
        workload_key: the workload it computes.
        program_key: structural hash of the scheduled module.
        trace: the schedule trace as JSON, postprocessing included.
        origin: how it was found.
    """

    workload_key: str
    program_key: str
    trace: str
    origin: Origin = Origin.RANDOM


def sample_candidates(workload: Workload, target: dict[str, Any], count: int, seed: int) -> list[Candidate]:
    """The first `count` of `draw_candidates`."""
    return list(draw_candidates(workload, target, count, seed))


def draw_candidates(workload: Workload, target: dict[str, Any], count: int, seed: int) -> Iterator[Candidate]:
    """Up to `count` distinct programs of one workload, drawn at random.

    The space is MetaSchedule's post-order-apply with the design rules and postprocessors of the target; each draw
    replays one of its sketches with fresh random decisions (`ReplayTrace`). The same arguments give the same programs,
    and a larger `count` begins with the programs of a smaller one. Programs are distinct by structural hash, and so
    are their traces; a space with fewer than `count` is taken as far as it yields.

    Raises:
        MeasurementError: TVM cannot schedule this workload for this target.
    """
    seen: set[str] = set()
    found: deque[int] = deque(maxlen=YIELD_WINDOW)
    for draw in _draws(workload, target, count, seed):
        before = len(seen)
        for schedule in draw:
            candidate = candidate_of(workload, schedule, Origin.RANDOM)
            if candidate.program_key not in seen and len(seen) < count:
                seen.add(candidate.program_key)
                yield candidate
        found.append(len(seen) - before)
        if len(seen) >= count:
            return
        if len(found) == YIELD_WINDOW and sum(found) < LEAST_YIELD * YIELD_WINDOW * DRAW_SIZE:
            # a reshape or another elementwise kernel has one schedule, which is as it should be
            logger.log(
                logging.DEBUG if len(seen) == 1 else logging.INFO,
                "workload %s: only %d of %d programs: the last %d schedules drawn held %d new ones",
                workload.name, len(seen), count, YIELD_WINDOW * DRAW_SIZE, sum(found),
            )  # fmt: skip
            break
    if count and not seen:
        raise MeasurementError(
            f"workload {workload.name}: none of TVM's schedules for {target} passes its own checks; "
            "leave the workload out, or measure it for another target"
        )


def candidate_of(workload: Workload, schedule: Any, origin: Origin) -> Candidate:
    """The candidate that a finished TVM schedule is."""
    return Candidate(workload.key, structural_key(schedule.mod), trace_json(schedule), origin)


def trace_json(schedule: Any) -> str:
    """The trace of a TVM schedule as JSON, which `tvm_compat.replayed_schedule` applies."""
    # decisions hold TVM's boxed numbers (IntImm, FloatImm), which JSON reads back as plain ones
    return json.dumps(schedule.trace.as_json(), default=lambda boxed: boxed.value, separators=(",", ":"))


def tune_context(workload: Workload, target: dict[str, Any], seed: int, strategy: Any, threads: int = 1) -> Any:
    """A MetaSchedule context of a fixed random state.

    Args:
        workload: the unscheduled module.
        target: complete.
        seed: together with the workload it decides every draw.
        strategy: a search strategy of TVM's, or its name.
        threads: that the search takes; with more than one, which of them makes which program is chance.
    """
    prepare_for(target)
    from tvm.s_tir import meta_schedule

    return meta_schedule.TuneContext(
        mod=parse_module(workload.module),
        target=make_target(target),
        space_generator="post-order-apply",
        search_strategy=strategy,
        task_name=workload.name,
        rand_state=random_state(workload, seed),
        num_threads=threads,
        logger=_quiet_logger(),
    )


@contextmanager
def named_failure(workload: Workload, target: dict[str, Any]) -> Iterator[None]:
    """Has whatever TVM throws say which workload it was about.

    Raises:
        MeasurementError: with TVM's first line.
    """
    try:
        yield
    except KernelcastError:
        raise
    except Exception as error:  # InternalError, ScheduleError, ValueError: rules and postprocessors throw anything
        reason = (str(error).strip().splitlines() or [""])[0]
        raise MeasurementError(
            f"workload {workload.name}: TVM cannot schedule it for {target}: {type(error).__name__}: {reason}; "
            "leave the workload out, or measure it for another target"
        ) from error


def _draws(workload: Workload, target: dict[str, Any], count: int, seed: int) -> Iterator[list[Any]]:
    with named_failure(workload, target):
        context = tune_context(workload, target, seed, "replay-trace")
        context.pre_tuning(
            # more than are ever drawn: each window of draws yields new programs or is the last
            max_trials=min(DRAW_SIZE * (count + YIELD_WINDOW), MOST_TRIALS),
            num_trials_per_iter=DRAW_SIZE,
            design_spaces=context.generate_design_space(),
        )
        drawn = context.generate_measure_candidates()
    while drawn:
        yield [candidate.sch for candidate in drawn]
        with named_failure(workload, target):
            context.notify_runner_results(drawn, [])
            drawn = context.generate_measure_candidates()


def _quiet_logger() -> logging.Logger:
    # for every workload MetaSchedule says that it has no intrinsic to tensorize with, and counts failed mutations
    quiet = logging.getLogger(f"{__name__}.tvm")
    quiet.setLevel(logging.ERROR)
    return quiet


def random_state(workload: Workload, seed: int) -> int:
    """A state for this workload and seed in TVM's range, 1 to 2^31 - 1."""
    digest = hashlib.sha256(f"{seed} {workload.key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (2**31 - 1) + 1
