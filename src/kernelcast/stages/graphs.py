"""The stage `graphs`: replays every measured schedule and writes what the models see, with the splits."""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from kernelcast.errors import ConfigError
from kernelcast.stages.instantiation import made

if TYPE_CHECKING:
    from kernelcast.graphs.dataset.selection import Folder
    from kernelcast.graphs.dataset.store import Description
    from kernelcast.graphs.programs import Programs
    from kernelcast.graphs.splits import Rows, Split, Splitter

logger = logging.getLogger(__name__)

LINE_SECONDS = 20.0
"""Between two lines about progress, where there is no terminal for a bar."""

MOST_WORKLOADS = 40
"""That are shown each with its programs; more are shown by network."""

OPERATORS = "single operators"
"""Line of the workloads that are of no network."""


def graphs(config: DictConfig) -> None:
    """Turns the measurements of `config` (schema `GraphsConfig`) into programs and splits under `paths.graphs`.

    Raises:
        ConfigError: a label that cannot be taken, a split that cannot be made.
        MissingInputError: the measurements are not there.
        MalformedDataError: they are not what `measure` writes, or none is usable.
        StorageError: another process builds graphs there.
    """
    from kernelcast.graphs.dataset.building import built_store
    from kernelcast.graphs.dataset.labels import Labelling
    from kernelcast.graphs.dataset.selection import ASKED_FOR, Choice
    from kernelcast.graphs.dataset.store import read_data_hash, read_programs
    from kernelcast.graphs.splits import write_split
    from kernelcast.stages.lineage import MEASUREMENTS, note_graphs, note_splits
    from kernelcast.stages.tracking import flatten, tracked_run

    labelling = Labelling(config.label, config.reference_correction, config.spread_limit, config.drop_flagged)
    choice = Choice(
        labelling, config.programs_per_workload, config.seed, tuple(config.only_networks), tuple(config.only_kinds)
    )
    options, builder = made("features", config.features), made("builder", config.builder)
    splitters: dict[str, Splitter] = {str(name): made(f"split.{name}", node) for name, node in config.split.items()}
    output = Path(config.paths.graphs)
    folders = read_folders([Path(config.paths.root, source) for source in config.measurements])

    measured_rows = sum(measured.measurements.table.num_rows for measured in folders.values())
    with tracked_run(config, "graphs", "graphs") as run:
        for source, measured in folders.items():
            run.dataset(MEASUREMENTS, measured.digest, source, rows=measured.measurements.table.num_rows)
        with (
            progress_of("graphs") as progress,
            built_store(output, list(folders.values()), choice, options, builder, config.shard_programs, progress) as (
                folder,
                description,
            ),
        ):
            # before the splits: too few programs may be left for them
            for reason, count in description.dropped.items():
                level = logging.INFO if reason in ASKED_FOR else logging.WARNING
                logger.log(level, "dropped %d of %d measurements: %s", count, measured_rows, reason)
            programs, data_hash = read_programs(folder), read_data_hash(folder)
            rows = rows_of(programs, description, folders.values())
            splits = {name: named_split(name, splitter, rows) for name, splitter in splitters.items()}
            for name, split in splits.items():
                made_by = flatten(OmegaConf.to_container(config.split[name]))
                write_split(folder, name, split, rows, data_hash, made_by)
        programs = read_programs(output)
        note_graphs(run, output, "output", rows=len(programs))
        note_splits(run, output, list(splits), "output")
        run.metrics(summary(programs, description))

    Console().print(workload_table(programs))
    for name, split in splits.items():
        sizes = ", ".join(f"{len(rows)} {part}" for part, rows in split.parts())
        logger.info("split %s: %s", name, sizes)
    if description.flagged:
        logger.warning(
            "flagged %d of %d programs: their repeats spread more than %g (interquartile range over median); kept, "
            "drop_flagged=true leaves them out",
            description.flagged, len(programs), description.spread_limit,
        )  # fmt: skip
    if description.uncorrected:
        logger.warning(
            "%d of %d labels could not be corrected for the machine's state: a repeat has no reference time",
            description.uncorrected, len(programs),
        )  # fmt: skip
    logger.info("views: %s; at most %.0f MiB of memory", ", ".join(programs.sources), peak_memory_bytes() / 2**20)
    logger.info("%d programs (data %s): %s", len(programs), data_hash, output)


def read_folders(sources: Sequence[Path]) -> dict[Path, Folder]:
    """The measurements of every folder, which has one target.

    Raises:
        ConfigError: no folder, or one twice.
    """
    from kernelcast.graphs.dataset.selection import Folder

    if not sources or len(set(sources)) < len(sources):
        listed = ", ".join(map(str, sources))
        raise ConfigError(f"measurements=[{listed}]: name at least one folder of measurements, and none twice")
    return {source: Folder.read(source) for source in sources}


def named_split(name: str, splitter: Splitter, rows: Rows) -> Split:
    """The split `name`.

    Raises:
        ConfigError: these programs cannot be split so; the message names the split.
    """
    from kernelcast.graphs.splits import make_split

    try:
        return make_split(splitter, rows)
    except ConfigError as error:
        raise ConfigError(f"split.{name}: {error}; without it: `~splitter@split.{name}`") from error


def rows_of(programs: Programs, description: Description, folders: Iterable[Folder]) -> Rows:
    """What the splitters see of the programs."""
    from kernelcast.graphs.splits import Rows

    known = {key: workload for folder in folders for key, workload in folder.measurements.workloads.items()}
    return Rows.of(programs, [replace(known[stored.key], name=stored.name) for stored in description.workloads])


def peak_memory_bytes() -> int:
    """The most memory that this process and the ones it started have had, each for itself."""
    kibibytes = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    # in bytes on macOS
    return kibibytes if sys.platform == "darwin" else kibibytes * 1024


def summary(programs: Programs, description: Description) -> dict[str, float]:
    """How much there is and what was dropped, as metrics."""
    return {
        "graphs/programs": len(programs),
        "graphs/workloads": len(programs.workload_names),
        "graphs/targets": len(programs.targets),
        **{f"graphs/mean_{what}": counts.mean() for what, counts in sizes(programs).items()},
        "graphs/flagged": description.flagged,
        "graphs/uncorrected": description.uncorrected,
        "graphs/peak_memory_bytes": peak_memory_bytes(),
        **{f"graphs/dropped/{reason}": count for reason, count in description.dropped.items()},
    }


def sizes(programs: Programs) -> dict[str, Int64[np.ndarray, " programs"]]:
    """How large each program is in the first of its views."""
    if "ast" in programs.sources:
        return {"nodes": programs.counts("ast", "node"), "edges": programs.counts("ast", "edge")}
    if "trace" in programs.sources:
        return {"steps": programs.counts("trace", "step")}
    return {}


def workload_table(programs: Programs) -> Table:
    """Programs, their sizes and the range of their times, by workload, or by network where these are many."""
    names = np.array(programs.workload_names)
    by_network = len(names) > MOST_WORKLOADS
    lines = np.array([network_of(name) for name in names]) if by_network else names
    table = Table(title="programs by network" if by_network else "programs by workload")
    table.add_column("network" if by_network else "workload", overflow="fold")
    counted = sizes(programs)
    for heading in (*(["workloads"] if by_network else []), "programs", *counted, "fastest, ms", "slowest, ms"):
        table.add_column(heading, justify="right")
    milliseconds = np.exp(programs.log_seconds) * 1e3
    for line in dict.fromkeys(lines.tolist()):
        rows = (lines == line)[programs.workload]
        table.add_row(
            Text(line),  # as it is: a string would be read as markup
            *([str(np.sum(lines == line))] if by_network else []),
            str(rows.sum()),
            *(f"{counts[rows].mean():.0f}" for counts in counted.values()),
            f"{milliseconds[rows].min():.4g}",
            f"{milliseconds[rows].max():.4g}",
        )
    return table


def network_of(workload: str) -> str:
    """The network, or the file, whose kernel a workload of this name is."""
    network, dot, _ = workload.partition(".")
    return network if dot else OPERATORS


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows how many are done of how many: a bar on a terminal, else a line now and then, and one at the end."""
    console = Console(stderr=True)
    if not console.is_terminal:
        said = monotonic()

        def line(done: int, total: int) -> None:
            nonlocal said
            if done == total or monotonic() - said >= LINE_SECONDS:
                logger.info("%s: %d of %d programs", what, done, total)
                said = monotonic()

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
