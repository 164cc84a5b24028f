"""What of one program corresponds to what of another one, so that differences can be shown.

Schedules of one workload mostly differ in how loops are nested: the same blocks stand under other loops. So blocks are
paired first, then the loops around each pair, then what is inside.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from jaxtyping import Float32, Int16, Int32, Int64

from kernelcast.graphs.vocabulary import NODE_KIND_INDEX, NODE_KINDS

_BLOCK = NODE_KIND_INDEX["block"]
_STORE, _LOAD = NODE_KIND_INDEX["store"], NODE_KIND_INDEX["load"]
_AXES = frozenset(NODE_KIND_INDEX[kind] for kind in NODE_KINDS if kind.startswith("axis_"))
_LOOPS = frozenset(NODE_KIND_INDEX[kind] for kind in NODE_KINDS if kind.startswith("loop_"))

Pairs = list[tuple[int | None, int | None]]
Keys = tuple[Sequence[Hashable], Sequence[Hashable]]


def aligned(*levels: Keys) -> Pairs:
    """Pairs the entries of two sequences in order; what has no counterpart is paired with None.

    Args:
        levels: keys of both sequences, the finest first: entries that no finer key pairs are paired by the next one.
            Those that no key pairs stand for each other one by one, as far as there are as many.
    """
    (left, right), *coarser = levels
    pairs: Pairs = []
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for tag, start, stop, other_start, other_stop in matcher.get_opcodes():
        if tag == "replace" and coarser:
            inside = aligned(*((one[start:stop], other[other_start:other_stop]) for one, other in coarser))
            pairs += [
                (None if one is None else start + one, None if other is None else other_start + other)
                for one, other in inside
            ]
            continue
        common = min(stop - start, other_stop - other_start)
        pairs += [(start + place, other_start + place) for place in range(common)]
        pairs += [(place, None) for place in range(start + common, stop)]
        pairs += [(None, place) for place in range(other_start + common, other_stop)]
    return pairs


def line_keys(text: str) -> tuple[list[str], list[str]]:
    """The lines of a program's text without their indentation, and without numbers and names of fused loops too."""
    lines = [line.strip() for line in text.splitlines()]
    return lines, [_NAMES.sub("#", line) for line in lines]


_NAMES = re.compile(r"\b\w*fused\w*\b|\d+")


@dataclass(frozen=True)
class Tree:
    """One syntax tree, as `AstGraphs` has it.

    Attributes:
        kind: index into `NODE_KINDS`.
        parent: -1 at the root, node 0.
        features: what of a node has to be equal for a perfect match.
    """

    kind: Int16[np.ndarray, " nodes"]
    parent: Int32[np.ndarray, " nodes"]
    features: Float32[np.ndarray, "nodes features"]


def matched_nodes(left: Tree, right: Tree) -> Int64[np.ndarray, " nodes"]:
    """The counterpart in `right` of each node of `left`, -1 where it has none; no node has two."""
    return _Matching(left, right).result


class _Matching:
    def __init__(self, left: Tree, right: Tree) -> None:
        self.left, self.right = left, right
        self.children, self.other_children = _children(left), _children(right)
        self.shape, self.other_shape = _shapes(left, self.children), _shapes(right, self.other_children)
        self.essence, self.other_essence = _essences(left, self.children), _essences(right, self.other_children)
        self.result = np.full(len(left.kind), -1, dtype=np.int64)
        self.taken = np.zeros(len(right.kind), dtype=np.bool_)
        if not len(left.kind) or not len(right.kind):
            return
        self._pair(0, 0)
        blocks, other_blocks = (np.flatnonzero(tree.kind == _BLOCK).tolist() for tree in (left, right))
        for one, other in self._in_order(blocks, other_blocks):
            self._pair_around(one, other)
            self._pair(one, other)
        # a node comes after its parent
        for node in range(len(left.kind)):
            if self.result[node] >= 0:
                self._pair_children(node, int(self.result[node]))

    def _pair(self, node: int, other: int) -> None:
        if self.result[node] < 0 and not self.taken[other]:
            self.result[node] = other
            self.taken[other] = True

    def _pair_around(self, node: int, other: int) -> None:
        """Pairs the ancestors of two blocks that are not paired yet, below those that are."""
        above = _free_ancestors(self.left.parent, node, self.result >= 0)
        other_above = _free_ancestors(self.right.parent, other, self.taken)
        table = np.zeros((len(above) + 1, len(other_above) + 1), dtype=np.int64)
        for row in range(len(above) - 1, -1, -1):
            for column in range(len(other_above) - 1, -1, -1):
                likeness = self._likeness(above[row], other_above[column])
                table[row, column] = max(
                    table[row + 1, column],
                    table[row, column + 1],
                    table[row + 1, column + 1] + likeness if likeness else 0,
                )
        row = column = 0
        while row < len(above) and column < len(other_above):
            likeness = self._likeness(above[row], other_above[column])
            if likeness and table[row, column] == table[row + 1, column + 1] + likeness:
                self._pair(above[row], other_above[column])
                row, column = row + 1, column + 1
            elif table[row, column] == table[row + 1, column]:
                row += 1
            else:
                column += 1

    def _likeness(self, node: int, other: int) -> int:
        kind, other_kind = int(self.left.kind[node]), int(self.right.kind[other])
        if kind != other_kind:
            return 1 if kind in _LOOPS and other_kind in _LOOPS else 0
        return 3 if np.array_equal(self.left.features[node], self.right.features[other]) else 2

    def _pair_children(self, node: int, other: int) -> None:
        free = [child for child in self.children[node] if self.result[child] < 0]
        other_free = [child for child in self.other_children[other] if not self.taken[child]]
        for one, two in self._in_order(free, other_free):
            if self._likeness(one, two):
                self._pair(one, two)

    def _in_order(self, nodes: list[int], others: list[int]) -> list[tuple[int, int]]:
        """Pairs nodes in order: by all that is below them, else by what they compute, by kind, by place."""
        pairs = aligned(
            ([self.shape[node] for node in nodes], [self.other_shape[other] for other in others]),
            ([self.essence[node] for node in nodes], [self.other_essence[other] for other in others]),
            (self.left.kind[nodes].tolist(), self.right.kind[others].tolist()),
        )
        return [(nodes[one], others[two]) for one, two in pairs if one is not None and two is not None]


def _children(tree: Tree) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in tree.parent]
    for node, parent in enumerate(tree.parent.tolist()):
        if parent >= 0:
            children[parent].append(node)
    return children


def _shapes(tree: Tree, children: list[list[int]]) -> list[int]:
    """A hash of the kinds at and below each node."""
    shapes = [0] * len(children)
    for node in range(len(children) - 1, -1, -1):
        shapes[node] = hash((int(tree.kind[node]), *(shapes[child] for child in children[node])))
    return shapes


def _essences(tree: Tree, children: list[list[int]]) -> list[tuple[int, ...]]:
    """What is computed at and below each node: without loops, axes and indices, which a schedule changes."""
    essences: list[tuple[int, ...]] = [()] * len(children)
    for node in range(len(children) - 1, -1, -1):
        kind, below = int(tree.kind[node]), children[node]
        if kind == _LOAD or kind in _AXES:
            below = []
        elif kind == _STORE:
            # the value stands after the indices
            below = below[-1:]
        inside = tuple(part for child in below for part in essences[child])
        essences[node] = inside if kind in _LOOPS else () if kind in _AXES else (hash((kind, *inside)),)
    return essences


def _free_ancestors(parent: Int32[np.ndarray, " nodes"], node: int, paired: np.ndarray) -> list[int]:
    """Ancestors up to the first that is paired, outermost first."""
    above: list[int] = []
    node = int(parent[node])
    while node >= 0 and not paired[node]:
        above.append(node)
        node = int(parent[node])
    return above[::-1]
