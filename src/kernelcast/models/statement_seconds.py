"""How long one core takes over each statement of a program while all that it touches is in the first cache.

Counts of instructions from the columns of the `statements` view, times what the machine takes for one of each kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from kernelcast.errors import ConfigError
from kernelcast.graphs.flat_columns import INNER_LOOPS, RANKED_LOADS, STATEMENT_FEATURES
from kernelcast.graphs.views import StatementRows
from kernelcast.machine import Calibration

TRANSCENDENTAL_SLOTS = 20
"""Instructions of one exp, tanh or the like: a polynomial of about ten terms and what surrounds it."""

COMPILER_INSTRUCTIONS = 256
"""LLVM unrolls a loop by itself where its whole body has fewer: its limit is 300, of which indices take a part."""

SHORTEST_LOOP = 4
"""Iterations below which LLVM makes no vectors of a loop."""

INTERLEAVED = 8
"""Elements between two loads that LLVM still makes vectors of: it loads all between them and picks."""

PACKED_LANES = 4
"""Neighbouring scalar operations in straight code that LLVM packs into one vector: the shortest vectors that all
instruction sets have."""

REORDERED_STEPS = 128
"""Steps that are under way at once: reorder buffers hold 250 to 500 instructions, four or five a step. So chains
shorter than this do not wait for each other."""

ACCUMULATOR_SHARE = 0.75
"""Of the registers; the others hold the operands."""

REGISTERS, WIDE_REGISTERS = 16, 32
"""Vector registers of AVX2 and of AVX-512, which is the one with `WIDE_LANES`."""

WIDE_LANES = 16

GATHERED_SLOTS = 3
"""Instructions for one lane of an access whose lanes are not evenly spaced: take its index out, load, put it in."""

MOVED_SLOTS = 2
"""Instructions for one lane of a sum that is no power of two long, each time it passes from one iteration to the next:
LLVM keeps such a vector lane by lane across blocks, takes it apart and puts it together."""

SCATTERED_SLOTS = 4
"""Instructions for one element that LLVM stores by scatter, where it makes vectors of a loop over strided elements."""

OVERLAP = 2.0
"""What keeps different units of a core busy overlaps, but not wholly: the p-norm between the largest (infinity) and the
sum (1) of the times."""

RATIOS = ("flops per byte", "accesses per element")
"""Units of the columns that are no whole numbers."""

UNEVEN_RUNS = 1
"""More runs than this along the lanes, and they are not evenly spaced."""

ACCESSES = ("target", *(f"load{rank + 1}" for rank in range(RANKED_LOADS)))

Values = Float64[np.ndarray, " rows"]


def overlapped(*seconds: np.ndarray) -> np.ndarray:
    """The time of several kinds of work that mostly go on at once: no less than the longest, no more than the sum."""
    largest = np.maximum(np.max(seconds, axis=0), np.finfo(np.float64).tiny)
    total: np.ndarray = np.sum([(part / largest) ** OVERLAP for part in seconds], axis=0)
    return largest * total ** (1.0 / OVERLAP)


def natural_columns(rows: StatementRows) -> dict[str, Values]:
    """The columns of the `statements` view before scaling.

    Raises:
        ConfigError: it lacks some.
    """
    missing = [feature.name for feature in STATEMENT_FEATURES if feature.name not in rows.names]
    if missing:
        raise ConfigError(
            f"model=analytical needs all columns of the view `statements`, and these programs lack {missing[0]} and "
            f"{len(missing) - 1} more; keep all groups (features.leave_out=[]) and run `dvc repro graphs`"
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
    vectorised = width > 1
    vectors = np.ceil(width / lanes)
    extent, reduction, straight = (
        np.stack([columns[f"inner{place + 1}_{name}"] for place in range(INNER_LOOPS)], axis=1)
        for name in ("extent", "is_reduction", "is_straight")
    )
    there, extent = extent > 0, np.maximum(extent, 1.0)
    even = np.all([columns[f"{access}_runs"] <= UNEVEN_RUNS for access in ACCESSES], axis=0)
    automatic, place_of, across = np.zeros(len(width), dtype=bool), np.zeros(len(width), dtype=np.int64), extent[:, 0]
    copies, independent, trips = np.ones((3, len(width)))
    steps, inside, summing = (
        vectors * (columns["accesses"] + columns["flops"]),
        np.ones(len(width), dtype=bool),
        np.zeros(len(width), dtype=bool),
    )
    reducing, rolled = np.zeros(len(width), dtype=bool), np.zeros(len(width), dtype=bool)
    for place in range(INNER_LOOPS):
        of_vector = vectorised if place == 0 else np.zeros(len(width), dtype=bool)
        reduced = (reduction[:, place] > 0) & there[:, place]
        unrolled = of_vector | (straight[:, place] > 0)
        by_compiler = there[:, place] & ~unrolled & ~rolled & (steps * extent[:, place] <= COMPILER_INSTRUCTIONS)
        stays = there[:, place] & ~unrolled & ~by_compiler
        first, rolled = stays & ~rolled, rolled | stays
        moves = np.stack([columns[f"{access}_stride_{place + 1}"] for access in ACCESSES], axis=1)
        side_by_side = ~vectorised & (extent[:, place] >= SHORTEST_LOOP) & (moves[:, 0] == 1)
        side_by_side &= (moves <= INTERLEAVED).all(axis=1) & (even | (place > 0))
        # before straight code is packed
        found = (first | (place == 0) & (straight[:, 0] == 0)) & side_by_side & ~reduced & ~automatic
        automatic, place_of = automatic | found, np.where(found, place, place_of)
        across = np.where(found, extent[:, place], across)
        steps *= np.where(of_vector, 1.0, extent[:, place])
        leaving = inside & ~(unrolled | by_compiler)
        inside &= unrolled | by_compiler
        copies *= np.where(inside, extent[:, place], 1.0)
        independent *= np.where(inside & ~reduced & ~of_vector, extent[:, place], 1.0)
        # the reductions right around the straight code: their sums stay where they are
        summing = (summing | leaving) & reduced
        trips *= np.where((inside & reduced) | summing, extent[:, place], 1.0)
        reducing |= (inside & reduced) | summing
    chained = reducing & (columns["reduction_extent"] > 1) & (columns["is_init"] == 0)
    scattered = ~vectorised & (straight[:, 0] == 0) & (reduction[:, 0] == 0) & (extent[:, 0] >= lanes)
    scattered &= (columns["target_stride_1"] > 1) & (lanes >= WIDE_LANES) & ~automatic
    return Nest(vectorised, automatic, place_of, across, scattered, vectors, copies, independent, trips, chained)


def core_seconds(columns: dict[str, Values], lanes: int, calibration: Calibration) -> Values:
    """Seconds of all executions of each statement on one core.

    Args:
        columns: of `natural_columns`.
        lanes: float32 lanes of a vector.
        calibration: speeds of the machine.
    """
    # what LLVM takes out of a loop is done once
    columns = {**columns, "executions": columns["executions"] / np.maximum(columns["removable_iterations"], 1.0)}
    loops = nest(columns, lanes)
    executions, width = columns["executions"], np.maximum(columns["lanes"], 1.0)
    extent = np.maximum(columns["inner1_extent"], 1.0)
    scalar_slot = 2.0 / calibration.scalar_flops_per_second
    calls = executions / np.where(loops.automatic, loops.across, width)
    instructions = calls * np.where(loops.automatic, _pieces(loops.across, lanes), loops.vectors)
    filled = np.where(loops.automatic, lanes, np.minimum(width, lanes))
    packed = (
        ~loops.vectorised
        & ~loops.automatic
        & (columns["inner1_is_straight"] > 0)
        & (columns["inner1_is_reduction"] == 0)
    )
    packed &= columns["target_stride_1"] == 1
    packing = np.where(packed, np.minimum(PACKED_LANES, extent), 1.0)

    # a multiply-add is one instruction
    joined = (columns["reduction_extent"] > 1) & (columns["flops"] >= 2)
    operations = columns["flops"] - joined + TRANSCENDENTAL_SLOTS * columns["transcendental_flops"]
    slot = np.maximum(2.0 * filled / calibration.vector_flops_per_second, scalar_slot)
    compute = instructions * operations * slot / packing

    registers = (WIDE_REGISTERS if lanes >= WIDE_LANES else REGISTERS) * ACCUMULATOR_SHARE
    kept = loops.chained & (loops.independent * loops.vectors <= registers)
    at_once = np.maximum(loops.independent, REORDERED_STEPS / loops.trips)
    steps = np.where(loops.automatic, instructions, executions / width)
    waiting = loops.chained * steps / (calibration.chained_flops_per_second * at_once)

    access = _access_seconds(columns, loops, kept, packing, lanes, calibration)
    # straight code in the loop that the compiler makes vectors of
    inside = np.where(loops.place > 0, loops.copies, 1.0)
    looping = np.where(loops.automatic, instructions / inside, executions / loops.copies) * scalar_slot
    deciding = columns["is_guarded"] * np.where(loops.automatic, instructions, executions) * scalar_slot
    # each sum once for each round of the loop around the straight code
    rounds = executions / loops.copies * loops.independent
    moving = (columns["lane_parts"] > 1) * (width > lanes) * kept * rounds * width * MOVED_SLOTS * scalar_slot
    scattering = loops.scattered * executions * SCATTERED_SLOTS * scalar_slot
    return overlapped(compute, access, waiting) + looping + deciding + moving + scattering


def _access_seconds(
    columns: dict[str, Values],
    loops: Nest,
    kept: Bool[np.ndarray, " rows"],
    packing: Values,
    lanes: int,
    calibration: Calibration,
) -> Values:
    """Seconds of the loads and stores that no register saves; `kept` says whose sums stay in registers."""
    executions, width = columns["executions"], np.maximum(columns["lanes"], 1.0)
    extent = np.maximum(columns["inner1_extent"], 1.0)
    vectorised, automatic = loops.vectorised, loops.automatic
    wide = vectorised | automatic
    calls = executions / np.where(automatic, loops.across, width)
    # what is left beyond whole vectors is moved in powers of two, which are joined
    rest = np.bitwise_count((width % lanes).astype(np.int64))
    parts = np.floor(width / lanes) + np.where(rest > 0, 2.0 * rest - 1.0, 0.0)
    whole, vectors = (np.where(automatic, _pieces(loops.across, lanes), number) for number in (loops.vectors, parts))
    scalar_slot = 2.0 / calibration.scalar_flops_per_second
    byte_seconds = 1.0 / calibration.levels[0].core_bytes_per_second
    reduces = (columns["reduction_extent"] > 1) & (columns["is_init"] == 0)
    second_straight = columns["inner2_is_straight"] > 0
    first_straight = columns["inner1_is_straight"] > 0
    total, listed = np.zeros(len(executions)), np.zeros(len(executions))
    for access in ACCESSES:
        there = columns[f"{access}_buffer_bytes"] > 0
        stride, outer = _stride(columns, access, loops.place), columns[f"{access}_stride_2"]
        trips, distance = np.maximum(columns[f"{access}_reuse_trips"], 1.0), columns[f"{access}_reuse_distance"]
        summed = reduces & _is_target(columns, access)
        # in vectors: side by side one instruction a vector, the same for all lanes one, else one a lane
        count = np.where(
            # registers without room are put away as they are
            stride == 1,
            calls * np.where(summed & ~kept, whole, vectors),
            np.where(stride == 0, calls, calls * np.where(automatic, loops.across, width)),
        )
        count = np.where(wide, count, executions / np.where(stride <= 1, packing, 1.0))
        uneven = wide & (columns[f"{access}_runs"] > UNEVEN_RUNS)
        count = np.where(uneven, calls * width * GATHERED_SLOTS, count)
        # what straight code has loaded, or a loop does not move, is there
        reuse = np.where((trips * distance <= loops.copies) & ~((stride == 0) & vectorised), trips, 1.0)
        reuse = np.where(
            (stride == 0) & vectorised & (outer == 0) & second_straight,
            np.maximum(columns["inner2_extent"], 1.0),
            reuse,
        )
        reuse = np.where((stride == 0) & ~wide & ~first_straight, np.maximum(reuse, extent), reuse)
        # what is summed up is loaded and stored where it leaves the register
        reuse = np.where(summed, np.where(kept, loops.trips, 1.0), reuse)
        in_one = np.where(wide & (stride == 1) & ~uneven, np.where(automatic, lanes, np.minimum(width, lanes)), 1.0)
        total += there * count / reuse * np.maximum(scalar_slot, 4.0 * in_one * byte_seconds)
        listed += there
    others = np.maximum(columns["accesses"] - listed, 0.0)
    slot = np.where(wide, np.maximum(scalar_slot, 4.0 * lanes * byte_seconds), scalar_slot)
    return total + others * np.where(wide, calls * vectors, executions) * slot


def _pieces(count: Values, lanes: int) -> Values:
    """Machine vectors, whole ones and then powers of two, that so many lanes take."""
    pieces: Values = np.floor(count / lanes) + np.bitwise_count((count % lanes).astype(np.int64))
    return pieces


def _stride(columns: dict[str, Values], access: str, place: Int64[np.ndarray, " rows"]) -> Values:
    """Of an access in the loop at `place`."""
    strides = np.stack([columns[f"{access}_stride_{number + 1}"] for number in range(INNER_LOOPS)], axis=1)
    taken: Values = np.take_along_axis(strides, place[:, None], axis=1)[:, 0]
    return taken


def _is_target(columns: dict[str, Values], access: str) -> Bool[np.ndarray, " rows"]:
    """Whether an access goes where the store goes."""
    same = np.ones(len(columns["executions"]), dtype=bool)
    for name in ("stride_1", "stride_2", "buffer_bytes", "touched_bytes"):
        same &= columns[f"{access}_{name}"] == columns[f"target_{name}"]
    return same
