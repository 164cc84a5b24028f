"""Where a function can go from each block, and the loops that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx

from kernelcast.graphs.machine_code.listing import Block

ENTRY = 0
"""The block that a function begins with."""


@dataclass(frozen=True)
class Loop:
    """A natural loop: all ways into it lead through its header.

    Attributes:
        header: its first block.
        blocks: all of them.
        latches: those that jump back to the header.
        parent: header of the smallest loop around it; None of an outermost one.
    """

    header: int
    blocks: frozenset[int]
    latches: tuple[int, ...]
    parent: int | None


@dataclass(frozen=True)
class ControlFlow:
    """What follows from the jumps of a function.

    Attributes:
        successors: of each block.
        dominator: of each block that can be reached the last one that all ways to it lead through; of the entry itself.
        loops: the largest ones first.
    """

    successors: tuple[tuple[int, ...], ...]
    dominator: dict[int, int]
    loops: tuple[Loop, ...]

    def dominates(self, block: int, other: int) -> bool:
        """All ways to `other` lead through `block`."""
        while other not in (block, ENTRY):
            other = self.dominator[other]
        return other == block

    def way(self, first: int, last: int) -> list[int]:
        """The blocks that all ways from `first` to `last` have in common, in their order; `first` dominates."""
        found = [last]
        while found[-1] not in (first, ENTRY):
            found.append(self.dominator[found[-1]])
        return found[::-1]


def control_flow(blocks: Sequence[Block]) -> ControlFlow:
    """Finds the loops of a function (Aho et al., Compilers, section 9.6)."""
    places = {block.label: place for place, block in enumerate(blocks) if block.label}
    successors = tuple(tuple(_successors(blocks, place, places)) for place in range(len(blocks)))
    graph = networkx.DiGraph()
    graph.add_node(ENTRY)
    graph.add_edges_from((place, after) for place, found in enumerate(successors) for after in found)
    dominator = {**networkx.immediate_dominators(graph, ENTRY), ENTRY: ENTRY}
    flow = ControlFlow(successors, dominator, ())
    latches: dict[int, list[int]] = {}
    for place in sorted(dominator):
        for after in successors[place]:
            if flow.dominates(after, place):
                latches.setdefault(after, []).append(place)
    bodies = {header: _body(graph, header, found, dominator) for header, found in latches.items()}
    ordered = sorted(bodies, key=lambda header: (-len(bodies[header]), header))
    loops = tuple(Loop(header, bodies[header], tuple(latches[header]), _parent(header, bodies)) for header in ordered)
    return ControlFlow(successors, dominator, loops)


def _successors(blocks: Sequence[Block], place: int, places: dict[str, int]) -> list[int]:
    block, found = blocks[place], []
    jump = block.jump
    if jump is not None and jump.operands and jump.operands[0] in places:
        found.append(places[jump.operands[0]])
    goes_on = not block.returns and (jump is None or jump.opcode != "jmp")
    if goes_on and place + 1 < len(blocks):
        found.append(place + 1)
    return found


def _body(graph: networkx.DiGraph, header: int, latches: Sequence[int], reached: dict[int, int]) -> frozenset[int]:
    """All blocks from which a latch is reached without the header."""
    body, waiting = {header}, list(latches)
    while waiting:
        block = waiting.pop()
        if block not in body:
            body.add(block)
            waiting += [before for before in graph.predecessors(block) if before in reached]
    return frozenset(body)


def _parent(header: int, bodies: dict[int, frozenset[int]]) -> int | None:
    around = [other for other, body in bodies.items() if other != header and header in body]
    return min(around, key=lambda other: len(bodies[other]), default=None)
