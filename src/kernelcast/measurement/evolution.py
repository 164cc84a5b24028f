"""Evolved schedules: programs as a tuner meets them.

TVM's evolutionary search mutates the best programs so far and keeps those that TVM's own cost model, trained on what
was measured of the workload, holds for the fastest.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelcast.measurement.sampling import Candidate, candidate_of, named_failure, random_state, tune_context
from kernelcast.records import Origin, Workload
from kernelcast.tvm_compat import load_tvm, make_target, parse_module, replayed_schedule, structural_key

POPULATION = 64
"""Programs of a generation. The time goes into the features of the cost model, 4 to 17 ms a program: with TVM's 512
programs and 4 generations a convolution takes over half a minute, with these 5 s and a matrix product 1 s."""

GENERATIONS = 2

MEASURED_SHARE = 0.2
"""Of the first generation, the fastest measured programs; the others are random. TVM's own value."""

RANDOM_SHARE = 0.05
"""Of the answer, random programs among the evolved ones (epsilon-greedy), TVM's own value."""

LEAST_MEASURED = 8
"""With fewer measured programs the scores are random: a model of so few ranks no better."""

ROUNDS = 4
"""Searches at most until there are enough programs: in a small space most that evolve were measured already."""


def evolve_candidates(
    workload: Workload,
    target: dict[str, Any],
    count: int,
    seed: int,
    measured: Sequence[tuple[str, float]],
) -> list[Candidate]:
    """Up to `count` distinct programs that evolve from measured ones, none of them among these.

    `RANDOM_SHARE` of them are random. The same arguments give the same programs. A space in which the search finds
    fewer new programs gives fewer.

    Args:
        workload: the unscheduled module.
        target: complete.
        count: programs wanted.
        seed: of the search.
        measured: trace as JSON and label (seconds a call) of measured programs of this workload; may be empty.

    Returns:
        By descending score of the cost model.

    Raises:
        MeasurementError: TVM cannot schedule this workload for this target.
        MalformedDataError: a trace is none of this workload.

    Source:
        TVM's MetaSchedule (Shao et al. 2022), `EvolutionarySearch` with `XGBModel`.
    """
    load_xgboost()
    load_tvm()
    schedules = [replayed_schedule(workload, trace) for trace, _ in measured]
    known = {structural_key(schedule.mod) for schedule in schedules}
    with seeded_numpy(random_state(workload, seed)), _one_thread(), named_failure(workload, target):
        search = _Search(workload, target, seed, schedules, [seconds for _, seconds in measured], count)
        found: dict[str, tuple[Candidate, float]] = {}
        for _ in range(ROUNDS if count else 0):
            drawn = search.draw()
            if not drawn:
                break
            for schedule, score in drawn:
                candidate = candidate_of(workload, schedule, Origin.EVOLVED)
                if candidate.program_key not in known:
                    found.setdefault(candidate.program_key, (candidate, score))
            if len(found) >= count:
                break
    # the search returns the best first and the random ones last: keep both ends
    last = min(search.random_programs, count)
    pairs = list(found.values())
    chosen = pairs if len(pairs) <= count else pairs[: count - last] + pairs[len(pairs) - last :]
    return [candidate for candidate, _ in sorted(chosen, key=lambda pair: -pair[1])]


class _Search:
    """TVM's evolutionary search over one workload, its database and cost model filled with what was measured."""

    def __init__(
        self,
        workload: Workload,
        target: dict[str, Any],
        seed: int,
        schedules: Sequence[Any],
        seconds: Sequence[float],
        count: int,
    ) -> None:
        from tvm.s_tir import meta_schedule
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        # the search itself leaves out only those measured programs that it takes into its first generation
        drawn = count + min(math.ceil(count / 4), len(schedules))
        self.random_programs = math.ceil(RANDOM_SHARE * count)
        strategy = meta_schedule.search_strategy.EvolutionarySearch(
            population_size=max(POPULATION, drawn),
            init_measured_ratio=MEASURED_SHARE,
            init_min_unmeasured=1,
            genetic_num_iters=GENERATIONS,
            eps_greedy=self.random_programs / max(drawn, 1),
        )
        self._context = tune_context(workload, target, seed, strategy)
        self._model = meta_schedule.cost_model.XGBModel(
            config=XGBConfig(nthread=1), num_warmup_samples=LEAST_MEASURED, verbose_eval=0
        )
        module = parse_module(workload.module)
        database = meta_schedule.database.MemoryDatabase()
        entry = database.commit_workload(module)
        arguments = meta_schedule.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True)
        for schedule, label in zip(schedules, seconds, strict=True):
            record = meta_schedule.database.TuningRecord(schedule.trace, entry, [label], make_target(target), arguments)
            database.commit_tuning_record(record)
        self._model.update(
            self._context,
            [meta_schedule.MeasureCandidate(schedule, arguments) for schedule in schedules],
            [RunnerResult([label], None) for label in seconds],
        )
        self._context.pre_tuning(
            max_trials=ROUNDS * drawn,
            num_trials_per_iter=drawn,
            design_spaces=self._context.generate_design_space(),
            database=database,
            cost_model=self._model,
        )

    def draw(self) -> list[tuple[Any, float]]:
        """Schedules that were not drawn before, with the model's scores; the random ones last."""
        drawn = self._context.generate_measure_candidates()
        if not drawn:
            return []
        scores = self._model.predict(self._context, list(drawn))
        self._context.notify_runner_results(drawn, [])
        return [(candidate.sch, float(score)) for candidate, score in zip(drawn, scores, strict=True)]


def load_xgboost() -> None:
    """Imports xgboost without scikit-learn and pandas, which it takes along where they are: 1 s instead of 5.

    For a server that forks workers which evolve; starts no thread.
    """
    hidden = [name for name in ("sklearn", "pandas", "torch") if name not in sys.modules]
    if "xgboost" in sys.modules:
        return
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        import xgboost  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keeps xgboost to one thread and silent."""
    import xgboost

    with xgboost.config_context(verbosity=0, nthread=1):
        yield


@contextmanager
def seeded_numpy(seed: int) -> Iterator[None]:
    """Gives NumPy's global generator, from which TVM's model takes its random scores, a state of its own."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
