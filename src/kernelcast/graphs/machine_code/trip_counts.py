"""How often the loops of a function turn, from what they compare before they jump back.

A counter is followed backwards through moves, additions and the stack: from the comparison to the header of the loop,
from the latch to the header (its step), and from the header out of the loop (where it starts).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from kernelcast.graphs.machine_code.control_flow import ENTRY, ControlFlow, Loop
from kernelcast.graphs.machine_code.instructions import Instruction, Kind, immediate, is_on_stack, is_slot, register
from kernelcast.graphs.machine_code.listing import PARALLEL, Block

UNKNOWN_TRIPS = 2.0
"""Taken for a loop that ends nobody knows when."""

FLAG_TRIPS = 2.0
"""Of a loop whose counter is a flag."""

MOST_TRIPS = 10**6
"""No loop turns more often; a larger number was read wrongly."""

_DISPLACED = re.compile(r"(-?\d{1,19})?\((%\w+)\)$")
_CALL_CHANGES = frozenset({"rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"})
_SETS_FLAGS = re.compile(
    r"(cmp|test|add|sub|dec|inc|and|xor|or|neg|shl|shr|sar|bt)[bwlq]?$|k(or)?test[bwdq]$|v?u?comis[sdh]$|v?ptest$|vtestp[sd]$"
)
_JUMPS_BEYOND = ("ja", "jbe", "jg", "jle")
"""Of the comparisons those that are decided one step after the bound is met."""

Value = tuple[str | None, int]
"""Where a number comes from and what was added to it since; from nowhere for a constant."""


def trip_counts(name: str, blocks: Sequence[Block], flow: ControlFlow) -> tuple[dict[int, float], int]:
    """Iterations of each loop by its header, and how many of them are guessed.

    The loop that a parallel one is split into goes from one register to another; over all threads it turns as often as
    the body of the parallel loop is called for. LLVM may have made several of it, for whole vectors and for the rest:
    they share its iterations, the one of the largest steps first.

    Args:
        name: of the function.
        blocks: of it.
        flow: of `control_flow`.
    """
    extent = _parallel_extent(blocks) if name.startswith(PARALLEL) else None
    trips: dict[int, float] = {}
    shared: dict[int, int] = {}
    guessed = 0
    for loop in flow.loops:
        found, step = _of_loop(loop, blocks, flow)
        if found is None and extent is not None and loop.parent is None:
            shared[loop.header] = step
            continue
        guessed += found is None
        trips[loop.header] = UNKNOWN_TRIPS if found is None else min(max(found, 1.0), float(MOST_TRIPS))
    if len(shared) > 1:
        shared = _units(shared, blocks, flow)
    left = extent or 0
    for header in sorted(shared, key=lambda header: -shared[header]):
        trips[header] = float(left // shared[header])
        left %= shared[header]
    return trips, guessed


def _units(shared: dict[int, int], blocks: Sequence[Block], flow: ControlFlow) -> dict[int, int]:
    """How many iterations of the parallel loop one turn of each loop makes; `shared` has the steps of their counters.

    One may count iterations and another one bytes: what they store tells, where all of them store.
    """
    stored = {
        loop.header: sum(
            one.width
            for one in _instructions(sorted(loop.blocks), blocks)
            if one.store is not None and not one.is_scalar and not is_on_stack(one.store)
        )
        for loop in flow.loops
        if loop.header in shared
    }
    least = min(stored.values())
    return {header: max(1, round(size / least)) for header, size in stored.items()} if least else shared


def _parallel_extent(blocks: Sequence[Block]) -> int:
    """Iterations of a parallel loop, which its body compares its own share with before all else."""
    compared = [
        bound
        for instruction in blocks[ENTRY].instructions
        if instruction.opcode.startswith("cmpl") and instruction.operands
        for bound in [immediate(instruction.operands[0])]
        if bound is not None
    ]
    return max(compared[-1], 1) if compared else 1


def _of_loop(loop: Loop, blocks: Sequence[Block], flow: ControlFlow) -> tuple[float | None, int]:
    """Iterations of a loop, None where they are not told by constants, and then the step of its counter or 1."""
    best, step = None, 1
    around = _instructions(flow.way(ENTRY, flow.dominator[loop.header]), blocks) if loop.header != ENTRY else []
    for block in sorted(loop.blocks):
        jump = blocks[block].jump
        leaves = any(after not in loop.blocks for after in flow.successors[block])
        if jump is None or jump.opcode == "jmp" or not leaves:
            continue
        # where a loop goes on from several places, each has a comparison of its own; where LLVM skips it on the way to
        # the latch, the other ways tell
        latch = next((latch for latch in loop.latches if flow.dominates(block, latch)), loop.latches[0])
        turn = _instructions(flow.way(loop.header, latch), blocks)
        before = _instructions(flow.way(loop.header, block), blocks)
        flags = _flags(before)
        if flags is not None and _tests_a_bit(before[flags]):
            best = FLAG_TRIPS if best is None else min(best, FLAG_TRIPS)
        for counter, bound, upto in _comparisons(before, flags):
            found, moved = _turns(counter, bound, before[:upto], turn, around, jump)
            step = max(step, moved)
            if found is not None:
                best = found if best is None else min(best, found)
    return best, step


def _flags(before: Sequence[Instruction]) -> int | None:
    """The place of the last instruction that sets flags."""
    for place in range(len(before) - 1, -1, -1):
        if _SETS_FLAGS.match(before[place].opcode):
            return place
    return None


def _tests_a_bit(flags: Instruction) -> bool:
    """It asks for a single bit: what LLVM keeps of the counter of a loop that turns twice."""
    return flags.opcode.startswith("test") and flags.operands[:1] == ("$1",)


def _comparisons(before: Sequence[Instruction], last: int | None) -> list[tuple[str, str | int, int]]:
    """What the flags set at `last` compare: a counter, its bound, and up to where the instructions count."""
    if last is None:
        return []
    flags = before[last]
    if flags.opcode.startswith("cmp") and len(flags.operands) == 2:
        first, second = (_place(operand) for operand in flags.operands)
        bound = immediate(flags.operands[0])
        if bound is not None:
            return [(second, bound, last)] if second else []
        return [(first, second, last), (second, first, last)] if first and second else []
    if flags.opcode.startswith(("add", "sub", "dec", "inc")):
        return [(flags.changes[0], 0, last + 1)] if flags.changes else []
    if flags.opcode.startswith("test") and len(set(flags.operands)) == 1:
        place = _place(flags.operands[0])
        return [(place, 0, last)] if place else []
    return []


def _turns(
    counter: str,
    bound: str | int,
    before: Sequence[Instruction],
    turn: Sequence[Instruction],
    around: Sequence[Instruction],
    jump: Instruction,
) -> tuple[float | None, int]:
    """Iterations until the comparison ends the loop, None where a constant is missing; and the step of the counter.

    With the counter c at the header, compared as c + o with the bound b, started at s and moved by t each time, the
    comparison meets the bound in iteration (b - s - o) / t, counted from 0.
    """
    compared = traced(counter, before)
    if compared is None or compared[0] is None:
        return None, 1
    origin, offset = compared
    assert origin is not None
    moved = traced(origin, turn)
    if moved is None or moved[0] != origin or moved[1] == 0:
        return None, 1
    step, start = moved[1], traced(origin, around)
    end: Value | None = (None, bound) if isinstance(bound, int) else _staying(bound, before, turn, around)
    if start is None or end is None or start[0] != end[0]:
        return None, abs(step)
    met = (end[1] - start[1] - offset) / step
    last = math.floor(met) + 1 if jump.opcode in _JUMPS_BEYOND else math.ceil(met)
    return (float(last + 1) if last >= 0 else None), abs(step)


def _staying(
    bound: str, before: Sequence[Instruction], turn: Sequence[Instruction], around: Sequence[Instruction]
) -> Value | None:
    """What a bound in a register is outside of the loop, None where the loop changes it."""
    at_header = traced(bound, before)
    if at_header is None or at_header[0] is None:
        return at_header
    origin, added = at_header
    assert origin is not None
    outside = traced(origin, around) if traced(origin, turn) == (origin, 0) else None
    return None if outside is None else (outside[0], outside[1] + added)


def traced(place: str, instructions: Sequence[Instruction]) -> Value | None:
    """What a register or a slot of the stack holds at the end, in terms of the beginning; None where nobody knows."""
    added = 0
    for instruction in reversed(instructions):
        if instruction.kind is Kind.CALL and place in _CALL_CHANGES:
            return None
        if place not in instruction.changes:
            continue
        opcode, operands = instruction.opcode, instruction.operands
        constant = immediate(operands[0]) if len(operands) == 2 else None
        displaced = _DISPLACED.match(operands[0]) if opcode.startswith("lea") else None
        if opcode.startswith("inc"):
            added += 1
        elif opcode.startswith("dec"):
            added -= 1
        elif opcode.startswith("add") and constant is not None:
            added += constant
        elif opcode.startswith("sub") and constant is not None:
            added -= constant
        elif opcode.startswith("mov") and constant is not None:
            return None, added + constant
        elif opcode.startswith(("xor", "sub")) and len(set(operands)) == 1:
            return None, added
        elif displaced is not None:
            place, added = register(displaced.group(2)), added + int(displaced.group(1) or 0)
        elif opcode.startswith("mov") and len(operands) == 2 and (source := _place(operands[0])):
            place = source
        else:
            return None
    return place, added


def _place(operand: str) -> str:
    """The register or the slot of the stack that an operand is; empty for another one."""
    if operand.startswith("%"):
        return register(operand)
    return operand if is_slot(operand) else ""


def _instructions(places: Sequence[int], blocks: Sequence[Block]) -> list[Instruction]:
    return [instruction for place in places for instruction in blocks[place].instructions]
