"""TVM's search over one workload, asked for one round of new programs at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.files import json_hash
from kernelcast.measurement.sampling import MOST_TRIALS, Candidate, candidate_of, named_failure, tune_context
from kernelcast.measurement.settings import require_choice, require_positive_integer, require_share
from kernelcast.records import Origin
from kernelcast.tuning.choices import Choice, Strategy
from kernelcast.tuning.tasks import Task
from kernelcast.tuning.timed_model import TimedModel
from kernelcast.tvm_compat import available_cores, load_tvm, replayed_schedule

MEASURED_SHARE = 0.2
"""Of the first generation, the fastest measured programs; the others are random. TVM's own value."""

LEAST_RANDOM = 50
"""Random programs of the first generation, TVM's own value; fewer where the population is smaller."""

ASKS = 8
"""Questions in a row without a new program after which a space counts as exhausted."""


@dataclass(frozen=True)
class SearchSettings:
    """How a tuning searches; a folder that is gone on with must agree in all of it.

    Attributes:
        trials: programs in all.
        trials_per_round: programs that are proposed and measured together.
        first_round: the same for the first round of each task; None: as the others.
        strategy: what proposes programs.
        exploration: share of a round, 0 to 1, that is random (epsilon-greedy).
        population: programs of a generation.
        generations: of mutants, in each round.
        choice: which task has the next round.
        threads: that make the mutants; None: one for each core that this process may use. With more than one a seed
            no longer decides which programs are proposed.

    Raises:
        ConfigError: a value that cannot work; names its key.
    """

    trials: int
    trials_per_round: int
    first_round: int | None = None
    strategy: Strategy = Strategy.evolutionary
    exploration: float = 0.05
    population: int = 512
    generations: int = 4
    choice: Choice = Choice.gradient
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("trials", "trials_per_round", "population", "generations"):
            require_positive_integer(f"search.{name}", getattr(self, name))
        for name in ("first_round", "threads"):
            if getattr(self, name) is not None:
                require_positive_integer(f"search.{name}", getattr(self, name))
        require_choice("search.strategy", self.strategy, Strategy)
        require_choice("search.choice", self.choice, Choice)
        require_share("search.exploration", self.exploration)
        self.require_population()

    def require_population(self, factor: int = 1) -> None:
        """Makes sure that a generation has the programs of a round.

        Args:
            factor: programs that are built for each that is timed.

        Raises:
            ConfigError: it has not.
        """
        largest = factor * max(self.trials_per_round, self.first_round or 1)
        if self.strategy is Strategy.evolutionary and self.population < largest:
            times = "" if factor == 1 else f", {factor} times (method.inspect.factor)"
            raise ConfigError(
                f"search.population ({self.population}) must not be smaller than a round ({largest} programs, "
                f"search.trials_per_round or search.first_round{times}): a generation is what a round is chosen from"
            )

    def round_size(self, earlier: int) -> int:
        """Programs of the next round of a task that has so many trials."""
        return self.first_round if self.first_round is not None and not earlier else self.trials_per_round

    def identity(self) -> dict[str, Any]:
        """What a tuning that is gone on with must agree in, by key: all but how long and how fast it searches."""
        return {f"search.{name}": value for name, value in asdict(self).items() if name not in ("trials", "threads")}


@dataclass(frozen=True)
class Proposal:
    """One program to measure.

    Attributes:
        candidate: what it is.
        measure_candidate: TVM's object of it.
        score: what the cost model said; None without one.
    """

    candidate: Candidate
    measure_candidate: Any
    score: float | None


class TaskSearch:
    """The search over one task. It never proposes a program twice.

    Args:
        task: what is tuned.
        target: the complete TVM target.
        search: how.
        database: TVM's, with what was measured.
        model: the cost model.
        seed: of the search.
        known: keys of the programs that are trials already; proposed ones are added.
    """

    def __init__(
        self,
        task: Task,
        target: dict[str, Any],
        search: SearchSettings,
        database: Any,
        model: TimedModel | None,
        seed: int,
        known: set[str],
    ) -> None:
        self.task = task
        self._target = target
        self._search = search
        self._database = database
        self._model = model
        self._known = known
        self._size = 0
        # a search that goes on must not draw again what it drew at first
        state = int(json_hash([seed, len(known)])[:8], 16) if known else seed
        threads = search.threads or available_cores()
        with self._named():
            self.context = tune_context(task.workload, target, state, self._strategy(), threads)
            self._spaces = self.context.generate_design_space()

    def propose(self, size: int, most: int) -> list[Proposal]:
        """The next round; empty when the space is exhausted.

        Args:
            size: programs that TVM is asked for. A change of it makes TVM forget what it proposed: it asks again.
            most: new programs that are returned at most, those with the highest scores.

        Raises:
            MeasurementError: TVM cannot schedule this workload.
        """
        wanted = min(size, most)
        found: list[Proposal] = []
        asked_in_vain = 0
        # what it proposes may be known from before a kill; half a round is worth measuring, a few programs are not
        while 2 * len(found) < wanted and asked_in_vain < ASKS:
            drawn = self._draw(size)
            if drawn is None:
                break
            fresh = self._fresh(drawn)
            asked_in_vain = 0 if fresh else asked_in_vain + 1
            found += fresh
        kept = found[:wanted]
        # what a smaller round has no room for may come again
        self._known -= {one.candidate.program_key for one in found[wanted:]}
        return kept

    def measure_candidates(self, traces: Sequence[str]) -> list[Any]:
        """TVM's objects of programs that were measured earlier."""
        from tvm.s_tir import meta_schedule

        schedules = [replayed_schedule(self.task.workload, trace) for trace in traces]
        arguments = meta_schedule.arg_info.ArgInfo.from_entry_func
        return [
            meta_schedule.MeasureCandidate(schedule, arguments(schedule.mod, remove_preproc=True))
            for schedule in schedules
        ]

    def _strategy(self) -> Any:
        load_tvm()
        from tvm.s_tir import meta_schedule

        if self._search.strategy is Strategy.replay_trace:
            return meta_schedule.search_strategy.ReplayTrace()
        return meta_schedule.search_strategy.EvolutionarySearch(
            population_size=self._search.population,
            init_measured_ratio=MEASURED_SHARE,
            init_min_unmeasured=min(LEAST_RANDOM, max(1, self._search.population // 2)),
            genetic_num_iters=self._search.generations,
            eps_greedy=self._search.exploration,
        )

    def _draw(self, size: int) -> list[Any] | None:
        """What TVM proposes; None when it has nothing more."""
        with self._named():
            if size != self._size:
                if self._size:
                    self.context.post_tuning()
                self._size = size
                self.context.pre_tuning(
                    max_trials=MOST_TRIALS // 2,
                    num_trials_per_iter=size,
                    design_spaces=self._spaces,
                    database=self._database,
                    cost_model=None if self._model is None else self._model.cost_model,
                )
            drawn = self.context.generate_measure_candidates()
            if drawn is None:
                return None
            # it only counts them
            self.context.notify_runner_results(drawn, [])
            return list(drawn)

    def _fresh(self, drawn: Sequence[Any]) -> list[Proposal]:
        fresh = []
        for one in drawn:
            candidate = candidate_of(self.task.workload, one.sch, Origin.EVOLVED)
            if candidate.program_key not in self._known:
                self._known.add(candidate.program_key)
                fresh.append(Proposal(candidate, one, None if self._model is None else self._model.score_of(one)))
        return fresh

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of TVM name the workload; those of the cost model, and Ctrl-C within it, stay what they are."""
        if self._model is not None:
            self._model.raised = None
        try:
            with named_failure(self.task.workload, self._target):
                yield
        except Exception:
            if self._model is not None and self._model.raised is not None:
                raise self._model.raised from None
            raise
