"""A fully measured space: all programs of one workload that were measured, with what each took and what it cost.

A search on such a space needs no hardware: what it chooses has been measured already. The space is what a campaign
drew, some dozens or hundreds of programs, not the millions that a schedule space has; so a replay tells methods apart
by how soon they find the best of what is there, and says nothing on how they search what is not.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float64, Int64

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.dataset.repeats import FIRST_VISIT, Repeats
from kernelcast.graphs.dataset.selection import Folder
from kernelcast.graphs.dataset.store import Description
from kernelcast.graphs.programs import Programs
from kernelcast.records import MEASUREMENTS_FILE, Measurements, Outcome


@dataclass(frozen=True)
class MeasuredSpace:
    """The programs of one workload: first those that ran, in the order of `programs`, then those that failed.

    Attributes:
        workload_key: structural hash of the unscheduled module.
        workload_name: what the user calls it.
        programs: those that ran, with the views that models look at and without their times: the labels are NaN.
        program_key: structural hash of each program.
        outcome: measured, or the reason why not.
        run_seconds: the label of each, NaN where it failed.
        measure_seconds: what building and timing each of them took.
    """

    workload_key: str
    workload_name: str
    programs: Programs
    program_key: np.ndarray
    outcome: np.ndarray
    run_seconds: Float64[np.ndarray, " space"]
    measure_seconds: Float64[np.ndarray, " space"]

    def __len__(self) -> int:
        return len(self.run_seconds)

    @property
    def ran(self) -> int:
        """How many of the programs ran; they come first."""
        return len(self.programs)

    def random(self, seed: int, stream: int) -> np.random.Generator:
        """Random numbers of this workload, of `seed` and of what they are for (`stream`); the same for all methods."""
        return np.random.default_rng([seed, stream, zlib.crc32(self.workload_key.encode())])


def measured_spaces(
    measurements: Measurements, programs: Programs, description: Description, least_programs: int = 2
) -> list[MeasuredSpace]:
    """The space of every workload, in the order of the graphs.

    Programs that were measured and have no views (the graphs were made of some of them alone) are in no space, nor are
    programs of other measurements. Failures have no views either: they are in the space, and no model can see them.

    Args:
        measurements: what was measured, on one target; it needs no traces.
        programs: the graphs made of it, and perhaps of more.
        description: of these graphs.
        least_programs: workloads of which fewer ran have no space: there is nothing to choose.

    Raises:
        MalformedDataError: the lists of a row differ in length.
    """
    table = measurements.table
    cost = measuring_seconds(table)
    keys, program_keys, outcome = (
        np.asarray(table[name].to_pylist(), dtype=object) for name in ("workload_key", "program_key", "outcome")
    )
    row_of = {(key, program): row for row, (key, program) in enumerate(zip(keys, program_keys, strict=True))}
    failed = outcome != Outcome.MEASURED.value
    spaces = []
    for number, rows in _of_target(programs, Folder(measurements, "").stored_target.label):
        workload = description.workloads[number]
        places = [row_of.get((workload.key, program)) for program in programs.program_key[rows].tolist()]
        known = np.array([place is not None for place in places], dtype=np.bool_)
        if known.sum() < least_programs:
            continue
        seen = programs.select(rows[known])
        at = np.array([place for place in places if place is not None], dtype=np.int64)
        failures = np.flatnonzero(failed & (keys == workload.key))
        at_all = np.concatenate([at, failures])
        spaces.append(
            MeasuredSpace(
                workload_key=workload.key,
                workload_name=workload.name,
                programs=replace(seen, log_seconds=np.full(len(seen), np.nan)),
                program_key=program_keys[at_all],
                outcome=outcome[at_all],
                run_seconds=np.concatenate([np.exp(seen.log_seconds), np.full(len(failures), np.nan)]),
                measure_seconds=cost[at_all],
            )
        )
    return spaces


def _of_target(programs: Programs, label: str) -> Iterator[tuple[int, Int64[np.ndarray, " rows"]]]:
    """Number and rows of every workload on the target `label`."""
    if label not in programs.targets:
        return
    of_target = programs.target == programs.targets.index(label)
    for number in np.unique(programs.workload[of_target]).tolist():
        yield number, np.flatnonzero(of_target & (programs.workload == number)).astype(np.int64)


def measuring_seconds(table: pa.Table) -> Float64[np.ndarray, " rows"]:
    """What measuring each row took: its build, and the calls of its first visit.

    What was not recorded counts as nothing: the builds of imported rows, the wait for a program that hung.

    Args:
        table: columns of `MEASUREMENT_SCHEMA`.

    Raises:
        MalformedDataError: the lists of a row differ in length.
    """
    repeats = Repeats.of(table)
    calls = np.asarray(table["calls"].combine_chunks().flatten().to_numpy(zero_copy_only=False), dtype=np.float64)
    if len(calls) != len(repeats):
        raise MalformedDataError(
            f"{MEASUREMENTS_FILE} has {len(calls)} entries in calls and {len(repeats)} in run_seconds; delete it and "
            "run `dvc repro measure`"
        )
    first = repeats.visit == FIRST_VISIT
    timed = np.bincount(repeats.row[first], calls[first] * repeats.run_seconds[first], minlength=repeats.rows)
    built = np.asarray(pc.fill_null(table["build_seconds"], 0.0).to_numpy(), dtype=np.float64)
    return built + timed
