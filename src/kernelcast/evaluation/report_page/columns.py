"""What can be told of a program without running it, as columns that a reader of the report chooses and understands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from kernelcast.graphs.programs import Programs

CHUNK = 2048
"""Programs whose graphs are in memory at once; only the figures of the whole program are kept of them."""

KERNEL = "kernel_"
"""Before the names of features of the program as a whole, which flat features may also have."""

Natural = Mapping[str, Float32[np.ndarray, "programs"]]
"""Values before any logarithm, by the name of the column; those of the graphs' kernel features begin with `KERNEL`."""


@dataclass(frozen=True)
class Column:
    """One column of the explorer.

    Attributes:
        name: identifier in the page.
        label: what a reader sees.
        unit: of its values; empty for counts and shares.
        none: how a program without any is described, as in "no loop unrolled"; empty where zero is nothing special.
        log: whether an axis of it is logarithmic at first.
        share: whether values are shares, 0 to 1.
        of: the columns of the views that it is made of.
        made: from these; None takes the single one as it is.
    """

    name: str
    label: str
    unit: str = ""
    none: str = ""
    log: bool = True
    share: bool = False
    of: tuple[str, ...] = ()
    made: Callable[..., np.ndarray] | None = None

    def values(self, natural: Natural) -> Float32[np.ndarray, "programs"] | None:
        """Its values; None where the views lack what it is made of."""
        names = self.of or (self.name,)
        if any(name not in natural for name in names):
            return None
        found = [np.asarray(natural[name]) for name in names]
        return found[0] if self.made is None else self.made(*found)


def _ratio(part: np.ndarray, *whole: np.ndarray) -> np.ndarray:
    total = np.sum(whole, axis=0)
    return np.divide(part, total, out=np.zeros_like(part), where=total > 0)


COLUMNS = (
    Column("flops", "Operations", "flop"),
    Column("unique_bytes", "Distinct bytes touched", "B"),
    Column("intensity", "Arithmetic intensity", "flop/B", of=("flops", "unique_bytes"), made=_ratio),
    Column("moved_past_32kib_bytes", "Traffic past a cache of 32 KiB", "B"),
    Column("moved_past_2048kib_bytes", "Traffic past a cache of 2 MiB", "B"),
    Column("temporary_bytes", "Bytes in temporary buffers", "B", none="no temporary buffer"),
    Column("vector_share", "Share of vectorised work", none="nothing vectorised", log=False, share=True),
    Column("max_lanes", "Widest vector", "lanes", log=False),
    Column("parallel_extent", "Parallel iterations"),
    Column("max_straight_steps", "Longest unrolled code", "copies"),
    Column("first_unroll_limit_steps", "Unroll limit", "steps", none="no unrolling asked for", log=False),
    Column("straight_loops", "Unrolled loops", none="no loop unrolled", log=False),
    Column("first_inner1_extent", "Innermost loop", "iterations"),
    Column("first_reduction_extent", "Reduced iterations", none="nothing reduced"),
    Column("first_inner_reduction_extent", "Innermost reduced iterations", none="no reduction innermost"),
    Column("loop_starts", "Starts of loops"),
    Column("loop_iterations", "Iterations of loops"),
    Column(
        "contiguous_share", "Share of contiguous accesses", none="no contiguous access", log=False, share=True,
        of=("contiguous_count", "load_count", "store_count"), made=_ratio,
    ),
    Column(
        "strided_share", "Share of strided accesses", none="no strided access", log=False, share=True,
        of=("strided_count", "load_count", "store_count"), made=_ratio,
    ),
    Column("guarded_count", "Guarded executions", none="nothing guarded"),
    Column("depth_loops", "Depth of the loop nest", "loops", log=False),
    Column("statements", "Statements", log=False),
    Column("kernel_output_tile_product", "Output tile", "elements"),
    Column("kernel_inner_tile_product", "Inner tile", "elements"),
    Column("kernel_reduced_inner_extent", "Reduced tile", "iterations"),
)  # fmt: skip
"""In the order in which the page offers them."""


def program_columns(programs: Programs, log_scale: bool) -> dict[str, Float32[np.ndarray, "programs"]]:
    """The values of every column that the views can tell, by name; none with the trace view alone.

    Args:
        programs: whose columns they are.
        log_scale: whether the graphs were built with `features.log_scale`.
    """
    natural = natural_values(programs, log_scale)
    found = {column.name: column.values(natural) for column in COLUMNS}
    return {name: values.astype(np.float32) for name, values in found.items() if values is not None}


def natural_values(programs: Programs, log_scale: bool) -> dict[str, Float32[np.ndarray, "programs"]]:
    """Flat features and features of the kernel as they were before any logarithm."""
    natural: dict[str, np.ndarray] = {}
    if "features" in programs.sources and len(programs):
        names = programs.columns("features")["names"]
        values = programs.features.values
        # always log(1 + value), whatever `log_scale` says of the graphs
        natural |= {name: np.expm1(values[:, place].astype(np.float64)) for place, name in enumerate(names)}
    view = next((name for name in ("dataflow", "ast") if _has_kernel(programs, name)), None)
    if view is not None and len(programs):
        names = programs.columns(view)["kernel_names"]
        needed = {name for column in COLUMNS for name in column.of or (column.name,)}
        wanted = [place for place, name in enumerate(names) if KERNEL + name in needed]
        pieces = [
            programs.view(view, np.arange(start, min(start + CHUNK, len(programs)))).kernel_features[:, wanted]
            for start in range(0, len(programs), CHUNK)
        ]
        kernel = np.concatenate(pieces).astype(np.float64)
        if log_scale:
            kernel = np.expm1(kernel)
        natural |= {KERNEL + names[place]: kernel[:, column] for column, place in enumerate(wanted)}
    return natural


def _has_kernel(programs: Programs, view: str) -> bool:
    return view in programs.sources and bool(programs.columns(view)["kernel_names"])
