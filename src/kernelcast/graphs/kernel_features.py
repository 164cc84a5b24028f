"""What is known of a program as a whole: the tiles of its heaviest statement and static performance figures.

After Kaufman et al. 2021 (arXiv 2008.01040), section 3.1: features of a kernel, which go to all nodes or beside them.
The heaviest statement is the store with the most operations, of any type, in one run; of equals the one that runs most
often.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from kernelcast.graphs.facts import Facts
from kernelcast.graphs.slots import KAUFMAN, shape_features
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.vocabulary import OWN, Feature

RUNS: dict[str, str] = {
    "spatial_inner": "the spatial loops inside all reduced ones; without reduced loops of those inside the outer ones",
    "reduced_inner": "the innermost reduced loops in a row",
    "spatial_middle": "the spatial loops between these and the next reduced ones",
    "reduced_outer": "all other reduced loops",
    "spatial_outer": "all other spatial loops",
}
"""Levels of the loops around a statement and what is in them, from the innermost outwards: SSRSRS read backwards."""

KERNEL_FEATURES: tuple[Feature, ...] = (
    *shape_features("output_tile", "loops", "the part of the written tensor that one outer iteration touches"),
    *shape_features("input1_tile", "loops", "the part of the largest input that one outer iteration touches"),
    *shape_features("input2_tile", "loops", "the part of the second input that one outer iteration touches"),
    *shape_features("inner_tile", "loops", "the part of the written tensor that the innermost spatial loops touch"),
    *(Feature(f"{run}_extent", "iterations", "loops", f"product of {what}", OWN) for run, what in RUNS.items()),
    Feature("inner_extent", "iterations", "loops", "extent of the innermost loop", OWN),
    Feature("inner_is_reduced", "flag", "loops", "the innermost loop moves a reduced axis", OWN),
    Feature("parallel_extent", "iterations", "loops", "parallel work: product of the parallel loops", KAUFMAN),
    Feature("unroll_limit", "steps", "loops", "`pragma_auto_unroll_max_step` in force", OWN),
    Feature("lanes", "lanes", "work", "lanes that the statement runs in; 1 where it is not vectorised", KAUFMAN),
    Feature("flops", "flops", "work", "floating-point operations of the program", KAUFMAN),
    Feature("parallel_flops", "flops", "work", "those of one iteration of the parallel loops", OWN),
    Feature("transcendental_flops", "flops", "work", "those of all that are exp, sqrt, tanh, erf, log, ...", KAUFMAN),
    Feature("integer_operations", "operations", "work", "operations with integers, not counting those of indices", OWN),
    Feature("read_bytes", "bytes", "memory", "distinct bytes read of the parameters, in cache lines", KAUFMAN),
    Feature("written_bytes", "bytes", "memory", "distinct bytes written of the results, in cache lines", KAUFMAN),
    Feature("temporary_bytes", "bytes", "memory", "distinct bytes touched of all other tensors, in cache lines", OWN),
    Feature("intensity", "operations/byte", "memory", "operations of any type for each byte read or written", OWN),
)
"""Columns of `kernel_features`, in order. Tiles, loops and lanes are those of the heaviest statement.

The outer loops are the outermost reduced ones and those around them; without reduced loops the parallel ones; without
these all but the innermost. The innermost spatial loops are those inside all reduced ones; without reduced loops the
innermost loop. Inputs are ranked by the size of the tensor.
"""


def kernel_features(table: ProgramTable, facts: Facts) -> Float64[np.ndarray, " features"]:
    """The natural values of `KERNEL_FEATURES` of one program.

    Args:
        table: the program.
        facts: what is known of its rows.
    """
    from kernelcast.graphs.kernels.computations import read_rows
    from kernelcast.graphs.kernels.kernel_figures import figures
    from kernelcast.graphs.kernels.tiles import no_tiles, tiles

    rows = read_rows(table)
    found = figures(table, facts, rows)
    around = tiles(table, rows, found.heaviest) if found.heaviest >= 0 else no_tiles()
    lanes = facts.lanes[found.heaviest] if found.heaviest >= 0 else 0
    unroll_limit = facts.unroll_limit[found.heaviest] if found.heaviest >= 0 else 0
    moved = found.read + found.written
    values = np.empty(len(KERNEL_FEATURES), dtype=np.float64)
    tiled = around.tile.size + around.inner_tile.size
    values[: around.tile.size] = around.tile.ravel()
    values[around.tile.size : tiled] = around.inner_tile
    values[tiled : tiled + len(RUNS)] = around.runs
    values[tiled + len(RUNS) :] = (
        around.innermost,
        around.innermost_reduced,
        around.parallel,
        unroll_limit,
        lanes,
        found.flops,
        found.flops / around.parallel,
        found.transcendental,
        found.integer,
        found.read,
        found.written,
        found.temporary,
        (found.flops + found.integer) / max(moved, 1.0),
    )
    return values
