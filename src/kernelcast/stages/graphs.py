"""The stage `graphs`: replays every measured schedule and writes what the models see, with the splits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from kernelcast.stages.instantiation import made

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs
    from kernelcast.graphs.splits import Splitter
    from kernelcast.graphs.store import Description

logger = logging.getLogger(__name__)


def graphs(config: DictConfig) -> None:
    """Turns the measurements of `config` (schema `GraphsConfig`) into programs and splits under `paths.graphs`.

    Raises:
        ConfigError: a label that cannot be taken, a split that cannot be made.
        MissingInputError: the measurements are not there.
        MalformedDataError: they are not what `measure` writes, or none is usable.
    """
    from kernelcast.files import atomic_directory
    from kernelcast.graphs.dataset import build_programs, measurements_hash
    from kernelcast.graphs.labels import Labelling
    from kernelcast.graphs.splits import write_split
    from kernelcast.graphs.store import write_programs
    from kernelcast.records import read_measurements
    from kernelcast.stages.tracking import flatten, tracked_run

    labelling = Labelling(config.label, config.reference_correction, config.spread_limit, config.drop_flagged)
    options = made("features", config.features)
    splitters = {str(name): made(f"split.{name}", node) for name, node in config.split.items()}
    source, output = Path(config.paths.measurements), Path(config.paths.graphs)
    measurements = read_measurements(source)

    with tracked_run(config, "graphs", "graphs") as run:
        digest = measurements_hash(source)
        run.dataset("measurements", digest, source)
        with progress_of("graphs") as progress:
            programs, description = build_programs(measurements, digest, labelling, options, progress)
        splits = {name: _split(splitter, programs, description) for name, splitter in splitters.items()}
        workload_of_row = [programs.workload_names[number] for number in programs.workload]
        with atomic_directory(output) as folder:
            data_hash = write_programs(folder, programs, description)
            for name, split in splits.items():
                made_by = flatten(OmegaConf.to_container(config.split[name]))
                write_split(folder, name, split, programs.program_key, workload_of_row, data_hash, made_by)
        run.tags({"kernelcast.data_hash": data_hash})
        run.metrics(summary(programs, description))

    Console().print(workload_table(programs))
    for name, split in splits.items():
        sizes = ", ".join(f"{len(rows)} {part}" for part, rows in split.parts())
        logger.info("split %s: %s", name, sizes)
    for reason, count in description.dropped.items():
        logger.warning("dropped %d of %d measurements: %s", count, measurements.table.num_rows, reason)
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
    logger.info("%d programs (data %s): %s", len(programs), data_hash, output)


def summary(programs: Programs, description: Description) -> dict[str, float]:
    """How much there is and what was dropped, as metrics."""
    return {
        "graphs/programs": len(programs),
        "graphs/workloads": len(programs.workload_names),
        "graphs/mean_nodes": float(np.diff(programs.ast.node_offset).mean()),
        "graphs/mean_edges": float(np.diff(programs.ast.edge_offset).mean()),
        "graphs/flagged": description.flagged,
        "graphs/uncorrected": description.uncorrected,
        **{f"graphs/dropped/{reason}": count for reason, count in description.dropped.items()},
    }


def workload_table(programs: Programs) -> Table:
    """Programs, sizes of their trees and range of their times, by workload."""
    table = Table(title="programs by workload")
    table.add_column("workload", overflow="fold")
    for heading in ("programs", "nodes", "edges", "fastest, ms", "slowest, ms"):
        table.add_column(heading, justify="right")
    nodes, edges = np.diff(programs.ast.node_offset), np.diff(programs.ast.edge_offset)
    milliseconds = np.exp(programs.log_seconds) * 1e3
    for number, name in enumerate(programs.workload_names):
        rows = programs.workload == number
        table.add_row(
            name,
            str(rows.sum()),
            f"{nodes[rows].mean():.0f}",
            f"{edges[rows].mean():.0f}",
            f"{milliseconds[rows].min():.4g}",
            f"{milliseconds[rows].max():.4g}",
        )
    return table


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows how many are done of how many: a bar on a terminal, else a line at the end."""
    console = Console(stderr=True)
    if not console.is_terminal:

        def line(done: int, total: int) -> None:
            if done == total:
                logger.info("%s: %d of %d programs", what, done, total)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _split(splitter: Splitter, programs: Programs, description: Description) -> Any:
    """The split, with no row in two parts; one by workload also with no workload in two."""
    from kernelcast.graphs.splits import WorkloadSplit, check_no_leak

    split = splitter.split(np.asarray(programs.workload, dtype=np.int64), description.workload_kinds)
    check_no_leak(split, np.arange(len(programs)).astype(np.str_))
    if isinstance(splitter, WorkloadSplit):
        check_no_leak(split, [description.workload_keys[number] for number in programs.workload])
    return split
