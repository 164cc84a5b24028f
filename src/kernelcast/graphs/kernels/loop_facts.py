"""What is known of every row from the loops around it: how often it runs, in how many lanes, whether it is unrolled."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.index_terms import LOOP
from kernelcast.graphs.table import ROLES
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX

UNROLL_DEPTH_LIMIT = 8
"""Nested loops that TVM's unrolling takes at most (`auto_max_depth`)."""

VALUES, INDICES, BINDINGS = range(3)
"""Where a row stands: in what is computed, in the index of an access, in the binding of an axis."""

_INDEX, _CONDITION, _BINDING = (ROLES.index(role) for role in ("index", "condition", "binding"))
_FIRST_LOOP, _LAST_LOOP = NODE_KIND_INDEX["loop_serial"], NODE_KIND_INDEX["loop_thread_binding"]
_SERIAL, _VECTORIZED = NODE_KIND_INDEX["loop_serial"], NODE_KIND_INDEX["loop_vectorized"]
_UNROLLED, _REDUCE = NODE_KIND_INDEX["loop_unrolled"], NODE_KIND_INDEX["axis_reduce"]
_BLOCK, _INIT, _BRANCH = (NODE_KIND_INDEX[kind] for kind in ("block", "init", "branch"))
_STORE, _EVALUATE, _SELECT = (NODE_KIND_INDEX[kind] for kind in ("store", "evaluate", "select"))


@compiled
def is_loop(kind: int) -> bool:
    """Whether a row of this kind is a loop."""
    return _FIRST_LOOP <= kind <= _LAST_LOOP


@compiled
def surroundings(
    kind: np.ndarray, role: np.ndarray, parent: np.ndarray, extent: np.ndarray, span: np.ndarray, terms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What stands around each row.

    Returns:
        `loop`: row of the innermost loop around, -1 without; `statement`: row of the store, intrinsic call or branch
        whose expression it is part of (itself, at one), -1 outside; `place`: one of VALUES, INDICES, BINDINGS;
        `executions`: how often the row is reached; `reduction`: loops that drive a reduced axis.
    """
    count = len(kind)
    loop, statement = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    place, executions = np.zeros(count, np.int8), np.ones(count, np.int64)
    reduction = np.zeros(count, np.bool_)
    for row in range(1, count):
        above = parent[row]
        executions[row] = executions[above]
        if is_loop(kind[above]):
            loop[row] = above
            executions[row] *= extent[above]
        else:
            loop[row] = loop[above]
        place[row] = place[above]
        if role[row] == _INDEX and place[above] == VALUES:
            place[row] = INDICES
        elif role[row] == _BINDING:
            place[row] = BINDINGS
            if kind[above] == _REDUCE:
                for at in range(span[row, 0], span[row, 1]):
                    reduction[terms[at, LOOP]] = True
        if kind[row] == _STORE or kind[row] == _EVALUATE or kind[row] == _BRANCH:
            statement[row] = row
        elif not is_loop(kind[row]) and kind[row] != _BLOCK and kind[row] != _INIT:
            statement[row] = statement[above]
        if kind[row] == _INIT:
            # it runs where all reduced axes are at their start: once for each of their runs
            executions[row] = max(1, executions[row] // reduced_iterations(row, kind, parent, extent, span, terms))
    return loop, statement, place, executions, reduction


@compiled
def reduced_iterations(
    init: int, kind: np.ndarray, parent: np.ndarray, extent: np.ndarray, span: np.ndarray, terms: np.ndarray
) -> int:
    """Product of the extents of the loops that drive the reduced axes of the block around `init`."""
    product = 1
    above = parent[init]
    while above >= 0:
        drives = False
        if is_loop(kind[above]):
            for axis in range(parent[init] + 1, init):
                if kind[axis] == _REDUCE and parent[axis] == parent[init]:
                    for at in range(span[axis + 1, 0], span[axis + 1, 1]):
                        drives = drives or terms[at, LOOP] == above
        if drives:
            product *= extent[above]
        above = parent[above]
    return product


@compiled
def lane_parts(lanes: int) -> int:
    """Powers of two that so many lanes add up to: the lengths of machine vectors."""
    parts = 0
    while lanes > 0:
        parts += lanes & 1
        lanes >>= 1
    return parts


@compiled
def lanes(
    kind: np.ndarray,
    role: np.ndarray,
    parent: np.ndarray,
    end: np.ndarray,
    extent: np.ndarray,
    value: np.ndarray,
    loop: np.ndarray,
    span: np.ndarray,
    terms: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Lanes of each row, and the vectorised loops that TVM runs one by one.

    `VectorizeLoop` gives up under a condition that differs between lanes: of a block, a branch or a choice that
    evaluates one side only.

    Returns:
        `lanes`: extent of the vectorised loops here and around, 1 without or where lanes cannot run together;
        `scalar`: vectorised loops that are run one by one.
    """
    count = len(kind)
    width, scalar = np.ones(count, np.int64), np.zeros(count, np.bool_)
    for row in range(1, count):
        # a loop's own lanes are those in it
        width[row] = width[parent[row]]
        if kind[row] == _VECTORIZED:
            width[row] *= extent[row]
        if width[row] == 1 or (kind[row] != _STORE and kind[row] != _EVALUATE):
            continue
        for at in range(row + 1, end[row]):
            if kind[at] == _SELECT and value[at] != 0 and at + 1 < end[at]:
                stop_vectorising(at + 1, row, kind, loop, span, terms, width, scalar)
        above = parent[row]
        while above >= 0:
            if kind[above] == _BLOCK or kind[above] == _BRANCH:
                at = above + 1
                while at < row:
                    if role[at] == _CONDITION:
                        stop_vectorising(at, row, kind, loop, span, terms, width, scalar)
                    at = end[at]
            above = parent[above]
    return width, scalar


@compiled
def stop_vectorising(
    condition: int,
    statement: int,
    kind: np.ndarray,
    loop: np.ndarray,
    span: np.ndarray,
    terms: np.ndarray,
    width: np.ndarray,
    scalar: np.ndarray,
) -> None:
    """Marks the vectorised loops around a statement along which a condition moves."""
    around = loop[statement]
    while around >= 0:
        if kind[around] == _VECTORIZED:
            for at in range(span[condition, 0], span[condition, 1]):
                if terms[at, LOOP] == around:
                    scalar[around] = True
                    width[statement] = 1
        around = loop[around]


@compiled
def unrolling(
    kind: np.ndarray, parent: np.ndarray, extent: np.ndarray, unroll_limit: np.ndarray, scalar: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The steps that unrolling may make at each row, and the loops that become straight code.

    Follows TVM's `UnrollLoop`: innermost serial loops outwards, while the steps stay under the limit.

    Returns:
        `limit`: `pragma_auto_unroll_max_step` in force; `unrolled`.
    """
    count = len(kind)
    limit, unrolled = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    for row in range(1, count):
        limit[row] = unroll_limit[row] if unroll_limit[row] >= 0 else limit[parent[row]]
    steps, depth, rolled = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    for row in range(count - 1, 0, -1):
        above = parent[row]
        if kind[row] == _STORE or kind[row] == _EVALUATE:
            steps[row] = 1
        elif is_loop(kind[row]) and (kind[row] != _VECTORIZED or scalar[row]):
            # others marked vectorised are no loops any more when unrolling comes
            serial = kind[row] == _SERIAL or scalar[row]
            fits = rolled[row] == 0 and depth[row] <= UNROLL_DEPTH_LIMIT and extent[row] * steps[row] <= limit[row]
            unrolled[row] = (serial and fits) or kind[row] == _UNROLLED
            if unrolled[row]:
                steps[row] *= extent[row]
                depth[row] += 1
            else:
                rolled[row] += 1
        steps[above] += steps[row]
        depth[above] = max(depth[above], depth[row])
        rolled[above] = max(rolled[above], rolled[row])
    return limit, unrolled
