"""Random schedules from MetaSchedule's own search space."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, parse_module, structural_key

logger = logging.getLogger(__name__)

DRAW_SIZE = 32
"""Traces drawn at once. Constant, so that asking for more programs begins with the same ones."""

FRUITLESS_DRAWS = 4
"""Draws in a row without one new program after which a space counts as exhausted."""


@dataclass(frozen=True)
class Candidate:
    """One program to measure.

    Attributes:
        workload_key: the workload it computes.
        program_key: structural hash of the scheduled module.
        trace: the schedule trace as JSON, postprocessing included.
    """

    workload_key: str
    program_key: str
    trace: str


def sample_candidates(workload: Workload, target: dict[str, Any], count: int, seed: int) -> list[Candidate]:
    """Up to `count` distinct programs of one workload, drawn at random.

    The space is MetaSchedule's post-order-apply with the design rules and postprocessors of the target; each draw
    replays one of its sketches with fresh random decisions (`ReplayTrace`). The same arguments give the same programs,
    and a larger `count` begins with the programs of a smaller one. Programs are distinct by structural hash; a space
    with fewer than `count` is taken whole as far as it is found.
    """
    candidates: dict[str, Candidate] = {}
    fruitless = 0
    for draw in _draws(workload, target, count, seed):
        before = len(candidates)
        for schedule in draw:
            key = structural_key(schedule.mod)
            if key not in candidates:
                candidates[key] = Candidate(workload.key, key, _trace_json(schedule.trace))
        fruitless = fruitless + 1 if len(candidates) == before else 0
        if len(candidates) >= count or fruitless == FRUITLESS_DRAWS:
            break
    return list(candidates.values())[:count]


def _trace_json(trace: Any) -> str:
    # decisions hold TVM's boxed numbers (IntImm, FloatImm), which JSON reads back as plain ones
    return json.dumps(trace.as_json(), default=lambda boxed: boxed.value, separators=(",", ":"))


def _draws(workload: Workload, target: dict[str, Any], count: int, seed: int) -> Iterator[list[Any]]:
    load_tvm()
    from tvm.s_tir import meta_schedule

    context = meta_schedule.TuneContext(
        mod=parse_module(workload.module),
        target=make_target(target),
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        task_name=workload.name,
        rand_state=_random_state(workload, seed),
        num_threads=1,
        logger=_quiet_logger(),
    )
    context.pre_tuning(
        max_trials=DRAW_SIZE * (count + FRUITLESS_DRAWS),
        num_trials_per_iter=DRAW_SIZE,
        design_spaces=context.generate_design_space(),
    )
    while drawn := context.generate_measure_candidates():
        yield [candidate.sch for candidate in drawn]
        context.notify_runner_results(drawn, [])


def _quiet_logger() -> logging.Logger:
    # for every workload MetaSchedule says at INFO that it has no intrinsic to tensorize with
    quiet = logging.getLogger(f"{__name__}.tvm")
    quiet.setLevel(logging.WARNING)
    return quiet


def _random_state(workload: Workload, seed: int) -> int:
    """A state for this workload and seed in TVM's range, 1 to 2^31 - 1."""
    digest = hashlib.sha256(f"{seed} {workload.key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (2**31 - 1) + 1
