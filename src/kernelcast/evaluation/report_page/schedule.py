"""A schedule trace in words: what was tiled, unrolled, moved and inlined, for whoever points at a program."""

from __future__ import annotations

from typing import Any

import orjson

UNREADABLE = "schedule not readable"
UNDECIDED = "no decisions: the schedule leaves the program as it is"

UNROLL = ("pragma_auto_unroll_max_step", "meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit")
"""Annotations that carry the unroll limit: as written into the program, else as the schedule rules ask for it."""

AT_ROOT, INLINED = -1, -2
"""Decisions of `SampleComputeLocation` that are no loop."""

TIMES = "\u00d7"

_FAULTS = (TypeError, ValueError, LookupError, AttributeError)


def schedule_words(trace: str) -> str:
    """One line a tiled block, outermost factor first, and one line of everything else.

    `matmul: 1×4×8×2, 2×2×1×16; 4×32` are the factors of its loops in their order: spatial ones before the semicolon
    (four factors under the usual tiling), others behind it.
    """
    try:
        return _Reading(orjson.loads(trace)).words()
    except _FAULTS:
        # a page that cannot say how one program was scheduled is of use all the same
        return UNREADABLE


class _Reading:
    """What the instructions of one trace do, collected in one pass."""

    def __init__(self, trace: list[Any]) -> None:
        instructions, decided = trace
        self.decisions = dict(decided)
        self.names: dict[str, str] = {}
        self.block_of_loop: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.tiles: dict[str, list[list[int]]] = {}
        self.unroll: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.inlined: list[str] = []
        self.moved: list[str] = []
        for place, (kind, inputs, attributes, outputs) in enumerate(instructions):
            self._read(kind, inputs, attributes, outputs, self.decisions.get(place))

    def _read(self, kind: str, inputs: list[Any], attributes: list[Any], outputs: list[str], decision: Any) -> None:
        if kind in ("GetSBlock", "GetBlock"):
            self.names[outputs[0]] = attributes[0]
        elif kind in _RELATED:
            self.names |= dict.fromkeys(outputs, f"{_RELATED[kind]} of {self._name(inputs[0])}")
        elif kind == "GetLoops":
            self.block_of_loop |= dict.fromkeys(outputs, self._name(inputs[0]))
        elif kind in ("Fuse", "Split"):
            self.block_of_loop |= dict.fromkeys(outputs, self.block_of_loop.get(inputs[0], "loops"))
        elif kind in ("SamplePerfectTile", "SamplePartitionedTile"):
            self.tiles.setdefault(self.block_of_loop.get(inputs[0], "loops"), []).append(decision)
        elif kind == "SampleCategorical":
            self.values[outputs[0]] = attributes[0][decision]
        elif kind == "SampleComputeLocation":
            self.values[outputs[0]] = decision
        elif kind == "Annotate" and attributes[0] in UNROLL:
            limit = self.values.get(inputs[1], inputs[1])
            self.unroll[attributes[0]] = max(int(limit), self.unroll.get(attributes[0], 0))
        elif kind in ("ComputeInline", "ReverseComputeInline"):
            self.inlined.append(self._name(inputs[0]))
        elif kind in ("ComputeAt", "ReverseComputeAt"):
            self._move(self._name(inputs[0]), self.values.get(inputs[1]))
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _name(self, block: str) -> str:
        return self.names.get(block, "a block")

    def _move(self, name: str, location: int | None) -> None:
        if location == INLINED:
            self.inlined.append(name)
        elif location is not None and location != AT_ROOT:
            self.moved.append(f"{name} at loop {location}")
        elif location is None:
            self.moved.append(f"{name} within the tiles")

    def words(self) -> str:
        """All of it."""
        most = {name: max(map(len, tiles)) for name, tiles in self.tiles.items()}
        lines = []
        for name, tiles in self.tiles.items():
            told = [(len(tile) == most[name], TIMES.join(map(str, tile))) for tile in tiles]
            groups = [", ".join(text for outer, text in told if outer is wanted) for wanted in (True, False)]
            lines.append(f"{name}: {'; '.join(filter(None, groups))}")
        limit = next((self.unroll[name] for name in UNROLL if name in self.unroll), None)
        notes = [] if limit is None else [f"unroll up to {limit}" if limit else "no unrolling"]
        for kind, (one, many) in _COUNTED.items():
            if count := self.counts.get(kind, 0):
                notes.append(one if count == 1 else many.format(count))
        notes += self.moved
        if self.inlined:
            notes.append(f"inlined: {', '.join(dict.fromkeys(self.inlined))}")
        return "\n".join([*lines, *([" · ".join(notes)] if notes else [])]) or UNDECIDED


_RELATED = {
    "GetConsumers": "consumer",
    "GetProducers": "producer",
    "CacheRead": "cache",
    "CacheWrite": "cache",
    "RFactor": "partial result",
    "DecomposeReduction": "start",
}
"""Instructions that make blocks without a name of their own, and what to call these."""

_COUNTED = {
    "Parallel": ("1 parallel loop", "{} parallel loops"),
    "Vectorize": ("1 vectorised loop", "{} vectorised loops"),
    "Unroll": ("1 unrolled loop", "{} unrolled loops"),
    "RFactor": ("reduction factored", "reduction factored {} times"),
    "CacheWrite": ("result cached", "{} results cached"),
    "CacheRead": ("input cached", "{} inputs cached"),
    "TransformLayout": ("layout of an input changed", "layout of {} inputs changed"),
    "Tensorize": ("tensorised", "tensorised {} times"),
}
"""Instructions that are only counted, in words."""
