"""What a compiler makes of the loops around a statement: which are unrolled, which become vectors, what is chained.

The columns of the `statements` view say what the schedule asks for. LLVM goes on from there, by rules that hold for all
programs: what they make of a nest decides its time as much as the schedule does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from kernelcast.errors import ConfigError
from kernelcast.graphs.flat_columns import INNER_LOOPS, RANKED_LOADS, STATEMENT_FEATURES
from kernelcast.graphs.views import StatementRows

COMPILER_INSTRUCTIONS = 256
"""LLVM unrolls a loop by itself where its whole body has fewer: its limit is 300, of which indices take a part."""

SHORTEST_LOOP = 4
"""Iterations below which LLVM makes no vectors of a loop."""

INTERLEAVED = 8
"""Elements between two loads that LLVM still makes vectors of: it loads all between them and picks."""

WIDE_LANES = 16
"""Lanes of AVX-512, which has scattered stores and twice the registers."""

RATIOS = ("flops per byte", "accesses per element")
"""Units of the columns that are no whole numbers."""

UNEVEN_RUNS = 1
"""More runs than this along the lanes, and they are not evenly spaced."""

ACCESSES = ("target", *(f"load{rank + 1}" for rank in range(RANKED_LOADS)))

Values = Float64[np.ndarray, " rows"]


def natural_columns(rows: StatementRows) -> dict[str, Values]:
    """The columns of the `statements` view before scaling.

    Raises:
        ConfigError: it lacks some.
    """
    missing = [feature.name for feature in STATEMENT_FEATURES if feature.name not in rows.names]
    if missing:
        raise ConfigError(
            f"the analytical model needs all columns of the view `statements`, and these programs lack {missing[0]} "
            f"and {len(missing) - 1} more; keep all groups (features.leave_out=[]) and run `dvc repro graphs`"
        )
    place = {name: number for number, name in enumerate(rows.names)}
    lanes = rows.values[:, place["lanes"]]
    # lanes are whole numbers from 1 on, and the logarithm of one more than such a number is never whole
    scaled = not np.array_equal(lanes, np.round(lanes))
    columns = {}
    for feature in STATEMENT_FEATURES:
        values = rows.values[:, place[feature.name]].astype(np.float64)
        if feature.unit != "flag" and scaled:
            values = np.expm1(values)
        if feature.unit not in RATIOS:
            # a logarithm in single precision gives a whole number back almost
            values = np.round(values)
        columns[feature.name] = np.maximum(values, 0.0)
    return columns


@dataclass(frozen=True)
class Nest:
    """The loops around each statement as the compiled program has them.

    Attributes:
        vectorised: by the schedule.
        automatic: by LLVM, since all accesses are contiguous or stay in the innermost loop that stays one.
        place: of that loop, 0 for the innermost of all; further out where straight code is all that is in it.
        across: iterations of it.
        scattered: by LLVM too, though the stored elements are apart: with AVX-512 it can.
        vectors: instructions that one execution of the vectorised loop takes for one operation.
        copies: executions in straight code, where what is loaded twice is loaded once.
        independent: chains of dependent operations in it, of one vector each.
        trips: steps of such a chain before its sum leaves the register.
        chained: each step waits for the last one.
    """

    vectorised: Bool[np.ndarray, " rows"]
    automatic: Bool[np.ndarray, " rows"]
    place: Int64[np.ndarray, " rows"]
    across: Values
    scattered: Bool[np.ndarray, " rows"]
    vectors: Values
    copies: Values
    independent: Values
    trips: Values
    chained: Bool[np.ndarray, " rows"]


def nest(columns: dict[str, Values], lanes: int) -> Nest:
    """What unrolling and vectors make of the loops of each statement.

    Args:
        columns: of `natural_columns`.
        lanes: float32 lanes of a vector.
    """
    width = np.maximum(columns["lanes"], 1.0)
    vectorised, vectors = width > 1, np.ceil(width / lanes)
    extent, reduction, straight = (
        np.stack([columns[f"inner{place + 1}_{name}"] for place in range(INNER_LOOPS)], axis=1)
        for name in ("extent", "is_reduction", "is_straight")
    )
    there, extent = extent > 0, np.maximum(extent, 1.0)
    reduced, of_vector = there & (reduction > 0), np.zeros_like(there)
    of_vector[:, 0] = vectorised

    # straight code: what the schedule unrolls, and from inside outwards what the compiler finds short enough
    size = (vectors * (columns["accesses"] + columns["flops"]))[:, None]
    size = size * np.cumprod(np.where(of_vector, 1.0, extent), axis=1)
    unrolled = of_vector | (straight > 0) | (size <= COMPILER_INSTRUCTIONS)
    inside = np.logical_and.accumulate(unrolled | ~there, axis=1)
    copies = _product(extent, inside)
    independent = _product(extent, inside & ~reduced & ~of_vector)
    # the reductions right around the straight code: their sums stay where they are
    summing = reduced & np.logical_and.accumulate(inside | reduced, axis=1)
    chained = summing.any(axis=1) & (columns["reduction_extent"] > 1) & (columns["is_init"] == 0)

    automatic, place = _vector_loop(columns, extent, reduced, inside, straight[:, 0] > 0)
    automatic &= ~vectorised
    place = np.where(automatic, place, 0)
    across = np.take_along_axis(extent, place[:, None], axis=1)[:, 0]
    scattered = ~vectorised & ~automatic & (straight[:, 0] == 0) & ~reduced[:, 0] & (extent[:, 0] >= lanes)
    scattered &= (columns["target_stride_1"] > 1) & (lanes >= WIDE_LANES)
    return Nest(
        vectorised=vectorised,
        automatic=automatic,
        place=place,
        across=across,
        scattered=scattered,
        vectors=vectors,
        copies=copies,
        independent=independent,
        trips=_product(extent, summing),
        chained=chained,
    )


def _vector_loop(
    columns: dict[str, Values],
    extent: Float64[np.ndarray, "rows loops"],
    reduced: Bool[np.ndarray, "rows loops"],
    inside: Bool[np.ndarray, "rows loops"],
    straight: Bool[np.ndarray, " rows"],
) -> tuple[Bool[np.ndarray, " rows"], Int64[np.ndarray, " rows"]]:
    """Whether LLVM can make vectors of a loop that nobody vectorised, and the place of it.

    That is the innermost loop, unless the schedule unrolls it, or else the first one that is not straight code.
    """
    moves = np.stack(
        [[columns[f"{access}_stride_{place + 1}"] for access in ACCESSES] for place in range(INNER_LOOPS)]
    ).T
    side_by_side = (extent >= SHORTEST_LOOP) & ~reduced & (moves[:, 0] == 1) & (moves <= INTERLEAVED).all(axis=1)
    # beyond the innermost loop nothing is known of runs
    side_by_side[:, 0] &= np.all([columns[f"{access}_runs"] <= UNEVEN_RUNS for access in ACCESSES], axis=0)
    innermost, first = side_by_side[:, 0] & ~straight, np.argmin(inside, axis=1)
    at_first = ~inside.all(axis=1) & np.take_along_axis(side_by_side, first[:, None], axis=1)[:, 0]
    return innermost | at_first, np.where(innermost, 0, first)


def _product(extent: Float64[np.ndarray, "rows loops"], chosen: Bool[np.ndarray, "rows loops"]) -> Values:
    """Of the extents of the chosen loops."""
    product: Values = np.prod(np.where(chosen, extent, 1.0), axis=1)
    return product


def vector_pieces(count: Values, lanes: int) -> Values:
    """Machine vectors, whole ones and then powers of two, that so many lanes take."""
    pieces: Values = np.floor(count / lanes) + np.bitwise_count((count % lanes).astype(np.int64))
    return pieces
