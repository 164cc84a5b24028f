"""One campaign: plans candidates, builds and times them batch by batch, and can go on from any point where it died."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice

from kernelcast.errors import MalformedDataError, MeasurementError
from kernelcast.files import only_process, remove_leftovers, scratch_folder, storage_errors
from kernelcast.measurement.batches import Crew, Item, Phases
from kernelcast.measurement.devices import OpenRunner
from kernelcast.measurement.failures import counts, refuse_failures, too_many_failures
from kernelcast.measurement.journal import JOURNAL_FILE, Journal, Try
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.progress import CampaignProgress
from kernelcast.measurement.recorder import JournalRecorder
from kernelcast.measurement.restoring import restore_journal
from kernelcast.measurement.sampling import PIECE, Candidate
from kernelcast.measurement.table import table_of_tries
from kernelcast.records import (
    CAMPAIGN_FILE,
    MEASUREMENTS_FILE,
    MEASUREMENTS_VERSION,
    WORKLOADS_FILE,
    Campaign,
    Origin,
    Outcome,
    Workload,
    read_campaign,
    write_campaign,
    write_measurements,
)
from kernelcast.tvm_compat import tvm_versions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a finished campaign gives.

    Attributes:
        tries: one a row of the table.
        phases: where this run's time went.
    """

    tries: list[Try]
    phases: Phases


def run_campaign(plan: Plan) -> Result:
    """Measures what the plan asks for and is not measured yet, then writes the table.

    A run that is killed goes on with the same plan: every raw time is in the journal. More samples and other workloads
    may be asked for in the same folder; another machine, target, TVM, seed or timing may not. The table holds what the
    plan asks for; what earlier plans measured besides stays in the journal.

    Raises:
        MeasurementError: another process measures here, the folder belongs to another campaign, or too many programs
            failed. There is no table then.
        StorageError: the disk refused.
    """
    with storage_errors(plan.directory):
        plan.directory.mkdir(parents=True, exist_ok=True)
    taken = MeasurementError(
        f"another process is measuring in {plan.directory}; wait for its end, or set another folder with "
        "paths.measurements=FOLDER"
    )
    with only_process(plan.directory, taken):
        campaign = _campaign(plan)
        restore_journal(plan.directory)
        with Journal(plan.directory) as journal:
            for name in (CAMPAIGN_FILE, WORKLOADS_FILE, MEASUREMENTS_FILE):
                remove_leftovers(plan.directory / name)
            # nothing stale may be taken for whole
            with storage_errors(plan.directory):
                (plan.directory / MEASUREMENTS_FILE).unlink(missing_ok=True)
            write_campaign(plan.directory, campaign, {workload.key: workload for workload in plan.workloads})
            result = _Campaign(plan, journal).run()
            refuse_failures(plan, result.tries)
            write_measurements(plan.directory, table_of_tries(plan.workloads, plan.target, result.tries))
            if result.phases.seconds:
                logger.info("time spent: %s", result.phases)
            return result


class _Campaign:
    """A campaign under way."""

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self._plan = plan
        self._journal = journal
        self._phases = Phases()
        # several workloads are drawn at a time
        self._planning = threading.Lock()

    def run(self) -> Result:
        """Everything but the table."""
        plan = self._plan
        if self._is_complete():
            logger.info("nothing left to measure: %s", counts(self._tries()))
            return Result(self._tries(), self._phases)
        try:
            with ExitStack() as stack:
                builders = stack.enter_context(ThreadPoolExecutor(plan.settings.builder_count, "builder"))
                with self._phases.of("starting workers"):
                    folder = stack.enter_context(scratch_folder(plan.directory))
                    runner = stack.enter_context(plan.runner.open(plan.target, plan.settings, plan.seed, folder))
                self._draw(runner, builders, Origin.RANDOM)
                self._reopen_failures()
                self._measure(runner, builders, again=False)
                if plan.wanted[Origin.EVOLVED] and not self._too_many_failures():
                    self._draw(runner, builders, Origin.EVOLVED)
                    self._measure(runner, builders, again=False)
                if not self._too_many_failures():
                    self._measure(runner, builders, again=True)
        except KeyboardInterrupt:
            logger.warning("interrupted; %s are kept, the same command goes on from here", counts(self._tries()))
            raise
        return Result(self._tries(), self._phases)

    def _tries(self) -> list[Try]:
        """What the plan asks for, as far as it is drawn already."""
        return [entry for workload in self._plan.workloads for entry in self._tries_of(workload)]

    def _tries_of(self, workload: Workload) -> list[Try]:
        planned = self._journal.planned(workload.key)
        wanted = self._plan.wanted.items()
        return [entry for origin, count in wanted for entry in [one for one in planned if one.origin is origin][:count]]

    def _too_many_failures(self) -> bool:
        return too_many_failures(self._plan, self._tries())

    def _missing(self, workload: Workload, origin: Origin) -> int:
        """Candidates that are still to be drawn."""
        if origin is Origin.EVOLVED and not self._measured(workload):
            return 0  # there is nothing that they could evolve from
        wanted = self._plan.wanted[origin]
        if wanted <= self._journal.exhausted.get((workload.key, origin), 0):
            return 0
        planned = sum(entry.origin is origin for entry in self._journal.planned(workload.key))
        return max(0, wanted - planned)

    def _measured(self, workload: Workload) -> list[Try]:
        return [entry for entry in self._journal.planned(workload.key) if entry.outcome is Outcome.MEASURED]

    def _is_complete(self) -> bool:
        wanted = self._plan.wanted
        drawn = not any(self._missing(workload, origin) for workload in self._plan.workloads for origin in wanted)
        left = self._items(again=False) or self._items(again=True)
        return drawn and not left and not self._too_many_failures()

    def _draw(self, runner: OpenRunner, builders: ThreadPoolExecutor, origin: Origin) -> None:
        """Plans the candidates that are missing, several workloads at a time.

        Raises:
            MeasurementError: more workloads than `max_failure_share` cannot be scheduled.
        """
        lacking = [workload for workload in self._plan.workloads if self._missing(workload, origin)]
        if not lacking:
            return
        logger.info("drawing %s schedules of %d workloads", origin.value, len(lacking))
        refused: list[MeasurementError] = []
        with self._phases.of("sampling"):
            drawings = [builders.submit(self._draw_for, runner, workload, origin) for workload in lacking]
            for drawing in drawings:
                try:
                    drawing.result()
                except MeasurementError as error:
                    logger.warning("%s", error)
                    refused.append(error)
        # of all: those that could be scheduled are not lacking when the same command runs again
        if len(refused) > self._plan.max_failure_share * len(self._plan.workloads):
            raise MeasurementError(
                f"{len(refused)} of {len(self._plan.workloads)} workloads cannot be scheduled; first: {refused[0]}"
            )

    def _draw_for(self, runner: OpenRunner, workload: Workload, origin: Origin) -> None:
        """Draws and plans what is missing of one workload, a piece at a time: a kill costs no more than a piece."""
        wanted, missing = self._plan.wanted[origin], self._missing(workload, origin)
        known = {entry.program_key for entry in self._journal.planned(workload.key)}
        with closing(self._drawn(runner, workload, origin)) as drawn:
            while missing and (piece := list(islice(drawn, PIECE))):
                fresh = [candidate for candidate in piece if candidate.program_key not in known][:missing]
                with self._planning:
                    self._journal.plan(fresh)
                missing -= len(fresh)
                if missing and len(piece) == PIECE:
                    logger.info("%s: %d of %d schedules drawn", workload.name, wanted - missing, wanted)
        if missing:
            with self._planning:
                self._journal.exhaust(workload.key, origin, wanted)
            logger.info(
                "%s: its space gave %d distinct %s programs, fewer than the %d asked for",
                workload.name,
                wanted - missing,
                origin.value,
                wanted,
            )

    def _drawn(self, runner: OpenRunner, workload: Workload, origin: Origin) -> Generator[Candidate, None, None]:
        plan = self._plan
        if origin is Origin.RANDOM:
            # a folder that grows may draw at random what evolved before: that does not count
            others = sum(entry.origin is not origin for entry in self._journal.planned(workload.key))
            return runner.sample(workload, plan.wanted[origin] + others, plan.seed, ())
        measured = tuple(
            (entry.candidate.trace, min(repeat.run_seconds for repeat in entry.repeats.of_visit(0)))
            for entry in self._measured(workload)
        )
        # what failed is unknown to the search and may come back
        failed = sum(entry.has_failed for entry in self._journal.planned(workload.key))
        return runner.sample(workload, self._missing(workload, origin) + failed, plan.seed, measured)

    def _reopen_failures(self) -> None:
        """Tries again what failed when the last run failed as a whole: its cause may be gone."""
        if self._too_many_failures():
            failed = [entry for entry in self._tries() if entry.has_failed]
            logger.info("trying %d failed programs again", len(failed))
            for entry in failed:
                self._journal.retry(entry)
            self._journal.sync()

    def _items(self, again: bool) -> list[Item]:
        """What is to be measured, or to be measured again, and has no ending."""
        plan, items = self._plan, []
        for workload in plan.workloads:
            counted: Counter[Origin] = Counter()
            for entry in self._tries_of(workload):
                # among those of its origin, so that a folder that grows picks the same ones
                position = counted[entry.origin]
                counted[entry.origin] += 1
                if not again and entry.ending is None:
                    items.append(Item(entry, 0, plan.is_checked(workload, position)))
                elif (
                    again
                    and entry.again is None
                    and _repeats_well(entry)
                    and plan.is_measured_again(workload, position)
                ):
                    items.append(Item(entry, 1, check=False))
        return items

    def _measure(self, runner: OpenRunner, builders: ThreadPoolExecutor, again: bool) -> None:
        """Gives every item an ending; stops early when too many have failed already."""
        items = self._items(again)
        if not items:
            return
        plan, tries = self._plan, self._tries()
        if again:
            logger.info("measuring %d programs again: how well a measurement repeats", len(items))
            outcomes: Counter[Outcome] = Counter()
        else:
            logger.info("measuring %d of %d programs on %s", len(items), len(tries), plan.target)
            outcomes = Counter(entry.outcome for entry in tries if entry.outcome is not None)
        timing = plan.settings.timing
        batches = -(-len(items) // timing.batch_size)
        with CampaignProgress(len(items) + sum(outcomes.values()), outcomes, timing.least_rounds, batches) as progress:
            crew = Crew(
                runner,
                builders,
                {workload.key: workload for workload in plan.workloads},
                timing,
                JournalRecorder(self._journal, progress),
                self._phases,
                self._too_many_failures,
            )
            for entry in tries:
                for repeat in entry.repeats:
                    crew.remember(entry.workload_key, entry.ending, repeat)
            crew.measure(items)


def _repeats_well(entry: Try) -> bool:
    """Whether it has times that another visit can be compared with."""
    return entry.ending is not None and entry.outcome is Outcome.MEASURED and not entry.ending.cut_short


def new_campaign(plan: Plan) -> Campaign:
    """What will hold for all measurements of a folder; describes the host, which takes a second."""
    host = plan.runner.host(plan.target)
    return Campaign(MEASUREMENTS_VERSION, plan.target, host, tvm_versions(), plan.settings.timing.as_dict(), plan.seed)


def _campaign(plan: Plan) -> Campaign:
    """The campaign of this folder: the one that is there if it agrees with the plan, else a new one."""
    directory = plan.directory
    if not (directory / CAMPAIGN_FILE).exists():
        journal = directory / JOURNAL_FILE
        # an empty one: killed before the first line, which comes after the campaign
        if journal.exists() and journal.stat().st_size:
            raise MalformedDataError(
                f"{directory} has a {JOURNAL_FILE} but no {CAMPAIGN_FILE} that says how it was measured; move the "
                "folder away and run the same command again"
            )
        return new_campaign(plan)
    campaign, _ = read_campaign(directory)
    if campaign.version != MEASUREMENTS_VERSION:
        raise MeasurementError(
            f"{directory} was measured by an earlier kernelcast (version {campaign.version} of such folders, this one "
            f"writes {MEASUREMENTS_VERSION}): it can be learned from, but nothing can be measured into it; move the "
            "folder away, or set another one with paths.measurements=FOLDER"
        )
    if campaign.host is None:
        raise MeasurementError(
            f"{directory} holds imported measurements; nothing can be measured into it: set another folder with "
            "paths.measurements=FOLDER"
        )
    settings = plan.settings.timing.as_dict()
    identity = plan.runner.identity(plan.target)
    here = {"host.cpu": identity, "target": plan.target, "tvm": tvm_versions(), "seed": plan.seed}
    there = {"host.cpu": campaign.host.cpu, "target": campaign.target, "tvm": campaign.tvm, "seed": campaign.seed}
    for name in sorted(settings.keys() | campaign.timing.keys()):
        here[f"runner.timing.{name}"] = settings.get(name)
        there[f"runner.timing.{name}"] = campaign.timing.get(name)
    for name, value in here.items():
        if value != there[name]:
            raise MeasurementError(
                f"{directory} was measured with {name} = {there[name]!r}, this run has {value!r}: times of the two do "
                "not compare; set it back, move the folder away, or set another one with paths.measurements=FOLDER"
            )
    return campaign
