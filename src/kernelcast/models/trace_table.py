"""One row of fixed width for a schedule trace: its decisions in their order, what they come to, and its primitives.

A step's place in the trace means little: rules put other steps before it. So decisions stand by kind, the tilings of
four factors apart from those of two, and the first of a kind has the same columns in every program. The product of all
factors is the extent of the loop that it divides, which tells the shapes of the workload without its module.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from kernelcast.graphs.trace_columns import COLUMN_NAMES, DECISIONS, PRIMITIVES
from kernelcast.graphs.views import FlatFeatures, TraceTokens

TILING, CHOICE, LOCATION = (
    PRIMITIVES.index(name) for name in ("SamplePerfectTile", "SampleCategorical", "SampleComputeLocation")
)
SHOWN = 8
"""How many decisions of a kind have columns of their own; of further tilings only the sums tell."""

SMALLEST_TILING = 2

DECIDED, FIRST_DECISION = COLUMN_NAMES.index("decided"), COLUMN_NAMES.index("decision_1")


def trace_table(traces: TraceTokens) -> FlatFeatures:
    """The row of every trace.

    Columns: how many steps there are of each primitive; of tilings of each number of factors, logarithms to base 2 of
    every factor and of the product of it and those after it, summed over the tilings and for each of the first; place
    and value of the first choices; the first locations.
    """
    programs = len(traces)
    owner = np.repeat(np.arange(programs, dtype=np.int64), traces.counts("step"))
    primitive = traces.primitive.astype(np.int64)
    steps = np.bincount(owner * len(PRIMITIVES) + primitive, minlength=programs * len(PRIMITIVES))
    names = [f"steps_{name}" for name in PRIMITIVES]
    parts = [steps.reshape(programs, len(PRIMITIVES))]

    decided = np.minimum(traces.values[:, DECIDED], DECISIONS)
    numbers = traces.values[:, FIRST_DECISION : FIRST_DECISION + DECISIONS].astype(np.float64)
    for size in range(SMALLEST_TILING, DECISIONS + 1):
        chosen = (primitive == TILING) & (decided == size)
        factors = np.log2(np.maximum(np.expm1(np.where(chosen[:, None], numbers[:, :size], 0)), 1))
        # what all factors from one on come to is the extent of a tile: trees cannot multiply
        tiles = np.cumsum(factors[:, ::-1], axis=1)[:, :0:-1]
        kinds = [f"tiling_of_{size}_factor_{one}" for one in range(1, size + 1)]
        kinds += [f"tiling_of_{size}_product_from_{one}" for one in range(1, size)]
        factors = np.concatenate([factors, tiles], axis=1)
        names += [f"{kind}_sum" for kind in kinds] + _names(kinds)
        parts += [_sums(factors, owner, programs), _first(factors, chosen, owner, programs)]
    for label, kind, width in (("choice", CHOICE, 2), ("location", LOCATION, 1)):
        chosen = (primitive == kind) & (decided > 0)
        names += _names([f"{label}_{number}" for number in range(1, width + 1)])
        parts.append(_first(numbers[:, :width], chosen, owner, programs))
    return FlatFeatures(tuple(names), np.concatenate(parts, axis=1).astype(np.float32))


def _names(columns: list[str]) -> list[str]:
    return [f"{column}_at_{place}" for place in range(1, SHOWN + 1) for column in columns]


def _sums(
    values: Float64[np.ndarray, "steps width"], owner: Int64[np.ndarray, "steps"], programs: int
) -> Float64[np.ndarray, "programs width"]:
    columns = [np.bincount(owner, weights=column, minlength=programs) for column in values.T]
    return np.stack(columns, axis=1)


def _first(
    values: Float64[np.ndarray, "steps width"],
    chosen: Bool[np.ndarray, "steps"],
    owner: Int64[np.ndarray, "steps"],
    programs: int,
) -> Float32[np.ndarray, "programs columns"]:
    """The values of each program's first `SHOWN` chosen steps, one after the other; missing ones are NaN."""
    steps = np.flatnonzero(chosen)
    of = owner[steps]
    place = np.arange(len(steps)) - np.searchsorted(of, of)
    shown = place < SHOWN
    table = np.full((programs, SHOWN, values.shape[1]), np.nan, dtype=np.float32)
    table[of[shown], place[shown]] = values[steps[shown]]
    return table.reshape(programs, SHOWN * values.shape[1])
