"""What is known of a program as a whole: the tiles of its heaviest statement and static performance figures.

After Kaufman et al. 2021 (arXiv 2008.01040), section 3.1: features of a kernel, which go to all nodes or beside them.
The heaviest statement is the one with the most operations, of any type, in one run; of equals the first.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from kernelcast.graphs.facts import Facts
from kernelcast.graphs.slots import KAUFMAN, shape_features
from kernelcast.graphs.table import ProgramTable
from kernelcast.graphs.vocabulary import NODE_KIND_INDEX, OWN, Feature

RUNS: dict[str, str] = {
    "spatial_inner": "the spatial loops inside all reduced ones; without reduced loops of those inside the outer ones",
    "reduced_inner": "the innermost reduced loops in a row",
    "spatial_middle": "the spatial loops between these and the next reduced ones",
    "reduced_outer": "all other reduced loops",
    "spatial_outer": "all other spatial loops",
}
"""Levels of the loops around a statement and what is in them, from the innermost outwards: SSRSRS read backwards."""

_STORE = NODE_KIND_INDEX["store"]

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
    from kernelcast.graphs.computations import read_rows
    from kernelcast.graphs.tiles import no_tiles, tiles

    rows = read_rows(table)
    statements = np.flatnonzero(facts.statement == np.arange(len(table.kind)))
    executions = facts.executions[statements].astype(np.float64)
    flops = facts.flops[statements] * executions
    integer = rows.integer_operations[statements] * executions
    stores = np.flatnonzero(table.kind[statements] == _STORE)
    if len(stores):
        work = (flops + integer)[stores]
        most = stores[work == work.max()]
        place = most[np.argmax(executions[most])]
        heaviest = int(statements[place])
        found = tiles(table, rows, heaviest)
        lanes, unroll_limit = facts.lanes[heaviest], facts.unroll_limit[heaviest]
    else:
        found, lanes, unroll_limit = no_tiles(), 0, 0
    read, written, temporary = _traffic(table, facts)
    total = flops.sum()
    return np.concatenate(
        [
            found.tile.ravel(),
            found.inner_tile,
            found.runs,
            [found.innermost, found.innermost_reduced, found.parallel, unroll_limit, lanes],
            [total, total / found.parallel, (facts.transcendental[statements] * executions).sum(), integer.sum()],
            [read, written, temporary, (total + integer.sum()) / max(read + written, 1.0)],
        ]
    ).astype(np.float64)


def _traffic(table: ProgramTable, facts: Facts) -> tuple[float, float, float]:
    """Distinct bytes read of parameters, written of results, and touched of temporaries."""
    count = len(table.buffers.names)
    stored = table.kind[facts.access_row] == _STORE
    by_buffer = np.zeros((2, count), dtype=np.float64)
    np.maximum.at(by_buffer, (stored.astype(np.int64), facts.access_buffer), facts.access_bytes[:, 1])
    read, written = by_buffer
    temporary = table.buffers.temporary
    result = ~temporary & (written > 0)
    return (
        float(read[~temporary & ~result].sum()),
        float(written[result].sum()),
        float(np.maximum(read, written)[temporary].sum()),
    )
