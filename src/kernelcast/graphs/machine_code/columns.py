"""The columns of the view `machine_code`: instructions and cycles of a whole program, over all its threads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.machine_code.control_flow import ControlFlow, control_flow
from kernelcast.graphs.machine_code.cycles import Cycles, cycles_of
from kernelcast.graphs.machine_code.instructions import Instruction, Kind
from kernelcast.graphs.machine_code.listing import PARALLEL, Block, functions
from kernelcast.graphs.machine_code.trip_counts import trip_counts
from kernelcast.graphs.views import FlatFeatures
from kernelcast.graphs.vocabulary import Column

MACHINE_CODE_VERSION = 2
"""Raised whenever a column changes its meaning: part of the version of the features."""

CYCLES = "cycles"
PARALLEL_CYCLES = "parallel_cycles"

WIDTHS = (4, 16, 32, 64)
"""Bytes of a single float and of the vector registers."""

CHAINED_TRIPS = 3
"""A loop that turns no more often than this does not wait for itself: its iterations are all under way at once."""

_COUNTED = "log1p of a count"
_IN_CYCLES = "log1p of cycles"
_OF_KIND = {
    Kind.GATHER: ("gathers", "Vectors loaded lane by lane."),
    Kind.SCATTER: ("scatters", "Vectors stored lane by lane."),
    Kind.SHUFFLE: ("shuffles", "Lanes moved within or between vectors."),
    Kind.MOVE: ("moves", "Copies of a vector register."),
    Kind.VECTOR: ("vector_operations", "Operations on vectors that are no arithmetic of floats."),
    Kind.MASK: ("mask_operations", "Operations on masks of lanes."),
    Kind.BRANCH: ("branches", "Jumps."),
    Kind.CALL: ("calls", "Calls, of exp and the like among them."),
    Kind.DIVISION: ("divisions", "Divisions and square roots of floats."),
}

COLUMNS = (
    Column("instructions", _COUNTED, "All instructions."),
    *(Column(f"arithmetic_{width}", _COUNTED, f"Operations on floats of {width} bytes at once.") for width in WIDTHS),
    Column("multiply_adds", _COUNTED, "Of these the multiply-adds."),
    *(Column(f"loads_{width}", _COUNTED, f"Loads of {width} bytes into a vector register.") for width in WIDTHS),
    *(Column(f"stores_{width}", _COUNTED, f"Stores of {width} bytes out of a vector register.") for width in WIDTHS),
    Column("broadcasts", _COUNTED, "One float loaded into all lanes."),
    *(Column(name, _COUNTED, meaning) for name, meaning in _OF_KIND.values()),
    Column("integer_operations", _COUNTED, "Operations on addresses, counters and other whole numbers."),
    Column("stack_loads", _COUNTED, "Loads of what a register had no room for."),
    Column("stack_stores", _COUNTED, "Stores of what a register has no room for."),
    Column("resized_reloads", _COUNTED, "Loads of more than what was just stored there: no store forwards to them."),
    Column(CYCLES, _IN_CYCLES, "All of it, one core alone, everything in the first cache (`cycles.Cycles.total`)."),
    Column("busiest_cycles", _IN_CYCLES, "Of the busiest unit of each loop."),
    *(
        Column(f"{part}_cycles", _IN_CYCLES, meaning)
        for part, meaning in (
            ("issue", "To issue the instructions."),
            ("arithmetic", "Of the units for floats."),
            ("memory", "Of loads and stores."),
            ("shuffle", "Of the units that move lanes."),
            ("chain", "Of waiting for the iteration before."),
            ("extra", "Of gathers, calls, divisions, with which nothing overlaps."),
        )
    ),
    Column(PARALLEL_CYCLES, _IN_CYCLES, "What of `cycles` lies in the bodies of parallel loops."),
    Column("loops", _COUNTED, "Loops in the code."),
    Column("depth", _COUNTED, "Loops around the innermost one, itself included."),
    Column("guessed_loops", _COUNTED, "Loops whose iterations no constant tells; twice is taken."),
    Column("code_instructions", _COUNTED, "Instructions in the code, each once."),
    Column("heaviest_share", "log1p of a share", "Share of `cycles` of the loop that takes most."),
    Column("heaviest_trips", _COUNTED, "Iterations of that loop each time."),
    Column("heaviest_chain", _IN_CYCLES, "That one iteration of it waits for the one before."),
    Column("heaviest_arithmetic", _IN_CYCLES, "Of the units for floats in one iteration of it."),
    Column("heaviest_instructions", _COUNTED, "In one iteration of it."),
)  # fmt: skip

COLUMN_NAMES = tuple(column.name for column in COLUMNS)


@dataclass(frozen=True)
class Region:
    """Code that is executed equally often: of one loop, without the loops in it.

    Attributes:
        instructions: of it, in their order.
        executions: over the whole program.
        trips: iterations of the loop each time; 1 outside of loops.
        cycles: of one execution.
        parallel: in the body of a parallel loop.
    """

    instructions: list[Instruction]
    executions: float
    trips: float
    cycles: Cycles
    parallel: bool


def machine_code_rows(assemblies: Sequence[str]) -> FlatFeatures:
    """One row a program.

    Args:
        assemblies: x86-64 assembly of each, see `tvm_compat.assembly`.

    Raises:
        MalformedDataError: there is no function that computes.
    """
    rows = [machine_code_row(assembly) for assembly in assemblies]
    values = np.stack(rows) if rows else np.zeros((0, len(COLUMNS)))
    return FlatFeatures(COLUMN_NAMES, np.log1p(values).astype(np.float32))


def machine_code_row(assembly: str) -> Float64[np.ndarray, " columns"]:
    """The columns of one program before scaling; raises as `machine_code_rows` does."""
    listed = functions(assembly)
    if not listed:
        raise MalformedDataError(
            "the assembly of a program has no function that computes: it is not what TVM makes for x86-64 on Linux; "
            "leave `machine_code` out of features.views"
        )
    found: Counter[str] = Counter()
    regions: list[Region] = []
    for name, blocks in listed.items():
        flow = control_flow(blocks)
        trips, guessed = trip_counts(name, blocks, flow)
        regions += _regions(blocks, flow, trips, name.startswith(PARALLEL))
        depth = _depths(flow)
        found["loops"] += len(flow.loops)
        found["guessed_loops"] += guessed
        found["depth"] = max(found["depth"], *depth.values(), 0)
        found["code_instructions"] += sum(len(block.instructions) for block in blocks)
    totals: dict[str, float] = defaultdict(float, found)
    for region in regions:
        for column, count in _counts(region.instructions).items():
            totals[column] += region.executions * count
        for column, cycles in _cycles(region).items():
            totals[column] += region.executions * cycles
    if regions:
        totals.update(_heaviest(regions, totals[CYCLES]))
    return np.array([totals[name] for name in COLUMN_NAMES], dtype=np.float64)


def _regions(blocks: Sequence[Block], flow: ControlFlow, trips: dict[int, float], parallel: bool) -> list[Region]:
    innermost: dict[int, int] = {}
    executions: dict[int, float] = defaultdict(lambda: 1.0)
    # from the largest loop to the smallest one
    for loop in flow.loops:
        for block in loop.blocks:
            innermost[block] = loop.header
            executions[block] *= trips[loop.header]
    has_loops = {loop.parent for loop in flow.loops}
    of_loop: dict[int | None, list[int]] = defaultdict(list)
    for block in sorted(flow.dominator):
        of_loop[innermost.get(block)].append(block)
    regions = []
    for header, places in of_loop.items():
        instructions = [instruction for place in places for instruction in blocks[place].instructions]
        turned = trips[header] if header is not None else 1.0
        repeated = header is not None and header not in has_loops and turned > CHAINED_TRIPS
        if instructions:
            cycles = cycles_of(instructions, repeated)
            regions.append(Region(instructions, executions[places[0]], turned, cycles, parallel))
    return regions


def _depths(flow: ControlFlow) -> dict[int, int]:
    depth: dict[int, int] = {}
    for loop in flow.loops:
        depth[loop.header] = 1 + (depth[loop.parent] if loop.parent is not None else 0)
    return depth


def _counts(instructions: Sequence[Instruction]) -> Counter[str]:
    """Instructions by the columns that count them."""
    found: Counter[str] = Counter(instructions=len(instructions))
    stored: dict[str, int] = {}
    for instruction in instructions:
        kind, width = instruction.kind, _counted_width(instruction.width)
        if kind in (Kind.ARITHMETIC, Kind.DIVISION):
            found[f"arithmetic_{width}"] += 1
            found["multiply_adds"] += instruction.fused
        if kind in _OF_KIND:
            found[_OF_KIND[kind][0]] += 1
        found["integer_operations"] += kind is Kind.INTEGER
        if (address := instruction.load) is not None and kind is not Kind.GATHER:
            if instruction.broadcasts:
                found["broadcasts"] += 1
            elif not instruction.is_scalar:
                found[f"loads_{_counted_width(instruction.loaded)}"] += 1
            found["stack_loads"] += _on_stack(address) and not instruction.is_scalar
            found["resized_reloads"] += stored.get(address, instruction.loaded) < instruction.loaded
        if (address := instruction.store) is not None and kind is not Kind.SCATTER:
            if not instruction.is_scalar:
                found[f"stores_{width}"] += 1
            found["stack_stores"] += _on_stack(address) and not instruction.is_scalar
            stored[address] = instruction.width
    return found


def _cycles(region: Region) -> dict[str, float]:
    cycles = region.cycles
    return {
        CYCLES: cycles.total,
        PARALLEL_CYCLES: cycles.total * region.parallel,
        "busiest_cycles": cycles.busiest,
        "issue_cycles": cycles.issue,
        "arithmetic_cycles": cycles.arithmetic,
        "memory_cycles": cycles.memory,
        "shuffle_cycles": cycles.shuffle,
        "chain_cycles": cycles.chain,
        "extra_cycles": cycles.extra,
    }


def _heaviest(regions: Sequence[Region], cycles: float) -> dict[str, float]:
    heaviest = max(regions, key=lambda region: region.executions * region.cycles.total)
    return {
        "heaviest_share": heaviest.executions * heaviest.cycles.total / cycles if cycles else 0.0,
        "heaviest_trips": heaviest.trips,
        "heaviest_chain": heaviest.cycles.chain,
        "heaviest_arithmetic": heaviest.cycles.arithmetic,
        "heaviest_instructions": float(len(heaviest.instructions)),
    }


def _counted_width(width: int) -> int:
    """The column of a width: a double counts as a float."""
    return width if width in WIDTHS else WIDTHS[0] if width < WIDTHS[1] else WIDTHS[1]


def _on_stack(address: str) -> bool:
    # LLVM uses rbp as any other register here
    return "%rsp" in address
