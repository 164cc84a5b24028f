"""One tuning: the search of TVM's MetaSchedule over one or more tasks, driven by a cost model, measured by our bench.

A folder holds one tuning. It can be killed at any moment; the same call goes on where it was: rounds are on the disk
before they are measured, programs as soon as they are, and none is measured twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.files import only_process, read_json, remove_leftovers
from kernelcast.measurement.devices import Runner
from kernelcast.measurement.evolution import seeded_numpy
from kernelcast.measurement.progress import duration
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.records import Origin
from kernelcast.trials import TRIALS_FILE, TUNING_FILE, write_trials
from kernelcast.tuning.agreement import agree, described_timing
from kernelcast.tuning.choices import Choice, Strategy
from kernelcast.tuning.database import TuningDatabase
from kernelcast.tuning.inspection import Inspector
from kernelcast.tuning.measuring import Bench, open_bench
from kernelcast.tuning.rounds import About, ProposedProgram, Result, Round, Rounds, read_rounds_table
from kernelcast.tuning.scheduling import TaskHistory, first_size, next_task
from kernelcast.tuning.search import Proposal, SearchSettings, TaskSearch
from kernelcast.tuning.tasks import Task
from kernelcast.tuning.timed_model import TimedModel
from kernelcast.tvm_compat import tvm_versions

logger = logging.getLogger(__name__)

MEASURED_FOLDER = "measured"

LARGEST_STATE = 2**32
"""NumPy's generator takes states below."""


def tune(
    tasks: Sequence[Task],
    target: dict[str, Any],
    cost_model: Any,
    search: SearchSettings,
    runner: Runner,
    runner_settings: RunnerSettings,
    folder: Path,
    seed: int,
    method: str,
    network: str = "",
    measured_folder: Path | None = None,
    inspector: Inspector | None = None,
    method_identity: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Tunes until `search.trials` programs have been tried, or the spaces of all tasks are exhausted.

    The same arguments in the same folder go on where a killed call was, and give the table at once where it was done;
    with more trials than before it goes on from there, with fewer the table has all that were made.
    A trial that fails is a trial too; its reason is in the table. TVM's database in the folder holds the others.

    Args:
        tasks: their workloads are distinct.
        target: the complete TVM target.
        cost_model: a MetaSchedule cost model; None for the strategy `replay_trace`. It is told of earlier trials first.
        search: how.
        runner: where programs run.
        runner_settings: limits and timing.
        folder: of this tuning; its `trials.parquet` is written at the end, `trials_so_far` reads before.
        seed: of the search.
        method: what the table calls it.
        network: that the tasks are of; empty for workloads alone.
        measured_folder: where measured programs are kept, for several tunings, one after the other, that shall measure
            each program once; None for a folder within `folder`.
        inspector: has more programs built than are timed, and chooses; None: what the search proposes is timed.
        method_identity: what whoever goes on in the folder must agree in, beside the other arguments: see
            `methods.Method.identity`.

    Returns:
        The table of `kernelcast.trials`.

    Raises:
        ConfigError: an argument that cannot work; names its key.
        MeasurementError: the folder was begun with other arguments (names the key), another process tunes in it, or
            none of the first programs could be measured (says why).
        StorageError: the disk refused.
    """
    _check(tasks, cost_model, search)
    runner.check(target)
    if inspector is not None:
        inspector.require_target(target)
        search.require_population(inspector.factor)
    taken = MeasurementError(f"another process is tuning in {folder}; wait for its end, or set another folder")
    with only_process(folder, taken):
        agree(
            folder / TUNING_FILE,
            {
                "target": target,
                "host.cpu": runner.identity(target),
                "tvm": tvm_versions(),
                "method": method,
                "seed": seed,
                "network": network,
                "tasks": [[task.workload.key, task.workload.name, task.weight] for task in tasks],
                **search.identity(),
                **({} if inspector is None else {"method.inspect.factor": inspector.factor}),
                **(method_identity or {}),
                **described_timing(runner_settings.timing),
            },
            "it would be another tuning",
        )
        remove_leftovers(folder / TRIALS_FILE)
        with Rounds(folder) as rounds:
            tuning = _Tuning(tasks, target, cost_model, search, folder, seed, rounds, inspector)
            if tuning.is_complete():
                logger.info("nothing left to tune: %s", tuning.status())
            else:
                measured = folder / MEASURED_FOLDER if measured_folder is None else measured_folder
                try:
                    with open_bench(measured, target, runner, runner_settings) as bench:
                        tuning.run(bench)
                except KeyboardInterrupt:
                    logger.warning("interrupted; %s are kept, the same command goes on from here", tuning.status())
                    raise
            table = rounds.table(_about(folder))
            write_trials(folder / TRIALS_FILE, table)
            return table


def trials_so_far(folder: Path) -> pa.Table:
    """The trials of a tuning that may be under way, or was killed.

    Raises:
        MissingInputError: there is no tuning.
        MalformedDataError: a file is not what a tuning writes.
    """
    return read_rounds_table(folder, _about(folder))


def _about(folder: Path) -> About:
    begun = read_json(folder / TUNING_FILE, "tune")
    return About(
        method=begun["method"],
        seed=begun["seed"],
        network=begun["network"],
        names={key: name for key, name, _ in begun["tasks"]},
        weights={key: weight for key, _, weight in begun["tasks"]},
    )


def _check(tasks: Sequence[Task], cost_model: Any, search: SearchSettings) -> None:
    if not tasks:
        raise ConfigError("workload: there is none to tune; choose a file of conf/workload, or a network")
    names: dict[str, str] = {}
    for task in tasks:
        key, name = task.workload.key, task.workload.name
        if key in names:
            raise ConfigError(f"workload: {names[key]} and {name} compute the same; remove one")
        names[key] = name
        if not task.workload.loadable:
            raise ConfigError(f"workload {name} was written by TVM {task.workload.written_by}, this one cannot load it")
    if cost_model is None and search.strategy is not Strategy.replay_trace:
        raise ConfigError(f"cost_model: search.strategy={search.strategy.value} needs one")


class _Tuning:
    """A tuning under way."""

    def __init__(
        self,
        tasks: Sequence[Task],
        target: dict[str, Any],
        cost_model: Any,
        search: SearchSettings,
        folder: Path,
        seed: int,
        rounds: Rounds,
        inspector: Inspector | None,
    ) -> None:
        self._tasks = {task.workload.key: task for task in tasks}
        self._target = target
        self._search = search
        self._folder = folder
        self._seed = seed
        self._rounds = rounds
        self._model = None if search.strategy is Strategy.replay_trace else TimedModel(cost_model)
        self._inspector = inspector
        self._searches: dict[str, TaskSearch] = {}
        # seconds after the last round, and of these in the model: they are the next one's
        self._learning = (0.0, 0.0)

    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return self._rounds.any_measured and not self._left() and not any(one.is_open for one in self._rounds.rounds)

    def status(self) -> str:
        """`48 of 64 trials, 3 of them failed`."""
        results = [result for one in self._rounds.rounds for result in one.results]
        failed = sum(result.run_seconds is None for result in results)
        return f"{len(results)} of {self._search.trials} trials" + (f", {failed} of them failed" if failed else "")

    def run(self, bench: Bench) -> None:
        """Does what is left."""
        workloads = [task.workload for task in self._tasks.values()]
        database = TuningDatabase(self._folder, workloads, self._target)
        with seeded_numpy((self._seed + self._rounds.programs) % LARGEST_STATE):
            self._take_up(bench, database)
            while self._left():
                key = self._next()
                assert key is not None, "there is a task as long as there is something left"
                if not self._one_round(key, bench, database):
                    self._rounds.exhaust(key)
                    logger.info("%s: its space has no more programs", self._tasks[key].workload.name)
        if not self._rounds.rounds:
            names = ", ".join(task.workload.name for task in self._tasks.values())
            raise MeasurementError(
                f"none of TVM's schedules of {names} for {self._target} passes its own checks; leave them out, or tune "
                "for another target"
            )
        if not self._rounds.any_measured:
            raise bench.all_failed()
        self._say_what_came(bench)

    def _left(self) -> int:
        """Programs that can still be proposed; 0 where all spaces are exhausted."""
        if self._rounds.exhausted >= self._tasks.keys():
            return 0
        return max(0, self._search.trials - self._rounds.programs)

    def _take_up(self, bench: Bench, database: TuningDatabase) -> None:
        """Goes on from what an earlier call left: rounds that were not measured, the database, the model."""
        rounds = self._rounds
        if not rounds.rounds:
            return
        if not rounds.any_measured:
            # it ended because everything failed: the cause may be gone
            rounds.reopen()
            bench.retry([(one.workload_key, program.program_key) for one in rounds.rounds for program in one.programs])
        else:
            logger.info("going on from %s", self.status())
        self._complete(database)
        for key in dict.fromkeys(one.workload_key for one in rounds.rounds):
            measured = [pair for one in rounds.of(key) for pair in one.measured]
            if measured and self._model is not None:
                found = self._search_of(key, database).measure_candidates([program.trace for program, _ in measured])
                self._learn(key, bench, database, found, [seconds for _, seconds in measured])
        for number, one in enumerate(rounds.rounds):
            if one.is_open:
                self._measure(number, bench, database, None)

    def _complete(self, database: TuningDatabase) -> None:
        """Adds what a killed call had measured and not yet written into the database."""
        for one in self._rounds.rounds:
            for program, seconds in one.measured:
                database.add(self._tasks[one.workload_key].workload, program.trace, seconds)
        database.sync()

    def _next(self) -> str | None:
        histories = []
        for key, task in self._tasks.items():
            best, bests = float("inf"), []
            for one in self._rounds.of(key):
                best = min([best, *(seconds for _, seconds in one.measured)])
                bests.append(best)
            histories.append(TaskHistory(task.weight, bests, key in self._rounds.exhausted))
        number = next_task(histories, by_gain=self._search.choice is Choice.gradient)
        return None if number is None else list(self._tasks)[number]

    def _one_round(self, key: str, bench: Bench, database: TuningDatabase) -> bool:
        """Proposes and measures one round of a task; False when there is nothing to propose."""
        started, in_model = perf_counter(), self._model_seconds()
        if self._model is not None:
            self._model.forget_scores()
        proposals = self._proposals(key, bench, database)
        if not proposals:
            return False
        programs = [ProposedProgram(one.candidate.program_key, one.candidate.trace, one.score) for one in proposals]
        search_seconds = self._learning[0] + perf_counter() - started
        model_seconds = self._learning[1] + self._model_seconds() - in_model
        self._rounds.propose(Round(key, programs, search_seconds, model_seconds))
        self._measure(len(self._rounds.rounds) - 1, bench, database, proposals)
        return True

    def _proposals(self, key: str, bench: Bench, database: TuningDatabase) -> list[Proposal]:
        """What the next round of a task measures."""
        search, size, left = self._search_of(key, database), self._round_size(key), self._left()
        if self._inspector is None:
            return search.propose(size, left)
        factor = self._inspector.factor
        found, wanted = search.propose(factor * size, factor * left), min(size, left)
        chosen = self._inspector.choose(self._tasks[key], search.context, found, wanted, bench)
        spare = self._inspector.take_left(self._tasks[key], wanted - len(chosen))
        again = search.measure_candidates([candidate.trace for candidate in spare])
        return [*chosen, *(Proposal(one, candidate, None) for one, candidate in zip(spare, again, strict=True))]

    def _round_size(self, key: str) -> int:
        earlier = sum(len(one.programs) for one in self._rounds.of(key))
        size = self._search.round_size(earlier)
        untried = sum(not self._rounds.of(other) for other in self._tasks.keys() - self._rounds.exhausted)
        return size if earlier else first_size(size, self._left(), untried)

    def _measure(
        self, number: int, bench: Bench, database: TuningDatabase, proposals: Sequence[Proposal] | None
    ) -> None:
        """Measures an open round and tells everyone."""
        one = self._rounds.rounds[number]
        task = self._tasks[one.workload_key]
        candidates = [
            Candidate(one.workload_key, program.program_key, program.trace, Origin.EVOLVED) for program in one.programs
        ]
        found = bench.measure([(task.workload, candidate) for candidate in candidates])
        started, in_model = perf_counter(), self._model_seconds()
        bench.forget_built()
        if not self._rounds.any_measured and all(result.run_seconds is None for result in found):
            # the round stays open: the same command tries it again
            bench.refuse_failures()
        results = [Result(result.outcome, result.message, result.run_seconds) for result in found]
        self._rounds.close_round(number, results, sum(result.measure_seconds for result in found))
        search = self._search_of(one.workload_key, database)
        if proposals is None:
            measured = search.measure_candidates([program.trace for program, _ in one.measured])
        else:
            pairs = zip(proposals, results, strict=True)
            measured = [proposal.measure_candidate for proposal, result in pairs if result.run_seconds is not None]
        for candidate, (program, seconds) in zip(measured, one.measured, strict=True):
            database.add(task.workload, program.trace, seconds, candidate.sch)
        database.sync()
        if self._model is not None and measured:
            self._learn(one.workload_key, bench, database, measured, [seconds for _, seconds in one.measured])
        self._learning = (perf_counter() - started, self._model_seconds() - in_model)
        self._say(number)

    def _learn(
        self, key: str, bench: Bench, database: TuningDatabase, candidates: Sequence[Any], seconds: Sequence[float]
    ) -> None:
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        assert self._model is not None
        results = [RunnerResult([label], None) for label in seconds]
        context = self._search_of(key, database).context
        self._model.update(context, list(candidates), results)
        if self._inspector is not None:
            self._inspector.update(self._tasks[key], context, candidates, results, bench)
            bench.forget_built()

    def _search_of(self, key: str, database: TuningDatabase) -> TaskSearch:
        if key not in self._searches:
            known = {program.program_key for one in self._rounds.of(key) for program in one.programs}
            self._searches[key] = TaskSearch(
                self._tasks[key], self._target, self._search, database.tvm_database, self._model, self._seed, known
            )
        return self._searches[key]

    def _model_seconds(self) -> float:
        inside = 0.0 if self._inspector is None else self._inspector.seconds
        return inside if self._model is None else inside + self._model.seconds

    def _say(self, number: int) -> None:
        """One line a round."""
        one = self._rounds.rounds[number]
        labels = [seconds for other in self._rounds.of(one.workload_key) for _, seconds in other.measured]
        here = [seconds for _, seconds in one.measured]
        done = sum(len(other.results) for other in self._rounds.rounds)
        logger.info(
            "trial %d of %d, %s: best %s ms, of this round %s ms (%d of %d measured); search %s, of it model %s; "
            "measuring %s",
            done,
            self._search.trials,
            self._tasks[one.workload_key].workload.name,
            f"{1e3 * min(labels):.4g}" if labels else "-",
            f"{1e3 * min(here):.4g}" if here else "-",
            len(here),
            len(one.programs),
            duration(one.search_seconds),
            duration(one.model_seconds),
            duration(one.measure_seconds),
        )

    def _say_what_came(self, bench: Bench) -> None:
        logger.info("tuned: %s", self.status())
        failures = bench.failures()
        if failures:
            logger.warning("%s", failures)
        if self._rounds.programs < self._search.trials:
            logger.warning(
                "only %d of %d programs (search.trials): the spaces of all tasks have no more",
                self._rounds.programs,
                self._search.trials,
            )
        without = [task.workload.name for key, task in self._tasks.items() if not self._rounds.of(key)]
        if without:
            logger.warning(
                "no program of %d of %d tasks was tried, the first is %s; raise search.trials (%d)",
                len(without),
                len(self._tasks),
                without[0],
                self._search.trials,
            )
