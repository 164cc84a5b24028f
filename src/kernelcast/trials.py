"""The trials of a tuning: one row a program that a search measured, in the order in which it did.

Times are seconds. A row that failed keeps its place: failures are trials too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernelcast.errors import MalformedDataError
from kernelcast.files import atomic_file, require, unreadable

TRIALS_VERSION = 1
"""Version of the table; a change of columns or of their meaning raises it."""

TRIALS_FILE = "trials.parquet"
TUNING_FILE = "tuning.json"
LATENCY_FILE = "latency.json"
"""In the folder of a tuning: its table, what it was begun with, and of a network its latencies."""


def _column(name: str, kind: pa.DataType, meaning: str, nullable: bool = False, unit: str = "") -> pa.Field:
    return pa.field(name, kind, nullable, {"meaning": meaning, **({"unit": unit} if unit else {})})


TRIALS_SCHEMA = pa.schema(
    [
        _column("method", pa.string(), "what chose the programs: the name of the cost model and how it learns"),
        _column("seed", pa.int64(), "of the search"),
        _column("network", pa.string(), "the network that was tuned; empty for a workload alone"),
        _column("workload_key", pa.string(), "structural hash of the unscheduled module"),
        _column("workload_name", pa.string(), "what the user calls it"),
        _column("weight", pa.int64(), "how often the network runs the workload; 1 without a network"),
        _column("trial", pa.int64(), "number of the program in this tuning, over all workloads, from 0"),
        _column("round", pa.int64(), "number of the batch it was measured in, over all workloads, from 0"),
        _column("program_key", pa.string(), "structural hash of the scheduled module"),
        _column("outcome", pa.string(), "measured, or the reason why not"),
        _column("score", pa.float64(), "what the model said before it was measured; higher is faster", nullable=True),
        _column("run_seconds", pa.float64(), "its label: the minimum of its repeats", nullable=True, unit="s"),
        _column("search_seconds", pa.float64(), "of its batch: search, model, and builds for their code", unit="s"),
        _column("model_seconds", pa.float64(), "of these, inside the cost model, learning included", unit="s"),
        _column("measure_seconds", pa.float64(), "of its batch: timing, and building what was not yet", unit="s"),
        _column("elapsed_seconds", pa.float64(), "since the tuning began, when its batch had ended", unit="s"),
    ],
    metadata={"kernelcast.trials": str(TRIALS_VERSION)},
)
"""`(method, seed, network, trial)` is unique. Seconds of a replay are those that measuring took when it was real."""


def trials_table(rows: list[dict[str, Any]]) -> pa.Table:
    """A table of `TRIALS_SCHEMA`."""
    return pa.Table.from_pylist(rows, schema=TRIALS_SCHEMA)


def write_trials(path: Path, table: pa.Table) -> None:
    """Writes a table of trials, whole or not at all."""
    with atomic_file(path) as temporary:
        pq.write_table(table.cast(TRIALS_SCHEMA), temporary, compression="zstd", write_page_checksum=True)


def read_trials(path: Path) -> pa.Table:
    """Reads what `write_trials` wrote.

    Raises:
        MissingInputError: there is none.
        MalformedDataError: it is torn or of another version.
    """
    require(path, "tune")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as stored:
            table = stored.read()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "tune", error) from error
    if not table.schema.equals(TRIALS_SCHEMA):
        raise MalformedDataError(f"{path} has other columns than expected; move it away and tune again")
    return table


def finished_tunings(folder: Path) -> list[Path]:
    """The tables of the finished tunings in a folder of them, `NAME/METHOD@SEED` each, in order."""
    return sorted(folder.glob(f"*/*@*/{TRIALS_FILE}"))
