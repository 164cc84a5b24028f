"""Programs measured once: a bench that builds, runs and times batches, and remembers what it has measured.

The folder of a bench holds a measuring journal, so nothing that was measured is lost by a kill, and several tunings
that share the folder, one after the other, measure a program once: they compare on the same times.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from kernelcast.errors import MalformedDataError, MeasurementError
from kernelcast.files import only_process, scratch_folder
from kernelcast.measurement.batches import Crew, Item, Phases
from kernelcast.measurement.devices import OpenRunner, Runner
from kernelcast.measurement.failures import advice, counts, first_failures
from kernelcast.measurement.journal import Journal, Key, Try
from kernelcast.measurement.lines import JsonLines, numbered_lines
from kernelcast.measurement.messages import Failed
from kernelcast.measurement.plan import is_picked
from kernelcast.measurement.recorder import JournalRecorder
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Outcome, Workload
from kernelcast.tuning.agreement import agree, described_timing
from kernelcast.tvm_compat import tvm_versions

logger = logging.getLogger(__name__)

AGREEMENT_FILE = "measured.json"
SECONDS_FILE = "seconds.jsonl"

FIRST_PROGRAMS = 8
"""When so many programs have failed and none was measured, the next ones fail as well."""


@dataclass(frozen=True)
class Measured:
    """How the measurement of one program ended, now or before.

    Attributes:
        outcome: measured, or the reason why not.
        message: the first lines of the error; empty where measured.
        run_seconds: the label, minimum of the repeats; None where not measured.
        measure_seconds: its share of the time that building and timing its batch took when it was measured. Who had it
            built before, for its code, has paid for that already; for everyone else that is part of it.
        checked: whether its results were compared with those of the unscheduled workload.
        repeats: its times.
    """

    outcome: Outcome
    message: str
    run_seconds: float | None
    measure_seconds: float
    checked: bool
    repeats: list[TimedRepeat]

    @property
    def error(self) -> str | None:
        """What to tell TVM: the reason by name and the message; None where measured."""
        return None if self.outcome is Outcome.MEASURED else f"{self.outcome.value}: {self.message}"


class Bench:
    """Measures programs, batch by batch; made by `open_bench`.

    Args:
        runner: the started runner.
        builders: loads programs, and builds those whose code is read.
        settings: limits and timing.
        journal: of the folder.
        seconds: what each program took, by batches.
    """

    def __init__(
        self,
        runner: OpenRunner,
        builders: ThreadPoolExecutor,
        settings: RunnerSettings,
        journal: Journal,
        seconds: JsonLines,
    ) -> None:
        self.runner = runner
        self._builders = builders
        self._settings = settings
        self._journal = journal
        self._seconds = seconds
        self._share = dict(_shares(seconds.path))
        self._built_before: dict[Key, float] = {}
        self._workloads: dict[str, Workload] = {}
        self._names: dict[str, str] = {}
        self._asked: dict[Key, Try] = {}
        self._crew = Crew(
            runner,
            builders,
            self._workloads,
            settings.timing,
            JournalRecorder(journal),
            Phases(),
            enough=lambda: False,
        )
        for entry in journal.tries.values():
            self._remember(entry)

    def measure(self, programs: Sequence[tuple[Workload, Candidate]], every_checked: bool = False) -> list[Measured]:
        """Measures the programs that were not measured before, in batches of `runner.timing.batch_size`.

        Args:
            programs: each with the workload that it computes; no program twice.
            every_checked: compares the results of all with those of the unscheduled workload; else of the settings'
                `check_share` of each workload's programs.

        Returns:
            One result a program, in their order.

        Raises:
            MeasurementError: no device is left.
        """
        items = []
        positions = {workload.key: len(self._journal.planned(workload.key)) for workload, _ in programs}
        self._journal.plan(one for _, one in programs if (one.workload_key, one.program_key) not in self._journal.tries)
        entries = [self._journal.tries[one.workload_key, one.program_key] for _, one in programs]
        for (workload, _), entry in zip(programs, entries, strict=True):
            self._names[workload.key] = workload.name
            self._asked[entry.workload_key, entry.program_key] = entry
            if entry.ending is None:
                self._workloads[workload.key] = workload
                checked = every_checked or self._is_checked(workload, positions[workload.key])
                positions[workload.key] += 1
                items.append(Item(entry, 0, checked))
        if items:
            started = perf_counter()
            self._crew.measure(items)
            self._note_seconds([item.entry for item in items], perf_counter() - started)
            for item in items:
                self._remember(item.entry)
            # the modules of a stranger's search are seen once
            self._workloads.clear()
        return [self._measured(entry) for entry in entries]

    def read_codes(
        self, programs: Sequence[tuple[Workload, Candidate]], limit_seconds: float
    ) -> Iterator[str | Failed]:
        """Builds programs and gives their assembly, or why there is none; see `OpenRunner.read_code`.

        Those of them that are measured next are not built again. `forget_built` has to follow.
        """

        def read(program: tuple[Workload, Candidate]) -> str | Failed:
            workload, candidate = program
            started = perf_counter()
            code = self.runner.read_code(workload, candidate, limit_seconds)
            if self.runner.has_built(candidate):
                # that many are built at once
                seconds = (perf_counter() - started) / self._settings.builder_count
                self._built_before[workload.key, candidate.program_key] = seconds
            return code

        return self._builders.map(read, programs)

    def forget_built(self) -> None:
        """Frees what `read_codes` has built and nobody has measured."""
        self._built_before.clear()
        self.runner.forget_built()

    def tries(self) -> list[Try]:
        """Those that were asked for since the bench was opened, with all their repeats."""
        return list(self._asked.values())

    def refuse_failures(self) -> None:
        """Ends a search of which no program can be measured.

        Raises:
            MeasurementError: `FIRST_PROGRAMS` programs were asked for and all have failed; with counts by reason, the
                first message of each and what to do.
        """
        tries = self.tries()
        if len(tries) >= FIRST_PROGRAMS and all(entry.has_failed for entry in tries):
            raise self.all_failed()

    def all_failed(self) -> MeasurementError:
        """The error that says that nothing could be measured."""
        first = first_failures(self._names, self.tries())
        return MeasurementError(
            f"{counts(self.tries())}: nothing can be tuned; {'; '.join(first.values())}. {advice(set(first))} and run "
            "the same command again: it tries those again"
        )

    def failures(self) -> str:
        """Counts by reason with an example each, in one line; empty where nothing failed."""
        first = first_failures(self._names, self.tries())
        return f"{counts(self.tries())}; {'; '.join(first.values())}" if first else ""

    def retry(self, programs: Sequence[Key]) -> None:
        """Opens failed ones of these again: the cause may be gone."""
        for key in programs:
            if key in self._journal.tries and self._journal.tries[key].has_failed:
                self._journal.retry(self._journal.tries[key])
        self._journal.sync()

    def _is_checked(self, workload: Workload, position: int) -> bool:
        share = self._settings.check_share
        return share > 0 and (position == 0 or is_picked(workload, position, share, "check"))

    def _remember(self, entry: Try) -> None:
        for repeat in entry.repeats:
            self._crew.remember(entry.workload_key, entry.ending, repeat)

    def _note_seconds(self, entries: Sequence[Try], seconds: float) -> None:
        keys = [[entry.workload_key, entry.program_key] for entry in entries]
        before = [self._built_before.get((workload, program), 0.0) for workload, program in keys]
        self._seconds.append({"programs": keys, "seconds": seconds, "built_before_seconds": before})
        self._seconds.sync()
        self._share.update({(workload, program): seconds / len(keys) for workload, program in keys})

    def _measured(self, entry: Try) -> Measured:
        assert entry.ending is not None, "a batch gives every program an ending"
        repeats = entry.repeats.of_visit(0)
        own = (entry.build_seconds or 0.0) + sum(repeat.spent_seconds for repeat in repeats)
        # a batch that was killed has no time of its own
        seconds = self._share.get((entry.workload_key, entry.program_key), own)
        label = min((repeat.run_seconds for repeat in repeats), default=None)
        ending = entry.ending
        label = label if ending.outcome is Outcome.MEASURED else None
        return Measured(ending.outcome, ending.message, label, seconds, ending.checked, repeats)


@contextmanager
def open_bench(
    folder: Path, target: dict[str, Any], runner: Runner, settings: RunnerSettings, seed: int = 0
) -> Iterator[Bench]:
    """Starts a bench with what its folder has measured already.

    Args:
        folder: of the journal; made where there is none.
        target: the complete TVM target.
        runner: where programs run.
        settings: limits and timing.
        seed: of the random inputs.

    Raises:
        MeasurementError: another process measures here, or the folder belongs to another machine, target, TVM, timing
            or seed; names the key.
        StorageError: the disk refused.
    """
    taken = MeasurementError(f"another process is measuring in {folder}; wait for its end, or set another folder")
    settled: Mapping[str, Any] = {
        "host.cpu": runner.identity(target),
        "target": target,
        "tvm": tvm_versions(),
        "seed": seed,
        **described_timing(settings.timing),
    }
    with ExitStack() as stack:
        stack.enter_context(only_process(folder, taken))
        agree(folder / AGREEMENT_FILE, settled, "times of the two do not compare")
        journal = stack.enter_context(Journal(folder))
        seconds = stack.enter_context(JsonLines(folder / SECONDS_FILE))
        scratch = stack.enter_context(scratch_folder(folder))
        builders = stack.enter_context(ThreadPoolExecutor(settings.builder_count, "builder"))
        opened = stack.enter_context(runner.open(target, settings, seed, scratch))
        yield Bench(opened, builders, settings, journal, seconds)


def _shares(path: Path) -> Iterator[tuple[Key, float]]:
    """What each program took of its batch's time."""
    for number, line in numbered_lines(path):
        try:
            batch = json.loads(line)
            programs = batch["programs"]
            # lines of before programs were built for their code have no such times
            before = batch.get("built_before_seconds", [0.0] * len(programs))
            for (workload, program), seconds in zip(programs, before, strict=True):
                yield (str(workload), str(program)), float(batch["seconds"]) / len(programs) + float(seconds)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedDataError(
                f"{path}:{number}: not a line of measuring times ({type(error).__name__}: {error}); remove this line "
                "and run the same command again"
            ) from error
