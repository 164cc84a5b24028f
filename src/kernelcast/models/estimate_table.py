"""The analytical model's estimate of each program as columns, for models that learn how far it is off.

What has to be learned is then a correction: which instructions overlap, what the compiler does beside its rules. That
takes far fewer programs than learning from loops and strides how long a program takes (residual learning).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.programs import Machine, Programs, Source
from kernelcast.graphs.views import ESTIMATES, FlatFeatures
from kernelcast.models.analytical import Estimate, estimate
from kernelcast.models.machine_code import machine_code_table
from kernelcast.models.speeds import LEAST_SECONDS, pieces_by_machine
from kernelcast.models.tables import side_by_side

ESTIMATE_VERSION = 1
"""Raised whenever the analytical model or a column here changes: a model that learned how far another one was off is
refused."""

ESTIMATE = "estimate_log_seconds"
"""The column with the natural logarithm of the estimated seconds."""

COLUMNS = (
    ESTIMATE,
    *(f"estimate_log_{part}" for part in ("core", "memory", "compute", "access", "waiting", "overhead")),
    "estimate_share_of_heaviest",
    *(f"heaviest_{fact}" for fact in ("vectorised", "automatic", "scattered", "chained")),
    *(f"heaviest_log_{fact}" for fact in ("across", "vectors", "copies", "independent", "trips")),
)
"""Logarithms of the seconds of the whole and of its parts; of the statement that takes longest its share, and what the
compiler makes of the loops around it (`compiled_nest.Nest`)."""


def estimate_table(programs: Programs, model: str) -> FlatFeatures:
    """One row a program, on the machine that measured it.

    Args:
        programs: with the views `statements` and `features`.
        model: whose columns they are, for messages.

    Raises:
        ConfigError: a view, a column of one or the machine is not there.
    """
    values = np.zeros((len(programs), len(COLUMNS)), dtype=np.float32)
    for rows, machine in pieces_by_machine(programs, model):
        values[rows] = _rows(programs, rows, machine)
    return FlatFeatures(COLUMNS, values)


def require_estimate_version(trained_on: object, directory: Path) -> None:
    """Makes sure that a saved model learned from the estimates that are made here.

    Args:
        trained_on: what the model was saved with: a version, or None if it does not look at estimates.
        directory: of the model, for messages.

    Raises:
        MalformedDataError: it learned from others.
    """
    if trained_on is not None and trained_on != ESTIMATE_VERSION:
        raise MalformedDataError(
            f"{directory} learned from estimates of the analytical model of version {trained_on}, this kernelcast "
            f"makes version {ESTIMATE_VERSION}; run `dvc repro train` to fit it to these"
        )


def with_estimates(programs: Programs, model: str, estimate: bool = True, machine_code: bool = False) -> Programs:
    """The same programs with a further view `estimates`.

    Args:
        programs: that a model is to look at.
        model: which one, for messages.
        estimate: the view has the columns of `estimate_table`.
        machine_code: it has those of `machine_code_table`.

    Raises:
        ConfigError: a view, a column of one or the machine is not there.
    """
    tables = [estimate_table(programs, model)] if estimate else []
    tables += [machine_code_table(programs, model)] if machine_code else []
    table = side_by_side(tables)
    count = int(programs.rows.max()) + 1 if len(programs) else 0
    # a source has a row for each program of the store
    values = np.zeros((count, len(table.names)), dtype=np.float32)
    values[programs.rows] = table.values
    # in front of the others, which may keep a note of who asks for them
    further: dict[str, Source] = {ESTIMATES: FlatFeatures(table.names, values)}
    return replace(programs, sources=ChainMap(further, cast(MutableMapping[str, Source], programs.sources)))


def _rows(programs: Programs, rows: np.ndarray, machine: Machine) -> Float64[np.ndarray, "rows columns"]:
    found = estimate(programs.view("statements", rows), programs.view("features", rows), machine)
    parts, loops = found.statements, found.statements.loops
    core, heaviest = found.of_programs(parts.total), _heaviest(found)
    seconds = [found.seconds, core, found.memory]
    seconds += [found.of_programs(part) for part in (parts.compute, parts.access, parts.waiting, parts.overhead)]
    flags = [loops.vectorised, loops.automatic, loops.scattered, loops.chained]
    counts = [loops.across, loops.vectors, loops.copies, loops.independent, loops.trips]
    # a program without statements takes the zero at the end
    share, *facts = (np.append(values, 0.0)[heaviest] for values in (parts.total / found.helping, *flags, *counts))
    columns = [np.log(np.maximum(part, LEAST_SECONDS)) for part in seconds]
    columns += [share / np.maximum(core, LEAST_SECONDS), *facts[: len(flags)]]
    columns += [np.log(np.maximum(count, 1.0)) for count in facts[len(flags) :]]
    return np.stack(columns, axis=1)


def _heaviest(found: Estimate) -> Int64[np.ndarray, " programs"]:
    """The statement of each program that takes longest; one past the last statement where there is none."""
    program = np.repeat(np.arange(len(found.counts)), found.counts)
    order = np.lexsort((found.statements.total / found.helping, program))
    last = np.cumsum(found.counts) - 1
    return np.where(found.counts > 0, np.append(order, 0)[last], len(program))
