"""The records that flow between the stages, their file formats and their units.

Times are seconds, sizes are bytes, work is floating-point operations (flops); names carry the unit.
"""

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kernelcast.errors import MalformedDataError
from kernelcast.files import atomic_file, read_json, require, unreadable, write_json

Record = TypeVar("Record")

MEASUREMENTS_VERSION = 1
"""Version of the folder that `measure` writes; a change of columns or of their meaning raises it."""

CAMPAIGN_FILE = "campaign.json"
WORKLOADS_FILE = "workloads.json"
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
    """

    key: str
    name: str
    kind: str
    arguments: dict[str, Any]
    module: str


@dataclass(frozen=True)
class Host:
    """The machine that measured, as far as it decides run times.

    Attributes:
        cpu: model name and instruction sets in one line.
        cores: cores that this process may use.
        memory_bytes: size of the main memory.
        system: operating system and kernel.
        peak_flops_per_second: float32 multiply-adds (2 flops each) reached by a large matrix product on all cores.
        bytes_per_second: bytes read and written by a large copy in main memory.
        vector_lanes: float32 lanes of one vector register of the instruction set that the target compiles for.
        cache_bytes: size of the last cache level that one core has for itself.
    """

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    peak_flops_per_second: float
    bytes_per_second: float
    vector_lanes: int
    cache_bytes: int


@dataclass(frozen=True)
class Campaign:
    """Everything that holds for all measurements of one folder; a resumed run must agree with it.

    Attributes:
        version: `MEASUREMENTS_VERSION` of the writer.
        target: the TVM target as a dict, with `num-cores`.
        host: the machine.
        tvm: versions of `apache-tvm` and `apache-tvm-ffi`.
        timing: settings of the timing loop (rounds, seconds a repeat, batch size, ...).
        seed: seed of the sampling.
    """

    version: int
    target: dict[str, Any]
    host: Host
    tvm: dict[str, str]
    timing: dict[str, Any]
    seed: int


MEASUREMENT_SCHEMA = pa.schema(
    [
        pa.field("workload_key", pa.string(), nullable=False),
        pa.field("workload_name", pa.string(), nullable=False),
        pa.field("workload_kind", pa.string(), nullable=False),
        # structural hash of the scheduled module: what was really measured
        pa.field("program_key", pa.string(), nullable=False),
        # the schedule trace as TVM's JSON
        pa.field("trace", pa.string(), nullable=False),
        # the target as JSON
        pa.field("target", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        # first lines of the error; empty where measured
        pa.field("message", pa.string(), nullable=False),
        pa.field("build_seconds", pa.float64(), nullable=True),
        # raw repeats: one entry a repeat in all four lists
        pa.field("run_seconds", pa.list_(pa.float64()), nullable=False),
        pa.field("round_index", pa.list_(pa.int32()), nullable=False),
        # the reference kernel's time in the same round, the machine's state
        pa.field("reference_seconds", pa.list_(pa.float64()), nullable=False),
        # seconds since 1970 when the repeat ended
        pa.field("ended_at", pa.list_(pa.float64()), nullable=False),
    ]
)
"""One row a try. `(workload_key, program_key, target)` is unique."""


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
    """Reads the campaign and its workloads (by key).

    Raises:
        MissingInputError: the folder has none.
        MalformedDataError: of another version, or not what `write_campaign` writes.
    """
    path = directory / CAMPAIGN_FILE
    raw = read_json(path, "measure")
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != MEASUREMENTS_VERSION:
        raise MalformedDataError(
            f"{path} has version {version}, this kernelcast reads {MEASUREMENTS_VERSION}; "
            "move the folder away and run `dvc repro measure`"
        )
    try:
        campaign = _record(Campaign, {**raw, "host": _record(Host, raw["host"])})
        workloads = [_record(Workload, entry) for entry in read_json(directory / WORKLOADS_FILE, "measure")]
        if not workloads:
            raise ValueError("there is no workload")
    except (TypeError, KeyError, ValueError) as error:
        raise MalformedDataError(
            f"{directory}: {CAMPAIGN_FILE} or {WORKLOADS_FILE} is not what `measure` writes ({error}); "
            "move the folder away and run `dvc repro measure`"
        ) from error
    return campaign, {workload.key: workload for workload in workloads}


def _record(kind: type[Record], raw: dict[str, Any]) -> Record:
    """A record from what JSON holds; its fields have their types, and numbers with a unit are positive."""
    record = kind(**raw)
    for name, wanted in get_type_hints(kind).items():
        value = getattr(record, name)
        plain = get_origin(wanted) or wanted
        allowed = (int, float) if plain is float else (plain,)
        if isinstance(value, bool) or not isinstance(value, allowed):
            raise TypeError(f"{kind.__name__}.{name} is {value!r}, not of type {plain.__name__}")
        if kind is Host and not isinstance(value, str) and not 0 < value < float("inf"):
            raise ValueError(f"{kind.__name__}.{name} is {value!r}")
    return record


def write_measurements(directory: Path, table: pa.Table) -> None:
    """Writes the finished table; its presence says that the folder is complete."""
    with atomic_file(directory / MEASUREMENTS_FILE) as temporary:
        pq.write_table(table.cast(MEASUREMENT_SCHEMA), temporary, compression="zstd", write_page_checksum=True)


def read_measurements(directory: Path) -> Measurements:
    """Reads a finished folder of measurements.

    Raises:
        MissingInputError: there is none, or `measure` has not finished.
        MalformedDataError: a file is torn, empty or of another version.
    """
    path = directory / MEASUREMENTS_FILE
    campaign, workloads = read_campaign(directory)
    require(path, "measure")
    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "measure", error) from error
    if not table.schema.equals(MEASUREMENT_SCHEMA):
        raise MalformedDataError(f"{path} has other columns than expected; delete it and run `dvc repro measure`")
    if table.num_rows == 0:
        raise MalformedDataError(f"{path} has no rows; raise samples_per_workload and run `dvc repro measure`")
    return Measurements(campaign, workloads, table)
