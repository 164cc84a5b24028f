"""From the assembly of a program to its row in the view `machine_code`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.machine_code.columns import COLUMN_NAMES, CYCLES, OF_KIND, PARALLEL_CYCLES, WIDTHS
from kernelcast.graphs.machine_code.control_flow import ControlFlow, control_flow
from kernelcast.graphs.machine_code.cycles import Cycles, cycles_of
from kernelcast.graphs.machine_code.instructions import Instruction, Kind, is_on_stack
from kernelcast.graphs.machine_code.listing import PARALLEL, Block, functions
from kernelcast.graphs.machine_code.trip_counts import trip_counts
from kernelcast.graphs.views import FlatFeatures
from kernelcast.tvm_compat import assembly

CHAINED_TRIPS = 3
"""A loop that turns no more often than this does not wait for itself: its iterations are all under way at once."""


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


def machine_code_rows(modules: Iterable[Any], target: dict[str, Any]) -> FlatFeatures:
    """One row a program, which is built for it and not run.

    Args:
        modules: what is built, see `tvm_compat.runnable_module`; read one by one.
        target: what for.

    Raises:
        ConfigError: code for this target is no x86-64 code.
        MalformedDataError: one cannot be built, or its code has no function that computes.
    """
    return machine_code_features(machine_code_row(assembly(module, target)) for module in modules)


def machine_code_features(rows: Iterable[Float64[np.ndarray, " columns"]]) -> FlatFeatures:
    """The view of rows of `machine_code_row`."""
    found = list(rows)
    values = np.stack(found) if found else np.zeros((0, len(COLUMN_NAMES)))
    return FlatFeatures(COLUMN_NAMES, np.log1p(values).astype(np.float32))


def machine_code_row(listing: str) -> Float64[np.ndarray, " columns"]:
    """The columns of one program before scaling.

    Args:
        listing: its assembly, see `tvm_compat.assembly`.

    Raises:
        MalformedDataError: there is no function that computes.
    """
    listed = functions(listing)
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
        if kind in OF_KIND:
            found[OF_KIND[kind][0]] += 1
        found["integer_operations"] += kind is Kind.INTEGER
        if (address := instruction.load) is not None and kind is not Kind.GATHER:
            if instruction.broadcasts:
                found["broadcasts"] += 1
            elif not instruction.is_scalar:
                found[f"loads_{_counted_width(instruction.loaded)}"] += 1
            found["stack_loads"] += is_on_stack(address) and not instruction.is_scalar
            found["resized_reloads"] += stored.get(address, instruction.loaded) < instruction.loaded
        if (address := instruction.store) is not None and kind is not Kind.SCATTER:
            if not instruction.is_scalar:
                found[f"stores_{width}"] += 1
            found["stack_stores"] += is_on_stack(address) and not instruction.is_scalar
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
