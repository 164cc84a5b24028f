"""Which data went into a run and came out of it: as datasets on its page, and as tags to search by.

The digest of what one stage puts out is that of what the next one takes in: measure, graphs, train, evaluate.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from kernelcast.errors import KernelcastError
from kernelcast.stages.tracking import TrackedRun

Context = Literal["input", "output"]

MEASUREMENTS = "measurements"
GRAPHS = "graphs"
SPLIT = "split "
"""Names of datasets; that of a split ends with its own name."""

DATA_TAG = "kernelcast.data_hash"
SPLIT_TAG = "kernelcast.split_hash"
"""Tags of a run: hash of the programs; hash of the split that a model learned from, and of the programs it splits."""


def note_measurements(run: TrackedRun, folder: Path, context: Context, rows: int | None = None) -> None:
    """Records a folder of measurements."""
    from kernelcast.graphs.dataset.selection import measurements_hash

    run.dataset(MEASUREMENTS, measurements_hash(folder), folder, context, rows)


def note_graphs(run: TrackedRun, folder: Path, context: Context, rows: int | None = None) -> None:
    """Records a folder of graphs."""
    from kernelcast.graphs.dataset.store import read_data_hash

    data_hash = read_data_hash(folder)
    run.dataset(GRAPHS, data_hash, folder, context, rows)
    run.tags({DATA_TAG: data_hash})


def note_splits(run: TrackedRun, folder: Path, names: Sequence[str], context: Context) -> None:
    """Records splits of a folder of graphs."""
    from kernelcast.graphs.splits import SPLITS_FOLDER, read_split_hash, split_files

    for name in names:
        described, _ = split_files(folder / SPLITS_FOLDER, name)
        run.dataset(f"{SPLIT}{name}", read_split_hash(folder, name), described, context)


def present_digest(name: str, source: Path) -> str:
    """The digest that the data `name` at `source` has now; `missing` where it is not there or not whole.

    Args:
        name: of the dataset.
        source: where it was, as the dataset says.
    """
    from kernelcast.graphs.dataset.selection import measurements_hash
    from kernelcast.graphs.dataset.store import read_data_hash
    from kernelcast.graphs.splits import read_split_hash

    try:
        if name == GRAPHS:
            return read_data_hash(source)
        if name.startswith(SPLIT):
            return read_split_hash(source.parents[1], name.removeprefix(SPLIT))
        return measurements_hash(source)
    except (KernelcastError, OSError):
        return "missing"
