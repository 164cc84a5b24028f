"""Which measurements become programs: those with a valid time, of a known workload and the right target."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float64, Int64

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.dataset.labels import Labelling, labels_of
from kernelcast.graphs.dataset.store import StoredTarget
from kernelcast.graphs.programs import Machine
from kernelcast.records import (
    CAMPAIGN_FILE,
    MEASUREMENTS_FILE,
    Campaign,
    Measurements,
    Traces,
    Workload,
    read_measurements,
    workloads_file,
)

OTHER_TARGET = "other_target"
UNKNOWN_WORKLOAD = "unknown_workload"
MEASURED_TWICE = "measured_twice"
TRACE_ONLY = "trace_only"
BEYOND_LIMIT = "beyond_programs_per_workload"
OTHER_NETWORK = "other_network"
OTHER_KIND = "other_kind"

ASKED_FOR = {BEYOND_LIMIT, OTHER_NETWORK, OTHER_KIND}
"""Reasons to leave a row out that say nothing against it: the configuration wants it so."""


@dataclass(frozen=True)
class Folder:
    """The measurements of one folder: one target, one machine.

    Attributes:
        measurements: what `measure` or `import` wrote.
        digest: hash of the files.
        traces: reads the traces where the table has none; see `read_measurements`.
    """

    measurements: Measurements
    digest: str
    traces: Traces | None = None

    @classmethod
    def read(cls, directory: Path) -> Folder:
        """Reads a folder, its traces in pieces; raises as `read_measurements` does."""
        measurements = read_measurements(directory, without_traces=True)
        return cls(measurements, measurements_hash(directory), Traces(directory))

    @property
    def stored_target(self) -> StoredTarget:
        """What the folder was measured on."""
        campaign = self.measurements.campaign
        host = campaign.host
        return StoredTarget(campaign.target, host.cpu if host is not None else "", machine_of(campaign), self.digest)

    def traces_of(self, rows: Int64[np.ndarray, " rows"]) -> list[str]:
        """The traces of `rows`, which ascend."""
        if self.traces is not None:
            return self.traces.of_rows(rows)
        listed: list[str] = self.measurements.table["trace"].take(pa.array(rows)).to_pylist()
        return listed


@dataclass(frozen=True)
class Choice:
    """How rows become programs.

    Attributes:
        labelling: how repeats become labels.
        programs_per_workload: at most so many of a workload and a folder, drawn at random; None takes all.
        seed: of that draw.
        networks: only workloads that one of these networks runs; all where there are none.
        kinds: only workloads of these operator kinds, names or shell patterns; all where there are none.
    """

    labelling: Labelling
    programs_per_workload: int | None = None
    seed: int = 0
    networks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        limit = self.programs_per_workload
        if limit is not None and (isinstance(limit, bool) or limit < 1):
            raise ConfigError(f"programs_per_workload={limit}: at least 1, or null for all")

    def reason_against(self, workload: Workload) -> str:
        """Why the programs of a workload are not asked for; empty where they are."""
        if self.networks and not {*self.networks} & {*workload.networks}:
            return OTHER_NETWORK
        if self.kinds and not any(fnmatchcase(workload.kind, pattern) for pattern in self.kinds):
            return OTHER_KIND
        return ""


@dataclass(frozen=True)
class ChosenRows:
    """The rows of one folder that become programs.

    Attributes:
        folder: where they are.
        target: number of its target.
        rows: their numbers in its table, ascending.
        workload_key: structural hash of the workload of each.
        program_key: structural hash of each program.
        log_seconds: natural logarithm of the run time of each.
        flagged: repeats that spread more than the limit.
        uncorrected: labels that could not be corrected for the machine's state.
    """

    folder: Folder
    target: int
    rows: Int64[np.ndarray, " rows"]
    workload_key: np.ndarray
    program_key: np.ndarray
    log_seconds: Float64[np.ndarray, " rows"]
    flagged: Bool[np.ndarray, " rows"]
    uncorrected: Bool[np.ndarray, " rows"]


def choose_rows(
    folders: Sequence[Folder],
    targets: Sequence[StoredTarget],
    choice: Choice,
    needs_modules: bool,
    dropped: Counter[str],
) -> list[ChosenRows]:
    """The usable rows of all folders, in their order; counts the others in `dropped` by reason.

    Args:
        folders: what was measured.
        targets: of `distinct_targets`.
        choice: labels and limit.
        needs_modules: whether programs need more than their trace, so that workloads of another TVM are of no use.
        dropped: counts by reason, added to.

    Raises:
        ConfigError: labels are to be corrected and there is no reference time, or no workload is of the networks or
            kinds that are asked for.
    """
    _require_known(folders, choice)
    number = {target.label: index for index, target in enumerate(targets)}
    chosen = []
    seen: set[tuple[int, str, str]] = set()
    for folder in folders:
        measurements, target = folder.measurements, number[folder.stored_target.label]
        table, workloads = measurements.table, measurements.workloads
        labels = labels_of(table, choice.labelling)
        reasons = labels.reasons
        reasons[~_among(table["workload_key"], list(workloads))] = UNKNOWN_WORKLOAD
        texts = [text for text in table["target"].unique().to_pylist() if _target(text) == measurements.campaign.target]
        reasons[~_among(table["target"], texts)] = OTHER_TARGET
        if needs_modules:
            foreign = [key for key, workload in workloads.items() if not workload.loadable]
            reasons[(reasons == "") & _among(table["workload_key"], foreign)] = TRACE_ONLY
        for reason in (OTHER_NETWORK, OTHER_KIND):
            unasked = [key for key, workload in workloads.items() if choice.reason_against(workload) == reason]
            reasons[(reasons == "") & _among(table["workload_key"], unasked)] = reason
        if len(folders) > 1:
            _mark_repeated(table, target, seen, reasons)
        if choice.programs_per_workload is not None:
            _mark_beyond(table["workload_key"], choice.programs_per_workload, choice.seed, reasons)
        dropped.update(reasons[reasons != ""].tolist())
        rows = np.flatnonzero(reasons == "").astype(np.int64)
        if len(rows):
            keys = table.select(["workload_key", "program_key"]).take(pa.array(rows))
            workload_key, program_key = (np.asarray(column.to_pylist(), dtype=np.str_) for column in keys.columns)
            parts = (labels.log_seconds[rows], labels.flagged[rows], labels.uncorrected[rows])
            chosen.append(ChosenRows(folder, target, rows, workload_key, program_key, *parts))
    return chosen


def distinct_targets(folders: Sequence[Folder]) -> tuple[StoredTarget, ...]:
    """What the folders were measured on; the same target on the same processor is one, whatever the folder."""
    found: dict[str, StoredTarget] = {}
    for folder in folders:
        target = folder.stored_target
        known = found.get(target.label)
        if known is not None:
            joined = hashlib.sha256(f"{known.measurements_hash} {target.measurements_hash}".encode()).hexdigest()[:16]
            target = replace(known, measurements_hash=joined)
        found[target.label] = target
    return tuple(found.values())


def target_names(targets: Sequence[StoredTarget]) -> tuple[str, ...]:
    """A short name of each target: the entries in which they differ, such as `num-cores=1`."""
    entries = [json.loads(target.label) for target in targets]
    names = dict.fromkeys(name for entry in entries for name in entry)
    differing = [name for name in names if len({json.dumps(entry.get(name)) for entry in entries}) > 1]
    return tuple(
        ", ".join(f"{name}={entry[name]}" for name in differing if name in entry) or str(entry["kind"])
        for entry in entries
    )


def _require_known(folders: Sequence[Folder], choice: Choice) -> None:
    """Makes sure that every network and kind that is asked for is one of the measurements'."""
    workloads = [workload for folder in folders for workload in folder.measurements.workloads.values()]
    networks = {network for workload in workloads for network in workload.networks}
    kinds = {workload.kind for workload in workloads}
    for name, missing, known in (
        ("only_networks", [asked for asked in choice.networks if asked not in networks], networks),
        ("only_kinds", [asked for asked in choice.kinds if not any(fnmatchcase(each, asked) for each in kinds)], kinds),
    ):
        if missing:
            raise ConfigError(
                f"{name}: no measured workload is of {', '.join(missing)}; choose from "
                f"{', '.join(sorted(known)) or 'none: no workload is of a network'}"
            )


def _mark_repeated(table: pa.Table, target: int, seen: set[tuple[int, str, str]], reasons: np.ndarray) -> None:
    """Marks programs that an earlier folder of the same target has measured."""
    before = frozenset(seen)
    rows = np.flatnonzero(reasons == "")
    columns = table.select(["workload_key", "program_key"]).take(pa.array(rows)).to_pydict()
    for row, key, program in zip(rows, columns["workload_key"], columns["program_key"], strict=True):
        if (target, key, program) in before:
            reasons[row] = MEASURED_TWICE
        seen.add((target, key, program))


def _mark_beyond(keys: pa.ChunkedArray, limit: int, seed: int, reasons: np.ndarray) -> None:
    """Marks all but `limit` random rows of each workload."""
    rows = np.flatnonzero(reasons == "")
    coded = keys.take(pa.array(rows)).combine_chunks().dictionary_encode()
    codes = np.asarray(coded.indices)
    shuffled = np.random.default_rng(seed).permutation(len(rows))
    order = shuffled[np.argsort(codes[shuffled], kind="stable")]
    first = np.searchsorted(codes[order], codes[order], side="left")
    reasons[rows[order[np.arange(len(order)) - first >= limit]]] = BEYOND_LIMIT


def _among(column: pa.ChunkedArray, values: list[str]) -> np.ndarray:
    return np.asarray(pc.is_in(column, value_set=pa.array(values, pa.string())).to_numpy())


def _target(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise MalformedDataError(
            f"{MEASUREMENTS_FILE}: the target {text!r} of a row is not JSON ({error}); delete it and run "
            "`dvc repro measure`"
        ) from error


def machine_of(campaign: Campaign) -> Machine | None:
    """What the campaign says of the machine, as far as its target uses it: the peak of all cores, scaled to these."""
    host = campaign.host
    if host is None:
        return None
    cores = int(campaign.target.get("num-cores", host.cores))
    return Machine(
        cores=cores,
        vector_lanes=host.vector_lanes,
        peak_flops_per_second=host.peak_flops_per_second * cores / host.cores,
        bytes_per_second=host.bytes_per_second,
        cache_bytes=host.cache_bytes,
        calibration=host.calibration,
    )


def measurements_hash(directory: Path) -> str:
    """Hash of the files of a folder of measurements."""
    digest = hashlib.sha256()
    for path in (directory / CAMPAIGN_FILE, workloads_file(directory), directory / MEASUREMENTS_FILE):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
