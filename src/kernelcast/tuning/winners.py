"""The winner of each task: the fastest programs of a tuning, measured again side by side and checked.

The fastest time of a search is partly luck: of many noisy times it is the smallest. So the fastest few are built anew
and timed in rounds, in which each has its turn, and their results are compared with those of the unscheduled module.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.exchange.metaschedule import NAMES_FILE
from kernelcast.files import atomic_directory, write_json
from kernelcast.measurement.devices import Runner
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import RunnerSettings, require_positive_integer
from kernelcast.measurement.timing import AGREEING, fastest_apart
from kernelcast.records import Origin
from kernelcast.tuning.database import TuningDatabase
from kernelcast.tuning.measuring import Bench, Measured, open_bench
from kernelcast.tuning.rounds import ProposedProgram, read_rounds
from kernelcast.tuning.tasks import Task

logger = logging.getLogger(__name__)

WINNERS_FOLDER = "winners"
WINNERS_FILE = "winners.json"


@dataclass(frozen=True)
class Winner:
    """The fastest program of a task whose results are right.

    Attributes:
        task: what it computes.
        program_key: structural hash of the scheduled module.
        trace: the schedule trace as JSON.
        run_seconds: its label when it was measured again.
        trial_seconds: its label in the search.
        checked: whether its results were compared with those of the unscheduled module; only where that does not run,
            they were not.
        second_seconds: the label of the next program, measured again; None where there is none.
        noise: share of a time, below which the difference of two of these times means nothing.
        wrong: finalists that failed when they were measured again, each with its reason: `KEY: wrong_result: ...`.
    """

    task: Task
    program_key: str
    trace: str
    run_seconds: float
    trial_seconds: float
    checked: bool
    second_seconds: float | None
    noise: float
    wrong: tuple[str, ...] = ()

    @property
    def is_clear(self) -> bool:
        """Whether it is faster than the second by more than the noise."""
        return self.second_seconds is not None and self.second_seconds / self.run_seconds - 1.0 > self.noise

    def as_dict(self) -> dict[str, Any]:
        """For `winners.json`."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del values["task"], values["trace"]
        workload = self.task.workload
        named = {"workload_key": workload.key, "workload_name": workload.name, "weight": self.task.weight}
        return {**named, **values, "wrong": list(self.wrong), "is_clear": self.is_clear}


def measure_winners(
    tasks: Sequence[Task],
    target: dict[str, Any],
    runner: Runner,
    settings: RunnerSettings,
    folder: Path,
    top: int = 5,
) -> list[Winner]:
    """Names the winner of each task of a tuning, and writes them.

    `winners/` in the folder gets a database for TVM's `JSONDatabase` with one record a workload, and `winners.json`. A
    call that was killed goes on where it was.

    Args:
        tasks: of the tuning.
        target: the complete TVM target.
        runner: where programs run.
        settings: limits and timing.
        folder: of the tuning.
        top: the fastest programs of each task that are measured again; where all of them are wrong, the next ones.

    Returns:
        In the order of the tasks; without tasks of which no program is right, which the log names.

    Raises:
        ConfigError: `top` is more than are timed together.
        MeasurementError: another process measures here, or no device is left.
        StorageError: the disk refused.
    """
    require_positive_integer("top", top)
    if top > settings.timing.batch_size:
        raise ConfigError(
            f"top ({top}) must not exceed runner.timing.batch_size ({settings.timing.batch_size}): the finalists are "
            "timed together"
        )
    winners = []
    # in a folder of their own: those of another `top` were not timed beside these
    with open_bench(folder / f"finals-{top}", target, runner, settings) as bench:
        for task in tasks:
            winner = _winner(task, bench, folder, top)
            if winner is not None:
                winners.append(winner)
                _say(winner)
    _write(folder, winners, target)
    return winners


def _winner(task: Task, bench: Bench, folder: Path, top: int) -> Winner | None:
    rounds = [one for one in read_rounds(folder) if one.workload_key == task.workload.key]
    left = sorted((pair for one in rounds for pair in one.measured), key=lambda pair: pair[1])
    if not left:
        logger.warning("%s: no program of it was measured, so it has no winner", task.workload.name)
        return None
    wrong: list[str] = []
    while left:
        finalists, left = left[:top], left[top:]
        again = bench.measure([(task.workload, _candidate(task, one)) for one, _ in finalists], every_checked=True)
        right = []
        for (program, first_seconds), measured in zip(finalists, again, strict=True):
            if measured.run_seconds is None:
                wrong.append(f"{program.program_key}: {measured.error}")
                logger.warning("%s: a finalist is dropped, %s", task.workload.name, wrong[-1])
            else:
                right.append((measured.run_seconds, program, first_seconds, measured))
        if right:
            right.sort(key=lambda one: one[0])
            seconds, program, first_seconds, measured = right[0]
            return Winner(
                task=task,
                program_key=program.program_key,
                trace=program.trace,
                run_seconds=seconds,
                trial_seconds=first_seconds,
                checked=measured.checked,
                second_seconds=right[1][0] if len(right) > 1 else None,
                noise=_noise([(first, measured) for _, _, first, measured in right]),
                wrong=tuple(wrong),
            )
    logger.warning("%s: none of its programs is right, so it has no winner", task.workload.name)
    return None


def _noise(finalists: Sequence[tuple[float, Measured]]) -> float:
    """How far two times of one program are apart, as a share.

    The larger of two medians over the finalists: how far the ratio of both their measurements is from the usual one
    (what is common to all, a slower minute of the machine, does not change who wins), and how far apart the fastest
    repeats of the second are.
    """
    ratios = np.log([one.run_seconds / first for first, one in finalists if one.run_seconds])
    between = float(np.exp(np.median(np.abs(ratios - np.median(ratios)))))
    within = [fastest_apart(one.repeats) for _, one in finalists if len(one.repeats) >= AGREEING]
    return max(between, float(np.median(within)) if within else 1.0) - 1.0


def _candidate(task: Task, program: ProposedProgram) -> Candidate:
    return Candidate(task.workload.key, program.program_key, program.trace, Origin.EVOLVED)


def _say(winner: Winner) -> None:
    name = winner.task.workload.name
    if winner.second_seconds is None:
        against = "the only one that is right"
    else:
        ratio = winner.second_seconds / winner.run_seconds
        verdict = "more than" if winner.is_clear else "which is within"
        against = (
            f"the second is slower by {100 * (ratio - 1):.1f} %, {verdict} the noise of {100 * winner.noise:.1f} %"
        )
    logger.info("%s: the winner takes %.4g ms (%.4g ms as a trial); %s", name, 1e3 * winner.run_seconds,
                1e3 * winner.trial_seconds, against)  # fmt: skip
    if not winner.checked:
        logger.warning("%s: the winner's results are not checked, the unscheduled module does not run", name)


def _write(folder: Path, winners: Sequence[Winner], target: dict[str, Any]) -> None:
    with atomic_directory(folder / WINNERS_FOLDER, WINNERS_FILE) as temporary:
        database = TuningDatabase(temporary, [winner.task.workload for winner in winners], target)
        for winner in winners:
            database.add(winner.task.workload, winner.trace, winner.run_seconds)
        database.sync()
        described = [dataclasses.asdict(winner.task.workload) for winner in winners]
        for one in described:
            # it is in the database
            del one["module"]
        write_json(temporary / NAMES_FILE, described)
        write_json(temporary / WINNERS_FILE, [winner.as_dict() for winner in winners])
