"""Which programs go into a batch together, and the batch: the views that a network looks at, and the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64, Integer
from torch import Tensor

from kernelcast.graphs.programs import Programs
from kernelcast.models.view_batches import MAKERS, FlatBatch, GraphBatch, RowBatch, StepBatch, ViewBatch, sizes


@dataclass(frozen=True)
class Labels:
    """What a loss may know of the programs of a batch.

    Attributes:
        log_seconds: natural logarithm of the run time in seconds.
        workload: the workload of each program; losses over pairs or lists compare within one.
        best_log_seconds: the least `log_seconds` of the program's workload in the whole part (training or validation)
            that the batch is of.
    """

    log_seconds: Float[Tensor, "programs"]
    workload: Int64[Tensor, "programs"]
    best_log_seconds: Float[Tensor, "programs"]

    @classmethod
    def of(cls, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]) -> Labels:
        """The labels of a whole part."""
        best = best_of_workload(log_seconds, workload)
        return cls(
            torch.from_numpy(np.asarray(log_seconds, dtype=np.float32)),
            torch.from_numpy(np.asarray(workload, dtype=np.int64)),
            torch.from_numpy(best.astype(np.float32)),
        )

    def select(self, rows: Int64[Tensor, "chosen"]) -> Labels:
        """The labels of some of the programs."""
        return Labels(self.log_seconds[rows], self.workload[rows], self.best_log_seconds[rows])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Labels:
        """The same labels on another device."""
        return Labels(
            self.log_seconds.to(device, non_blocking=non_blocking),
            self.workload.to(device, non_blocking=non_blocking),
            self.best_log_seconds.to(device, non_blocking=non_blocking),
        )


@dataclass(frozen=True)
class Batch:
    """Several programs as a network sees them.

    Attributes:
        views: the batch of each view that the network looks at, by the view's name.
        labels: what is to be predicted.
    """

    views: Mapping[str, ViewBatch]
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels.workload)

    def graphs(self, view: str) -> GraphBatch:
        """The graphs of the view `ast` or `dataflow`."""
        return cast(GraphBatch, self.views[view])

    def rows(self, view: str) -> RowBatch:
        """The rows of the view `statements` or `per_store`."""
        return cast(RowBatch, self.views[view])

    def steps(self, view: str = "trace") -> StepBatch:
        """The steps of the traces."""
        return cast(StepBatch, self.views[view])

    def flat(self, view: str = "features") -> FlatBatch:
        """The flat features."""
        return cast(FlatBatch, self.views[view])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The same batch on another device."""
        views = {name: view.to(device, non_blocking) for name, view in self.views.items()}
        return Batch(views, self.labels.to(device, non_blocking))


@dataclass(frozen=True)
class Limits:
    """How large a batch may be.

    Attributes:
        programs: at most so many.
        elements: at most so many nodes, statements or trace steps of all programs together, in the first view of the
            network; one larger program is a batch of its own.
    """

    programs: int
    elements: int


def best_of_workload(
    log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
) -> Float64[np.ndarray, "programs"]:
    """Of every program the least time of its workload, as the logarithm of the seconds."""
    groups, group = np.unique(workload, return_inverse=True)
    best = np.full(len(groups), np.inf)
    np.minimum.at(best, group, log_seconds)
    return best[group]


def pack(parts: Sequence[np.ndarray], elements: Sequence[int], limits: Limits) -> list[np.ndarray]:
    """Joins neighbouring `parts` into batches within the limits; a larger part stands alone."""
    batches: list[np.ndarray] = []
    waiting: list[np.ndarray] = []
    programs = total = 0
    for part, size in zip(parts, elements, strict=True):
        if waiting and (total + size > limits.elements or programs + len(part) > limits.programs):
            batches.append(np.concatenate(waiting))
            waiting, programs, total = [], 0, 0
        waiting.append(part)
        programs += len(part)
        total += size
    if waiting:
        batches.append(np.concatenate(waiting))
    return batches


class Batches:
    """Reads the batches of a plan.

    Args:
        programs: where they are.
        views: what the network looks at; the first one counts for the limits.
    """

    def __init__(self, programs: Programs, views: Sequence[str]) -> None:
        self._programs = programs
        self._views = tuple(views)
        self._labels = Labels.of(programs.log_seconds, programs.workload)

    def read(self, rows: Integer[np.ndarray, "chosen"]) -> Batch:
        """The batch of the programs `rows`, in that order; reads nothing of the others."""
        rows = np.asarray(rows, dtype=np.int64)
        views = {view: MAKERS[view](self._programs.view(view, rows)) for view in self._views}
        return Batch(views, self._labels.select(torch.from_numpy(rows)))


class ShuffledBatches(Batches):
    """Training batches: another order every epoch, the same ones for the same seed.

    Programs of a workload are shuffled and cut into chunks; the chunks of all workloads are shuffled and packed into
    batches. So a batch has pairs to compare from several workloads, and is never larger than it may be.

    Args:
        programs: where they are.
        views: what the network looks at.
        limits: of a batch.
        chunk_programs: programs of one workload that a batch takes together.
        seed: of all orders.
    """

    def __init__(
        self, programs: Programs, views: Sequence[str], limits: Limits, chunk_programs: int, seed: int
    ) -> None:
        super().__init__(programs, views)
        self._limits = limits
        self._chunk_limits = Limits(chunk_programs, limits.elements)
        self._seed = seed
        self.epoch = 0
        self._sizes = sizes(programs, self._views[0])
        order = np.argsort(programs.workload, kind="stable")
        cuts = np.flatnonzero(np.diff(programs.workload[order])) + 1
        self._workloads = np.split(order, cuts) if len(order) else []

    def plan(self, epoch: int) -> list[Int64[np.ndarray, "programs"]]:
        """The rows of every batch of `epoch`."""
        random = np.random.default_rng([self._seed, epoch])
        most = min(self._chunk_limits.programs, self._limits.programs)
        chunks: list[np.ndarray] = []
        for rows in self._workloads:
            # parts of equal size: a last chunk of one program would have nothing to be compared with
            pieces = -(-len(rows) // most)
            for piece in np.array_split(random.permutation(rows), pieces):
                chunks += pack(np.split(piece, len(piece)), self._sizes[piece].tolist(), self._chunk_limits)
        chunks = [chunks[index] for index in random.permutation(len(chunks))]
        return pack(chunks, [int(self._sizes[chunk].sum()) for chunk in chunks], self._limits)

    def __iter__(self) -> Iterator[Batch]:
        plan = self.plan(self.epoch)
        self.epoch += 1
        return (self.read(rows) for rows in plan)


class SequentialBatches(Batches):
    """Batches for validation and prediction, in the order of `rows` (all of them, as they stand, by default)."""

    def __init__(
        self,
        programs: Programs,
        views: Sequence[str],
        limits: Limits,
        rows: Int64[np.ndarray, "chosen"] | None = None,
    ) -> None:
        super().__init__(programs, views)
        chosen = np.arange(len(programs), dtype=np.int64) if rows is None else np.asarray(rows, dtype=np.int64)
        elements = sizes(programs, self._views[0])[chosen]
        self.plan = pack(np.split(chosen, len(chosen)), elements.tolist(), limits) if len(chosen) else []

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        return (self.read(rows) for rows in self.plan)


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of every column."""

    mean: Float64[np.ndarray, "features"]
    deviation: Float64[np.ndarray, "features"]


PIECE = Limits(programs=4096, elements=200_000)
"""What is read at once where all programs are gone through."""


def moments(programs: Programs, fields: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Moments]:
    """Moments of arrays of views, each named by view and field, read in pieces that fit into memory."""
    found: dict[tuple[str, str], Moments] = {}
    for view in dict.fromkeys(view for view, _ in fields):
        names = [name for each, name in fields if each == view]
        counts = dict.fromkeys(names, 0)
        sums: dict[str, np.ndarray] = dict.fromkeys(names, np.zeros(1))
        squares: dict[str, np.ndarray] = dict.fromkeys(names, np.zeros(1))
        for rows in SequentialBatches(programs, [view], PIECE).plan:
            arrays = programs.view(view, rows)
            for name in names:
                exact: Float32[np.ndarray, "rows features"] = getattr(arrays, name).astype(np.float64)
                counts[name] += len(exact)
                sums[name] = sums[name] + exact.sum(axis=0)
                squares[name] = squares[name] + np.square(exact).sum(axis=0)
        for name in names:
            mean = sums[name] / max(counts[name], 1)
            deviation = np.sqrt(np.maximum(squares[name] / max(counts[name], 1) - np.square(mean), 0.0))
            found[view, name] = Moments(mean, deviation)
    return found
