"""Random orders that depend on a seed and on what is ordered, never on how many others there are or where they stand.

So a data set that grows keeps its split, but for the few members at the borders.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int64, UInt64

from kernelcast.graphs.splits.protocol import PARTS
from kernelcast.graphs.splits.rows import Rows, as_bytes

WORD = 8
"""Bytes that are mixed at once."""


def draws(names: np.ndarray | Sequence[str], seed: int) -> UInt64[np.ndarray, " names"]:
    """A random number for each name, equal for equal names and seeds, in every process.

    The mixing steps are those of SplitMix64 (Steele et al. 2014), over the bytes of a name.
    """
    raw = as_bytes(np.asarray(names, dtype=None if len(names) else np.str_))
    width = max(WORD, -(-raw.dtype.itemsize // WORD) * WORD)
    words = np.ascontiguousarray(raw.astype(f"S{width}")).view("<u8").reshape(len(raw), width // WORD)
    state = _mixed(np.full(len(raw), seed % 2**64, dtype=np.uint64))
    for column in range(words.shape[1]):
        state = _mixed(state ^ words[:, column])
    return state


def places(
    stratum: Int64[np.ndarray, " members"], names: np.ndarray, seed: int
) -> tuple[Int64[np.ndarray, " members"], Int64[np.ndarray, " members"]]:
    """The place of each member in the random order of its stratum, from 0, and how many the stratum has."""
    order = np.lexsort((draws(names, seed), stratum))
    ordered = stratum[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, dtype=np.int64)
    sizes = np.diff(np.r_[starts, len(ordered)])
    place, size = np.empty(len(order), dtype=np.int64), np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    size[order] = np.repeat(sizes, sizes)
    return place, size


def part_sizes(count: int, test_share: float, valid_share: float) -> tuple[int, int]:
    """How many of `count` are tested on and validated on; at least one is left to learn from."""
    if count < len(PARTS):
        return max(count - 1, 0), 0
    test = max(1, round(test_share * count))
    valid = max(1, round(valid_share * count))
    test = min(test, count - 2)
    return test, min(valid, count - 1 - test)


def program_units(
    rows: Rows, among: Bool[np.ndarray, " rows"]
) -> tuple[Int64[np.ndarray, " among"], Int64[np.ndarray, " units"], np.ndarray]:
    """What a split by programs deals out: a program, on all the targets that measured it.

    Returns:
        The unit of each of the rows `among`; of each unit the stratum (its lowest workload and target) and key.
    """
    numbers = np.flatnonzero(among)
    keys = rows.program_key[numbers]
    # numbers sort ten times as fast as texts; two programs that share one by chance stay together
    _, first, unit = np.unique(draws(keys, 0), return_index=True, return_inverse=True)
    stratum = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(stratum, unit, rows.stratum[numbers])
    return unit, stratum, keys[first]


def shapes_in_turn(rows: Rows, shapes: np.ndarray, seed: int) -> Int64[np.ndarray, " shapes"]:
    """A random order of `shapes` that goes through their operator kinds in turn.

    Kinds with several shapes come first, so that as far as possible training keeps one of each kind.
    """
    shapes = np.unique(shapes)
    members = [rows.shape_member[number] for number in shapes.tolist()]
    kinds = [member.kind for member in members]
    shape_draw = draws([member.key for member in members], seed).tolist()
    kind_draw = dict(zip(kinds, draws(kinds, seed).tolist(), strict=True))
    queues: dict[str, list[tuple[int, int]]] = {}
    for number, kind, drawn in zip(shapes.tolist(), kinds, shape_draw, strict=True):
        queues.setdefault(kind, []).append((drawn, number))
    turns = [
        (turn, len(queue) == 1, kind_draw[kind], kind, number)
        for kind, queue in queues.items()
        for turn, (_, number) in enumerate(sorted(queue))
    ]
    return np.array([turn[-1] for turn in sorted(turns)], dtype=np.int64)


def shapes_for(rows: Rows, among: np.ndarray, share: float, seed: int) -> Int64[np.ndarray, " shapes"]:
    """The share of the shapes of the rows `among`, at least one of two or more."""
    order = shapes_in_turn(rows, rows.shape[among], seed)
    count = min(max(1, round(share * len(order))), len(order) - 1) if len(order) else 0
    return order[:count]


def _mixed(state: np.ndarray) -> np.ndarray:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
