"""The records that flow between the stages, their file formats and their units.

Times are seconds, sizes are bytes, work is floating-point operations (flops); names carry the unit.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64

from kernelcast.decoding import record_of
from kernelcast.errors import MalformedDataError
from kernelcast.files import atomic_file, read_json, require, unreadable, write_json
from kernelcast.machine import Host

ROW_GROUP = 4096
"""Rows that are written, and later read, in one piece."""

MEASUREMENTS_VERSION = 2
"""Version of the folder that `measure` writes; a change of columns or of their meaning raises it."""

READABLE_VERSIONS = (1, MEASUREMENTS_VERSION)
"""A folder of an earlier version can be read and learned from; `measure` does not go on with it."""

CAMPAIGN_FILE = "campaign.json"
WORKLOADS_FILE = "workloads.json"
WORKLOADS_PACKED_FILE = "workloads.parquet"
"""In the place of `WORKLOADS_FILE` in a data set that is shipped."""

MEASUREMENTS_FILE = "measurements.parquet"


class Outcome(StrEnum):
    """How one try to measure a program ended: measured, or the reason why not."""

    MEASURED = "measured"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"


@dataclass(frozen=True)
class Workload:
    """One unscheduled tensor program: what is to be computed, without how.

    Attributes:
        key: structural hash of the module, 16 hexadecimal digits; equal modules have equal keys.
        name: what the user calls it, for example `conv2d_resnet_56`.
        kind: the operator kind, for example `conv2d`.
        arguments: the shape arguments it was made from.
        module: the TVM module as JSON.
        networks: how many times each network that it was extracted from runs it; empty for a single operator.
        written_by: the version of another TVM that wrote the module, which this one cannot load; `key` is then the
            hash that came with it. Empty where the module is this TVM's.
    """

    key: str
    name: str
    kind: str
    arguments: dict[str, Any]
    module: str
    networks: dict[str, int] = field(default_factory=dict)
    written_by: str = ""

    @property
    def loadable(self) -> bool:
        """Whether this TVM can load the module; of the programs of others the traces alone can be read."""
        return not self.written_by


@dataclass(frozen=True)
class Campaign:
    """Everything that holds for all measurements of one folder; a resumed run must agree with it.

    Attributes:
        version: `MEASUREMENTS_VERSION` of the writer.
        target: the TVM target as a dict, with `num-cores`.
        host: the machine; None where nobody knows it, as of imported times.
        tvm: versions of `apache-tvm` and `apache-tvm-ffi`.
        timing: settings of the timing loop (rounds, seconds a repeat, batch size, ...).
        seed: seed of the sampling.
    """

    version: int
    target: dict[str, Any]
    host: Host | None
    tvm: dict[str, str]
    timing: dict[str, Any]
    seed: int


class Origin(StrEnum):
    """Where a candidate comes from."""

    RANDOM = "random"
    EVOLVED = "evolved"
    IMPORTED = "imported"


def _column(name: str, kind: pa.DataType, meaning: str, nullable: bool = False, unit: str = "") -> pa.Field:
    return pa.field(name, kind, nullable, {"meaning": meaning, **({"unit": unit} if unit else {})})


MEASUREMENT_SCHEMA = pa.schema(
    [
        _column("workload_key", pa.string(), "structural hash of the unscheduled module"),
        _column("workload_name", pa.string(), "what the user calls it"),
        _column("workload_kind", pa.string(), "operator kind"),
        _column(
            "program_key", pa.string(), "structural hash of the scheduled module; of its trace where TVM cannot load it"
        ),
        _column("trace", pa.string(), "the schedule trace as TVM's JSON"),
        _column("target", pa.string(), "the target as JSON"),
        _column("origin", pa.string(), "where the candidate comes from: random, evolved or imported"),
        _column("outcome", pa.string(), "measured, or the reason why not"),
        _column("message", pa.string(), "first lines of the error; empty where measured"),
        _column("build_seconds", pa.float64(), "time of the build", nullable=True, unit="s"),
        _column("device", pa.string(), "name of the device that ran it; empty where none did"),
        _column("checked", pa.bool_(), "whether its results were compared with those of the unscheduled module"),
        _column("cut_short", pa.bool_(), "hopelessly slower than the workload's best, so it got fewer repeats"),
        _column("spread", pa.float64(), "interquartile range over median of the first visit's repeats", nullable=True),
        _column("finished_at", pa.float64(), "when the try ended, since 1970", nullable=True, unit="s"),
        # raw repeats: one entry a repeat in all six lists
        _column("run_seconds", pa.list_(pa.float64()), "time of one call: mean over the calls of a repeat", unit="s"),
        _column("visit", pa.list_(pa.int32()), "0: the measurement; from 1 on: measured again, batches later"),
        _column("round_index", pa.list_(pa.int32()), "the round of the visit"),
        _column("calls", pa.list_(pa.int64()), "calls in the repeat"),
        _column("reference_seconds", pa.list_(pa.float64()), "reference kernel in that round", unit="s"),
        _column("ended_at", pa.list_(pa.float64()), "when the repeat ended, since 1970", unit="s"),
    ],
    metadata={"kernelcast.measurements": str(MEASUREMENTS_VERSION)},
)
"""One row a try. `(workload_key, program_key, target)` is unique. Models learn from visit 0 alone: the other visits say
how well a measurement repeats."""


_NEUTRAL: dict[str, Any] = {
    "origin": Origin.RANDOM.value,
    "message": "",
    "build_seconds": None,
    "device": "",
    "checked": False,
    "cut_short": False,
    "spread": None,
    "finished_at": None,
    "run_seconds": [],
}


def measurement_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """A table of `MEASUREMENT_SCHEMA` from one mapping a row; columns that a row leaves out say nothing.

    Repeats without more said about them are those of visit 0, in rounds from 0, their reference and time unknown (NaN).
    """
    complete = []
    for row in rows:
        repeats = len(row.get("run_seconds") or ())
        raw = {
            "visit": [0] * repeats,
            "round_index": list(range(repeats)),
            "calls": [1] * repeats,
            "reference_seconds": [float("nan")] * repeats,
            "ended_at": [float("nan")] * repeats,
        }
        complete.append({**_NEUTRAL, **raw, **row})
    return pa.Table.from_pylist(complete, schema=MEASUREMENT_SCHEMA)


@dataclass(frozen=True)
class Measurements:
    """A finished folder of measurements.

    Attributes:
        campaign: what holds for all rows.
        workloads: by key.
        table: columns of `MEASUREMENT_SCHEMA`, one row a try.
    """

    campaign: Campaign
    workloads: dict[str, Workload]
    table: pa.Table

    @property
    def measured(self) -> pa.Table:
        """The rows that carry times."""
        return self.table.filter(np.asarray(self.table["outcome"].to_pylist(), dtype=object) == Outcome.MEASURED.value)


def write_campaign(directory: Path, campaign: Campaign, workloads: dict[str, Workload]) -> None:
    """Writes what holds for the whole folder, before the first measurement."""
    write_json(directory / WORKLOADS_FILE, [dataclasses.asdict(workload) for workload in workloads.values()])
    write_json(directory / CAMPAIGN_FILE, dataclasses.asdict(campaign))


def read_campaign(directory: Path) -> tuple[Campaign, dict[str, Workload]]:
    """Reads the campaign and its workloads (by key); also those of an earlier version, which the campaign then names.

    Raises:
        MissingInputError: the folder has none.
        MalformedDataError: of another version, or not what `write_campaign` writes.
    """
    path = directory / CAMPAIGN_FILE
    raw = read_json(path, "measure")
    version = raw.get("version") if isinstance(raw, dict) else None
    if version not in READABLE_VERSIONS or isinstance(version, bool):
        raise MalformedDataError(
            f"{path} has version {version}, this kernelcast reads {' and '.join(map(str, READABLE_VERSIONS))}; "
            "move the folder away and run `dvc repro measure`"
        )
    try:
        host = None if raw["host"] is None else Host.from_json(raw["host"])
        campaign = record_of(Campaign, {**raw, "host": host})
        if not isinstance(campaign.target.get("kind"), str):
            raise ValueError(f"the target {campaign.target} has no kind")
        workloads = [record_of(Workload, entry) for entry in _stored_workloads(directory)]
        if not workloads:
            raise ValueError("there is no workload")
    except (TypeError, KeyError, ValueError) as error:
        raise MalformedDataError(
            f"{directory}: {CAMPAIGN_FILE} or {WORKLOADS_FILE} is not what `measure` writes ({error}); "
            "move the folder away and run `dvc repro measure`"
        ) from error
    return campaign, {workload.key: workload for workload in workloads}


def pack_workloads(workloads: Iterable[Workload]) -> pa.Table:
    """One row a workload; arguments and networks as JSON."""
    rows = [dataclasses.asdict(workload) for workload in workloads]
    packed = [{**row, **{name: json.dumps(row[name]) for name in _PACKED_AS_JSON}} for row in rows]
    return pa.Table.from_pylist(packed)


def workloads_file(directory: Path) -> Path:
    """The file that holds the workloads of a folder: as `measure` writes it, or that of a data set."""
    packed = directory / WORKLOADS_PACKED_FILE
    plain = directory / WORKLOADS_FILE
    return packed if packed.exists() and not plain.exists() else plain


def _stored_workloads(directory: Path) -> list[dict[str, Any]]:
    path = workloads_file(directory)
    if path.name == WORKLOADS_FILE:
        found: list[dict[str, Any]] = read_json(path, "measure")
        return found
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as stored:
            rows = stored.read().to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "measure", error) from error
    return [{**row, **{name: json.loads(row[name]) for name in _PACKED_AS_JSON}} for row in rows]


_PACKED_AS_JSON = ("arguments", "networks")


def write_measurements(directory: Path, table: pa.Table) -> None:
    """Writes the finished table; its presence says that the folder is complete."""
    with atomic_file(directory / MEASUREMENTS_FILE) as temporary:
        pq.write_table(
            table.cast(MEASUREMENT_SCHEMA),
            temporary,
            compression="zstd",
            write_page_checksum=True,
            row_group_size=ROW_GROUP,
        )


def read_measurements(directory: Path, without_traces: bool = False) -> Measurements:
    """Reads a finished folder of measurements; one of version 1 with the columns that it lacks filled.

    Args:
        directory: the folder.
        without_traces: leaves the column of traces out, which takes more memory than all others together; `Traces`
            reads it in pieces.

    Raises:
        MissingInputError: there is none, or `measure` has not finished.
        MalformedDataError: a file is torn, empty or of another version.
    """
    path = directory / MEASUREMENTS_FILE
    campaign, workloads = read_campaign(directory)
    require(path, "measure")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as stored:
            schema = stored.schema_arrow
            table = stored.read([name for name in schema.names if not (without_traces and name == "trace")])
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "measure", error) from error
    if campaign.version == 1 and schema.equals(_SCHEMA_1):
        table, schema = _from_version_1(table, without_traces), MEASUREMENT_SCHEMA
    if not schema.equals(MEASUREMENT_SCHEMA):
        raise MalformedDataError(f"{path} has other columns than expected; delete it and run `dvc repro measure`")
    if table.num_rows == 0:
        raise MalformedDataError(f"{path} has no rows; raise samples_per_workload and run `dvc repro measure`")
    return Measurements(campaign, workloads, table)


_SCHEMA_1 = pa.schema(
    [
        pa.field(name, MEASUREMENT_SCHEMA.field(name).type, nullable=name == "build_seconds")
        for name in (
            "workload_key", "workload_name", "workload_kind", "program_key", "trace", "target", "outcome", "message",
            "build_seconds", "run_seconds", "round_index", "reference_seconds", "ended_at",
        )
    ]
)  # fmt: skip


def _from_version_1(table: pa.Table, without_traces: bool) -> pa.Table:
    """Version 1 measured random candidates on this machine alone, in one visit, without checks."""
    neutral = {"trace": ""} if without_traces else {}
    filled = measurement_table(
        {**row, **neutral, "device": "local" if row["run_seconds"] else ""} for row in table.to_pylist()
    )
    return filled.drop_columns(["trace"]) if without_traces else filled


class Traces:
    """The traces of a finished folder, of which only the pieces that are asked for lie in memory.

    Args:
        directory: the folder.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / MEASUREMENTS_FILE
        with pq.ParquetFile(self._path) as stored:
            groups = [stored.metadata.row_group(number).num_rows for number in range(stored.num_row_groups)]
        self._start = np.concatenate([[0], np.cumsum(groups)])
        self._open: tuple[int, pa.ChunkedArray] | None = None

    def of_rows(self, rows: Int64[np.ndarray, " rows"]) -> list[str]:
        """The traces of `rows`, which ascend.

        Raises:
            MalformedDataError: the file is torn.
        """
        group = np.searchsorted(self._start, rows, side="right") - 1
        traces: list[str] = []
        for number in np.unique(group):
            local = rows[group == number] - self._start[number]
            traces += self._group(int(number)).take(pa.array(local)).to_pylist()
        return traces

    def _group(self, number: int) -> pa.ChunkedArray:
        if self._open is None or self._open[0] != number:
            try:
                with pq.ParquetFile(self._path, page_checksum_verification=True) as stored:
                    self._open = (number, stored.read_row_group(number, ["trace"]).column(0))
            except (pa.ArrowException, OSError) as error:
                raise unreadable(self._path, "measure", error) from error
        return self._open[1]
