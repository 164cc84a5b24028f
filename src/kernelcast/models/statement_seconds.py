"""How long one core takes over each statement of a program while all that it touches is in the first cache.

Counts of instructions from the columns of the `statements` view, times what the machine takes for one of each kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from kernelcast.graphs.flat_columns import INNER_LOOPS
from kernelcast.machine import Calibration
from kernelcast.models.compiled_nest import ACCESSES, UNEVEN_RUNS, WIDE_LANES, Nest, Values, nest, vector_pieces

TRANSCENDENTAL_SLOTS = 20
"""Instructions of one exp, tanh or the like: a polynomial of about ten terms and what surrounds it."""

PACKED_LANES = 4
"""Neighbouring scalar operations in straight code that LLVM packs into one vector: the shortest vectors that all
instruction sets have."""

REORDERED_STEPS = 128
"""Steps that are under way at once: reorder buffers hold 250 to 500 instructions, two or three a step. Chains shorter
than this do not wait for each other."""

ACCUMULATOR_SHARE = 0.75
"""Of the registers; the others hold the operands."""

REGISTERS, WIDE_REGISTERS = 16, 32
"""Vector registers of AVX2 and of AVX-512, which is the one with `WIDE_LANES`."""

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


@dataclass(frozen=True)
class StatementSeconds:
    """What keeps one core busy in all executions of each statement; the first three overlap.

    Attributes:
        loops: what the compiler makes of the loops around.
        compute: operations.
        access: loads and stores that no register saves.
        waiting: of each step of a sum for the one before.
        overhead: of loops that stay loops, conditions, sums that are moved lane by lane, scattered stores.
    """

    loops: Nest
    compute: Values
    access: Values
    waiting: Values
    overhead: Values

    @property
    def total(self) -> Values:
        """All of it."""
        together: Values = overlapped(self.compute, self.access, self.waiting)
        return together + self.overhead


def overlapped(*seconds: np.ndarray) -> np.ndarray:
    """The time of several kinds of work that mostly go on at once: no less than the longest, no more than the sum."""
    largest = np.maximum(np.max(seconds, axis=0), np.finfo(np.float64).tiny)
    total: np.ndarray = np.sum([(part / largest) ** OVERLAP for part in seconds], axis=0)
    return largest * total ** (1.0 / OVERLAP)


def core_seconds(columns: dict[str, Values], lanes: int, calibration: Calibration) -> StatementSeconds:
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
    instructions = calls * np.where(loops.automatic, vector_pieces(loops.across, lanes), loops.vectors)
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
    return StatementSeconds(loops, compute, access, waiting, looping + deciding + moving + scattering)


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
    whole, vectors = (
        np.where(automatic, vector_pieces(loops.across, lanes), number) for number in (loops.vectors, parts)
    )
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
        uneven = vectorised & (columns[f"{access}_runs"] > UNEVEN_RUNS)
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
