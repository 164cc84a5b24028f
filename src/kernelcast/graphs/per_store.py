"""The view `per_store`: TVM's own 164 features of every store, so that others' models get what they expect.

They are what `tvm.s_tir.meta_schedule.feature_extractor.PerStoreFeature` computes with its default settings, and cost
what it costs. One row stands for one buffer that a program stores to (for the last store to it, and not for stores of
constants), in the order of first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.views import StatementRows
from kernelcast.graphs.vocabulary import Column
from kernelcast.tvm_compat import load_tvm, make_target

BUFFERS, CURVE_SAMPLES, CACHE_LINE_BYTES = 5, 10, 64
"""The default settings: buffers a store, samples of the intensity curve, bytes of a cache line."""


_OPERATIONS = {
    "mad": "multiply-adds (TVM counts none)",
    "add_sub": "additions and subtractions",
    "mul": "multiplications",
    "div_mod": "divisions and remainders",
    "cmp": "comparisons, minima and maxima",
    "math_func": "calls without side effects",
    "other_func": "other calls",
}
_POSITIONS = ("none", "inner_spatial", "middle_spatial", "outer_spatial", "inner_reduce", "middle_reduce",
              "outer_reduce", "mixed")  # fmt: skip
_BUFFER = (
    Column("read", "0 or 1", "it is read only"),
    Column("write", "0 or 1", "it is written only"),
    Column("read_write", "0 or 1", "it is read and written"),
    Column("bytes", "log2 of bytes", "bytes accessed, repeats counted"),
    Column("unique_bytes", "log2 of bytes", "different bytes accessed"),
    Column("lines", "log2 of a count", "cache lines accessed, repeats counted"),
    Column("unique_lines", "log2 of a count", "different cache lines accessed"),
    Column("reuse_loop", "0 or 1", "an enclosing loop does not move the access"),
    Column("reuse_serial", "0 or 1", "a statement before it in the same loop accesses it too"),
    Column("reuse_none", "0 or 1", "neither"),
    Column("reuse_distance_iterations", "log2 of a count", "iterations between two uses"),
    Column("reuse_distance_bytes", "log2 of bytes", "bytes accessed between two uses"),
    Column("reuse_count", "log2 of a count", "uses of the same element"),
    Column("bytes_per_reuse", "log2 of bytes", "bytes over reuse_count"),
    Column("unique_bytes_per_reuse", "log2 of bytes", "unique_bytes over reuse_count"),
    Column("lines_per_reuse", "log2 of a count", "lines over reuse_count"),
    Column("unique_lines_per_reuse", "log2 of a count", "unique_lines over reuse_count"),
    Column("stride", "log2 of elements", "of the innermost loop that moves the access"),
)
_GPU_AXES = ("blockIdx_x", "blockIdx_y", "blockIdx_z", "threadIdx_x", "threadIdx_y", "threadIdx_z", "vthread")


def _columns() -> tuple[Column, ...]:
    arithmetic = [
        Column(f"{kind}_{name}", "log2 of a count", f"{meaning} of {words} in all iterations")
        for kind, words in (("float", "floats"), ("int", "other numbers"))
        for name, meaning in _OPERATIONS.items()
    ]
    loops = [
        column
        for kind in ("vectorize", "unroll", "parallel")
        for column in (
            Column(f"{kind}_loops", "log2 of a count", "enclosing loops of this kind"),
            Column(f"{kind}_product", "log2 of a count", "product of their extents"),
            Column(f"{kind}_innermost", "log2 of a count", "extent of the innermost of them"),
            *(Column(f"{kind}_at_{name}", "0 or 1", "where they stand; TVM tells `none` and `mixed` apart only")
              for name in _POSITIONS),
        )
    ]  # fmt: skip
    buffers = [
        Column(f"buffer_{number}_{column.name}", column.unit, column.meaning)
        for number in range(1, BUFFERS + 1)
        for column in _BUFFER
    ]
    return (
        *arithmetic,
        Column("bool_op", "log2 of a count", "logical operations in all iterations"),
        Column("select_op", "log2 of a count", "selections in all iterations"),
        *loops,
        Column("is_gpu", "0 or 1", "the target is a GPU"),
        *(Column(f"{axis}_extent", "log2 of a count", "extent of the axis; 1 without one") for axis in _GPU_AXES),
        *buffers,
        *(
            Column(
                f"intensity_{number}",
                "log2 of flops per byte",
                f"float operations a byte touched, {number} tenths of the way from the innermost loop to all work",
            )
            for number in range(1, CURVE_SAMPLES + 1)
        ),
        Column("allocated_bytes", "log2 of bytes", "size of the buffer stored to"),
        Column("allocated_elements", "log2 of a count", "its elements times the loops outside its allocation"),
        Column("allocated_outer_product", "log2 of a count", "iterations of the loops outside its allocation"),
        Column("allocated_inner_product", "log2 of a count", "iterations of the loops between allocation and store"),
        Column("outer_product", "log2 of a count", "iterations of all enclosing loops"),
        Column("loops", "log2 of a count", "enclosing loops"),
        Column("auto_unroll_max_step", "log2 of a count", "limit of unrolling that holds there"),
    )  # fmt: skip


COLUMNS = _columns()
"""Source: TVM, `feature_extractor/per_store_feature.cc`, groups 1 (arithmetic and loops), 2 (buffers, the one with the
most cache lines first), 3 (arithmetic intensity curve), 4 (storage) and 5 (outer loops). TVM has no names; these are
ours."""

COLUMN_NAMES = tuple(column.name for column in COLUMNS)


def per_store_rows(programs: Sequence[Any], target: Mapping[str, Any]) -> StatementRows:
    """TVM's features of many programs, by one call of its extractor.

    Args:
        programs: scheduled modules, as `scheduled_module` makes them, or their schedules. TVM wants schedules
            (`MeasureCandidate`) and only looks at their modules; a module is wrapped in one first.
        target: what they are for; it decides whether there are thread axes.

    Raises:
        MalformedDataError: TVM cannot tell the features of a program.
        ConfigError: TVM refuses the target.
    """
    load_tvm()
    meta_schedule = importlib.import_module("tvm.s_tir.meta_schedule")
    schedule = importlib.import_module("tvm.s_tir").Schedule
    extractor = importlib.import_module("tvm.s_tir.meta_schedule.feature_extractor").PerStoreFeature(
        BUFFERS, CURVE_SAMPLES, CACHE_LINE_BYTES
    )
    # the module of the context only matters for `extract_workload`
    context = meta_schedule.TuneContext(target=make_target(dict(target)), num_threads=1)
    try:
        candidates = [
            meta_schedule.MeasureCandidate(one if isinstance(one, schedule) else schedule(one), []) for one in programs
        ]
        found = [rows.numpy() for rows in extractor.extract_from(context, candidates)] if candidates else []
    except Exception as error:  # whatever TVM's passes throw
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MalformedDataError(
            f"TVM cannot tell its features per store: {reason}; leave `per_store` out of features.views"
        ) from error
    # a program that stores nothing has an array without columns
    found = [rows.reshape(-1, len(COLUMN_NAMES)) for rows in found]
    return StatementRows(
        names=COLUMN_NAMES,
        row_offset=np.concatenate([[0], np.cumsum([len(rows) for rows in found], dtype=np.int64)]).astype(np.int64),
        values=np.concatenate([np.zeros((0, len(COLUMN_NAMES))), *found]).astype(np.float32),
    )
