"""The edges of a syntax tree."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.index_terms import LOOP
from kernelcast.graphs.kernels.loop_facts import is_loop
from kernelcast.graphs.vocabulary import EDGE_KIND_INDEX, NODE_KIND_INDEX

BOTH, FORWARD, BACKWARD = range(3)
"""Which edges are kept: see `options.DIRECTIONS`."""

_CHILD, _SIBLING = EDGE_KIND_INDEX["parent_to_child"], EDGE_KIND_INDEX["next_sibling"]
_SAME_BUFFER, _USE = EDGE_KIND_INDEX["next_same_buffer"], EDGE_KIND_INDEX["definition_to_use"]
_FIRST_AXIS, _LAST_AXIS = NODE_KIND_INDEX["axis_spatial"], NODE_KIND_INDEX["axis_other"]
_VARIABLE = NODE_KIND_INDEX["variable"]


@compiled
def family_pairs(above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parents with their children, and siblings with the next one, as rows of two nodes."""
    count = len(above)
    children, siblings = np.empty((max(count - 1, 0), 2), np.int32), np.empty((count, 2), np.int32)
    latest = np.full(count, -1, np.int32)
    used = 0
    for number in range(1, count):
        children[number - 1, 0], children[number - 1, 1] = above[number], number
        if latest[above[number]] >= 0:
            siblings[used, 0], siblings[used, 1] = latest[above[number]], number
            used += 1
        latest[above[number]] = number
    return children, siblings[:used]


@compiled
def buffer_pairs(node: np.ndarray, access_row: np.ndarray, access_buffer: np.ndarray, buffers: int) -> np.ndarray:
    """Accesses with the next one to the same buffer."""
    pairs = np.empty((len(access_row), 2), np.int32)
    latest = np.full(buffers, -1, np.int32)
    used = 0
    for access in range(len(access_row)):
        number, buffer = node[access_row[access]], access_buffer[access]
        if number < 0:
            continue
        if latest[buffer] >= 0:
            pairs[used, 0], pairs[used, 1] = latest[buffer], number
            used += 1
        latest[buffer] = number
    return pairs[:used]


@compiled
def definition_pairs(
    node: np.ndarray, kind: np.ndarray, variable: np.ndarray, span: np.ndarray, terms: np.ndarray
) -> np.ndarray:
    """Loops with the axes that they drive, loops and axes with their uses."""
    bound = 0
    for row in range(len(kind)):
        axis = _FIRST_AXIS <= kind[row] <= _LAST_AXIS
        bound += span[row + 1, 1] - span[row + 1, 0] if axis else kind[row] == _VARIABLE
    pairs = np.empty((bound, 2), np.int32)
    definition = np.full(variable.max() + 1, -1, np.int32)
    used = 0
    for row in range(len(kind)):
        if is_loop(kind[row]):
            definition[variable[row]] = node[row]
        elif _FIRST_AXIS <= kind[row] <= _LAST_AXIS:
            definition[variable[row]] = node[row]
            # the binding stands right below
            for at in range(span[row + 1, 0], span[row + 1, 1]):
                pairs[used, 0], pairs[used, 1] = node[terms[at, LOOP]], node[row]
                used += 1
        elif kind[row] == _VARIABLE and node[row] >= 0 and definition[variable[row]] >= 0:
            pairs[used, 0], pairs[used, 1] = definition[variable[row]], node[row]
            used += 1
    return pairs[:used]


@compiled
def syntax_edges(
    above: np.ndarray,
    node: np.ndarray,
    kind: np.ndarray,
    variable: np.ndarray,
    span: np.ndarray,
    terms: np.ndarray,
    access_row: np.ndarray,
    access_buffer: np.ndarray,
    buffers: int,
    buffer_edges: bool,
    definition_edges: bool,
    direction: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source, target and kind of all edges: kind by kind, each followed by its reverse.

    Args:
        above: parent of each node.
        node: node of each row of the table, -1 where it is none.
        kind: of each row.
        variable: that a row defines or uses.
        span: terms of the bindings, see `index_values`.
        terms: the same.
        access_row: row of each access.
        access_buffer: what it accesses.
        buffers: how many there are.
        buffer_edges: whether accesses to one buffer are chained.
        definition_edges: whether definitions are linked with uses.
        direction: BOTH, FORWARD or BACKWARD.
    """
    nothing = np.empty((0, 2), np.int32)
    children, siblings = family_pairs(above)
    chained = buffer_pairs(node, access_row, access_buffer, buffers) if buffer_edges else nothing
    uses = definition_pairs(node, kind, variable, span, terms) if definition_edges else nothing
    ways = 2 if direction == BOTH else 1
    total = ways * (len(children) + len(siblings) + len(chained) + len(uses))
    source, target, edge_kind = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.int8)
    used = 0
    for forward, pairs in ((_CHILD, children), (_SIBLING, siblings), (_SAME_BUFFER, chained), (_USE, uses)):
        if direction != BACKWARD:
            for pair in range(len(pairs)):
                source[used], target[used], edge_kind[used] = pairs[pair, 0], pairs[pair, 1], forward
                used += 1
        if direction != FORWARD:
            for pair in range(len(pairs)):
                source[used], target[used], edge_kind[used] = pairs[pair, 1], pairs[pair, 0], forward + 1
                used += 1
    return source, target, edge_kind
