"""How many cycles straight code keeps the units of a core busy, and how long its instructions wait for each other.

Widths of units are those of recent x86-64 cores with 256 bits a unit (Zen 4; Agner Fog's microarchitecture guide,
Abel and Reineke 2022, uiCA). What they are on another core changes all programs alike, or is learned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelcast.graphs.machine_code.instructions import Instruction, Kind, immediate, registers_of

ISSUED = 6.0
"""Instructions a cycle."""

UNIT_BYTES = 32
"""Of a vector unit: a wider instruction takes it twice."""

EXTRA = {Kind.GATHER: 8.0, Kind.SCATTER: 8.0, Kind.CALL: 8.0, Kind.INTEGER_DIVISION: 10.0}
"""Cycles in which nothing else goes on."""

BLOCK_CALLS = ("memset", "memcpy", "memmove")
"""Calls that fill or move a whole block of memory; its size is their third argument, in `rdx`."""

DIVISION_EXTRA = {16: 2.0, 32: 4.0, 64: 8.0}
"""The same of divisions and square roots, by their width."""

FORWARDED, RELOADED = 7.0, 18.0
"""Cycles from a store to a load of the same address, and where the load is the wider one, so that the store has to
reach the cache first."""

MOST_CHAINED = 4000
"""Instructions of a loop body beyond which no chain through it is looked for: it is longer than a core looks ahead."""

ROUNDS = 3
"""Iterations that are followed; the last one repeats."""

OVERLAP = 2.0
"""The p-norm of what overlaps, as in the analytical model."""


@dataclass(frozen=True)
class Cycles:
    """What one execution of straight code takes, in cycles.

    Attributes:
        issue: to issue its instructions.
        arithmetic: of the units for floating point.
        memory: of loads and stores.
        shuffle: of the units that move lanes.
        chain: that each iteration of a loop waits for the one before; 0 outside of an innermost loop.
        extra: of what nothing else overlaps with.
    """

    issue: float
    arithmetic: float
    memory: float
    shuffle: float
    chain: float
    extra: float

    @property
    def busiest(self) -> float:
        """Of the unit that has most to do."""
        return max(self.issue, self.arithmetic, self.memory, self.shuffle) + self.extra

    @property
    def total(self) -> float:
        """All of it: `(sum of part ** OVERLAP) ** (1 / OVERLAP) + extra`."""
        parts = np.array([self.issue, self.arithmetic, self.memory, self.shuffle, self.chain])
        return float(np.sum(parts**OVERLAP) ** (1.0 / OVERLAP)) + self.extra


def cycles_of(instructions: Sequence[Instruction], repeated: bool) -> Cycles:
    """Cycles of straight code.

    Args:
        instructions: of it.
        repeated: it is the body of an innermost loop.
    """
    arithmetic = loads = stores = shuffle = extra = 0.0
    size = 0  # that a call would be given
    for instruction in instructions:
        kind, width = instruction.kind, instruction.width
        times = 2.0 if width > UNIT_BYTES else 1.0
        if kind in (Kind.ARITHMETIC, Kind.DIVISION):
            arithmetic += 0.5 * times
        elif kind is Kind.SHUFFLE:
            shuffle += 0.5 * times
        elif kind is Kind.VECTOR:
            shuffle += 0.25
        if kind is Kind.DIVISION:
            extra += DIVISION_EXTRA.get(width, DIVISION_EXTRA[16])
        extra += EXTRA.get(kind, 0.0)
        if instruction.writes == ("rdx",) and instruction.operands:
            size = max(immediate(instruction.operands[0]) or 0, 0)
        if instruction.operands and instruction.operands[0].startswith(BLOCK_CALLS):
            extra += size / UNIT_BYTES
        if instruction.load is not None and kind is not Kind.GATHER:
            loads += 0.5 * times if instruction.loaded >= 16 else 0.5 if width >= 16 else 1.0 / 3.0
        if instruction.store is not None and kind is not Kind.SCATTER:
            stores += 0.5 if width < 16 else times
    return Cycles(
        issue=len(instructions) / ISSUED,
        arithmetic=arithmetic,
        memory=max(loads, stores),
        shuffle=shuffle,
        chain=_chain(instructions) if repeated and len(instructions) < MOST_CHAINED else 0.0,
        extra=extra,
    )


def _chain(instructions: Sequence[Instruction]) -> float:
    """Cycles by which one iteration ends later than the last one if only results are waited for."""
    moved = {name for instruction in instructions for name in instruction.writes}
    addresses = {instruction.store for instruction in instructions if instruction.store is not None}
    staying = {address for address in addresses if moved.isdisjoint(registers_of(address))}
    ready: defaultdict[str, float] = defaultdict(float)
    stored: dict[str, tuple[float, int]] = {}
    ends = []
    for _ in range(ROUNDS):
        for instruction in instructions:
            start = max((ready[name] for name in instruction.reads), default=0.0)
            if instruction.load in stored:
                written, width = stored[instruction.load]
                start = max(start, written + (FORWARDED if width >= instruction.loaded else RELOADED))
            end = start + instruction.latency
            for name in instruction.writes:
                ready[name] = end
            if instruction.store is not None:
                stored[instruction.store] = (end, instruction.width)
        ends.append(max(ready.values(), default=0.0))
        # the address of another iteration is another one, unless nothing in it moves
        stored = {address: found for address, found in stored.items() if address in staying}
    return ends[-1] - ends[-2]
