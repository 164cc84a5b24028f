"""One campaign: plans candidates, builds and times them batch by batch, and can go on from any point where it died."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kernelcast.errors import ConfigError, MalformedDataError, MeasurementError
from kernelcast.files import remove_leftovers, storage_errors
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.host import cpu_identity, probe_host
from kernelcast.measurement.journal import JOURNAL_FILE, Journal, Try
from kernelcast.measurement.pool import build_programs
from kernelcast.measurement.progress import CampaignProgress, duration
from kernelcast.measurement.reference import ReferenceKernel
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.settings import RunnerSettings, require_positive_integer
from kernelcast.measurement.table import table_of_tries
from kernelcast.measurement.timing import TimedProgram, TimedRepeat, time_in_rounds
from kernelcast.measurement.worker import Failed
from kernelcast.records import (
    CAMPAIGN_FILE,
    MEASUREMENTS_FILE,
    MEASUREMENTS_VERSION,
    WORKLOADS_FILE,
    Campaign,
    Outcome,
    Workload,
    read_campaign,
    write_campaign,
    write_measurements,
)
from kernelcast.tvm_compat import check_runs_here, tvm_versions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What to measure, where and how.

    Attributes:
        directory: the folder of the campaign.
        workloads: what to compute; names and keys are distinct.
        target: the complete TVM target.
        settings: limits and timing.
        samples_per_workload: distinct programs a workload.
        max_failure_share: share of failures, 0 to 1, above which the whole campaign counts as failed.
        seed: of the sampling and of the random inputs.

    Raises:
        ConfigError: a value that cannot work.
    """

    directory: Path
    workloads: Sequence[Workload]
    target: dict[str, Any]
    settings: RunnerSettings
    samples_per_workload: int
    max_failure_share: float
    seed: int

    def __post_init__(self) -> None:
        require_positive_integer("samples_per_workload", self.samples_per_workload)
        share = self.max_failure_share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(f"max_failure_share must be between 0 and 1, got {share!r}")
        if not self.workloads:
            raise ConfigError("workload: there is none to measure; choose a file of conf/workload")
        names: dict[str, str] = {}
        for workload in self.workloads:
            if workload.key in names:
                raise ConfigError(f"workload: {names[workload.key]} and {workload.name} compute the same; remove one")
            names[workload.key] = workload.name
        check_runs_here(self.target)


@dataclass
class Phases:
    """Seconds spent by kind of work, to name the slowest."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Adds the time of the body to `name`."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def __str__(self) -> str:
        ordered = sorted(self.seconds.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {duration(seconds)}" for name, seconds in ordered)


def run_campaign(plan: Plan) -> list[Try]:
    """Measures what the plan asks for and is not measured yet, then writes the table.

    A run that is killed goes on with the same plan: every raw time is in the journal. More samples and other workloads
    may be asked for in the same folder; another machine, target, TVM, seed or timing may not. The table holds what the
    plan asks for; what earlier plans measured besides stays in the journal.

    Returns:
        One `Try` a row of the table.

    Raises:
        MeasurementError: another process measures here, the folder belongs to another campaign, or too many programs
            failed. There is no table then.
        StorageError: the disk refused.
    """
    with storage_errors(plan.directory):
        plan.directory.mkdir(parents=True, exist_ok=True)
    with _only_process(plan.directory):
        campaign = _campaign(plan)
        with Journal(plan.directory) as journal:
            for name in (CAMPAIGN_FILE, WORKLOADS_FILE, MEASUREMENTS_FILE):
                remove_leftovers(plan.directory / name)
            # nothing stale may be taken for whole
            with storage_errors(plan.directory):
                (plan.directory / MEASUREMENTS_FILE).unlink(missing_ok=True)
            write_campaign(plan.directory, campaign, {workload.key: workload for workload in plan.workloads})
            phases = Phases()
            with phases.of("sampling"):
                tries = _planned_tries(plan, journal)
            _reopen_failures(plan, journal, tries)
            try:
                _measure(plan, journal, tries, phases)
            except KeyboardInterrupt:
                logger.warning("interrupted; %s are kept, the same command goes on from here", _counts(tries))
                raise
            _refuse_failures(plan, tries)
            write_measurements(plan.directory, table_of_tries(plan.workloads, plan.target, tries))
            if phases.seconds:
                logger.info("time spent: %s", phases)
            return tries


@contextmanager
def _only_process(directory: Path) -> Iterator[None]:
    # beside the folder, not in it: the folder's content is what gets versioned
    lock = FileLock(directory.with_name(f".{directory.name}.lock"))
    try:
        with storage_errors(directory):
            lock.acquire(timeout=0)
    except Timeout as error:
        raise MeasurementError(
            f"another process is measuring in {directory}; wait for its end, or set another folder with "
            "paths.measurements=FOLDER"
        ) from error
    try:
        yield
    finally:
        lock.release()


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
        return Campaign(
            MEASUREMENTS_VERSION, plan.target, probe_host(plan.target), tvm_versions(), plan.settings.timing, plan.seed
        )
    campaign, _ = read_campaign(directory)
    settings = plan.settings.timing
    here = {"host.cpu": cpu_identity(), "target": plan.target, "tvm": tvm_versions(), "seed": plan.seed}
    there = {"host.cpu": campaign.host.cpu, "target": campaign.target, "tvm": campaign.tvm, "seed": campaign.seed}
    for name in sorted(settings.keys() | campaign.timing.keys()):
        here[f"runner.{name}"] = settings.get(name)
        there[f"runner.{name}"] = campaign.timing.get(name)
    for name, value in here.items():
        if value != there[name]:
            raise MeasurementError(
                f"{directory} was measured with {name} = {there[name]!r}, this run has {value!r}: times of the two do "
                "not compare; set it back, move the folder away, or set another one with paths.measurements=FOLDER"
            )
    return campaign


def _planned_tries(plan: Plan, journal: Journal) -> list[Try]:
    """The tries that the plan asks for, planning those that are missing."""
    tries = []
    for workload in plan.workloads:
        planned = journal.planned(workload.key)
        if len(planned) < plan.samples_per_workload and workload.key not in journal.exhausted:
            known = {entry.candidate.program_key for entry in planned}
            drawn = sample_candidates(workload, plan.target, plan.samples_per_workload, plan.seed)
            fresh = [candidate for candidate in drawn if candidate.program_key not in known]
            journal.plan(fresh[: plan.samples_per_workload - len(planned)])
            if len(drawn) < plan.samples_per_workload:
                journal.exhaust(workload.key)
            planned = journal.planned(workload.key)
        if len(planned) < plan.samples_per_workload:
            logger.info(
                "%s: its space has %d distinct programs, fewer than the %d asked for",
                workload.name,
                len(planned),
                plan.samples_per_workload,
            )
        tries += planned[: plan.samples_per_workload]
    return tries


def _reopen_failures(plan: Plan, journal: Journal, tries: Sequence[Try]) -> None:
    """Tries again what failed when the last run failed as a whole: its cause may be gone."""
    if _too_many_failures(plan, tries):
        failed = [entry for entry in tries if _has_failed(entry)]
        logger.info("trying %d failed programs again", len(failed))
        for entry in failed:
            journal.retry(entry.candidate)
        journal.sync()


def _measure(plan: Plan, journal: Journal, tries: Sequence[Try], phases: Phases) -> None:
    """Gives every try an outcome; stops early when too many have failed already."""
    for entry in tries:
        if entry.outcome is None and len(entry.repeats) >= plan.settings.rounds:
            journal.finish(entry.candidate, Outcome.MEASURED)
    pending = [entry for entry in tries if entry.outcome is None]
    if not pending:
        logger.info("nothing left to measure: %s", _counts(tries))
        return
    logger.info("measuring %d of %d programs on %s", len(pending), len(tries), plan.target)
    size = plan.settings.batch_size
    batches = [pending[start : start + size] for start in range(0, len(pending), size)]
    outcomes = Counter(entry.outcome for entry in tries if entry.outcome is not None)
    with ExitStack() as stack:
        with phases.of("starting workers"):
            server = stack.enter_context(ForkServer(plan.target["num-cores"]))
            reference = ReferenceKernel(server, plan.target, plan.settings.memory_limit_bytes)
        progress = stack.enter_context(CampaignProgress(len(tries), outcomes, plan.settings.rounds))
        for number, batch in enumerate(batches, start=1):
            _measure_batch(plan, journal, batch, server, reference, Recorder(journal, progress), phases)
            progress.batch_ended(number, len(batches))
            if _too_many_failures(plan, tries):
                return


@dataclass
class Recorder:
    """Writes what happens into the journal and shows it."""

    journal: Journal
    progress: CampaignProgress

    def built(self, program: TimedProgram, build_seconds: float) -> None:
        """A program is loaded."""
        self.journal.built(program.candidate, build_seconds)
        self.progress.step(program.candidate.program_key)

    def repeated(self, program: TimedProgram, repeat: TimedRepeat) -> None:
        """A repeat has ended."""
        self.journal.repeat(program.candidate, repeat)
        self.progress.step(program.candidate.program_key)

    def ended(self, program: TimedProgram) -> None:
        """A program is done or has failed."""
        if program.failed is not None:
            self.failed(program.candidate, program.failed)
        else:
            self.journal.finish(program.candidate, Outcome.MEASURED)
            self.progress.ended(program.candidate.program_key, Outcome.MEASURED)

    def failed(self, candidate: Any, failed: Failed) -> None:
        """A program has no times and never will."""
        logger.debug("%s %s: %s", candidate.program_key, failed.outcome, failed.message)
        self.journal.finish(candidate, failed.outcome, failed.message)
        self.progress.ended(candidate.program_key, failed.outcome)

    def round_ended(self) -> None:
        """All programs had their turn: now is the time to wait for the disk."""
        self.journal.sync()


def _measure_batch(
    plan: Plan,
    journal: Journal,
    batch: Sequence[Try],
    server: ForkServer,
    reference: ReferenceKernel,
    recorder: Recorder,
    phases: Phases,
) -> None:
    workloads = {workload.key: workload for workload in plan.workloads}
    repeats = {entry.candidate: entry.repeats for entry in batch}
    with ExitStack() as stack:
        programs = []
        with phases.of("building"):
            to_build = [(workloads[entry.candidate.workload_key], entry.candidate) for entry in batch]
            for candidate, program, seconds in build_programs(server, to_build, plan.target, plan.settings):
                if isinstance(program, Failed):
                    recorder.failed(candidate, program)
                else:
                    stack.enter_context(program)
                    earlier = {index: repeat.run_seconds for index, repeat in repeats[candidate].items()}
                    programs.append(TimedProgram(candidate, program, earlier))
                    recorder.built(programs[-1], seconds)
            journal.sync()
        with phases.of("timing"):
            time_in_rounds(programs, reference, plan.settings, plan.seed, recorder)
            journal.sync()


def _has_failed(entry: Try) -> bool:
    return entry.outcome not in (None, Outcome.MEASURED)


def _too_many_failures(plan: Plan, tries: Sequence[Try]) -> bool:
    failures = sum(_has_failed(entry) for entry in tries)
    return failures > plan.max_failure_share * len(tries)


def _refuse_failures(plan: Plan, tries: Sequence[Try]) -> None:
    """Ends the campaign as failed when too many programs have failed.

    Raises:
        MeasurementError: with counts by outcome and the first message of each.
    """
    if not _too_many_failures(plan, tries):
        return
    first: dict[Outcome, Try] = {}
    for entry in tries:
        if entry.outcome is not None and _has_failed(entry):
            first.setdefault(entry.outcome, entry)
    names = {workload.key: workload.name for workload in plan.workloads}
    examples = "; ".join(
        f"first {outcome.value} ({names[entry.candidate.workload_key]}): {' '.join(entry.message.split())}"
        for outcome, entry in sorted(first.items())
    )
    raise MeasurementError(
        f"{_counts(tries)}: more failed than max_failure_share={plan.max_failure_share:g} allows; {examples}. "
        f"{_advice(first)} and run the same command again: it tries the failed ones again"
    )


def _advice(kinds: dict[Outcome, Try]) -> str:
    advice = {
        Outcome.BUILD_TIMEOUT: "raise runner.build_timeout_seconds",
        Outcome.RUN_TIMEOUT: "raise runner.run_timeout_seconds",
        Outcome.OUT_OF_MEMORY: "raise runner.memory_limit_bytes",
    }
    steps = [step for outcome, step in advice.items() if outcome in kinds]
    text = ", ".join(steps) if steps else "remove the cause"
    return text[0].upper() + text[1:]


def _counts(tries: Sequence[Try]) -> str:
    """`6 of 8 programs measured, 1 crash, 1 run_timeout`."""
    outcomes = Counter(entry.outcome for entry in tries)
    parts = [f"{outcomes.pop(Outcome.MEASURED, 0)} of {len(tries)} programs measured"]
    untried = outcomes.pop(None, 0)
    parts += [f"{count} {outcome.value}" for outcome, count in sorted(outcomes.items()) if outcome is not None]
    if untried:
        parts.append(f"{untried} not tried")
    return ", ".join(parts)
