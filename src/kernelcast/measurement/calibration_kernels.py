"""Small programs, compiled as every other one, each of which is bound by one thing that a processor is limited by."""

# TVM's parser reads what stands in these functions; to Python they are nothing that could be typed
# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

from typing import Any

from kernelcast.tvm_compat import load_tvm, make_target

ACCUMULATORS = 8
"""Independent sums: enough that additions do not wait for each other, and few enough for the registers of AVX2."""

DEPTH = 128
"""Steps of the inner loop of the compute kernels, whose operands stay in the first cache level."""

TILE = 4
"""Rows and columns of the scalar kernel's sums."""

SPREAD = 17
"""Elements between two operands of the scalar kernel: they never stand side by side."""

SCALAR_LEVEL = 1
"""Optimisation at which LLVM packs no scalar operations into vectors."""


def build_kernels(target: dict[str, Any], lanes: int) -> tuple[Any, Any]:
    """The compiled module with the functions below, and that of `scalar` alone; takes half a second.

    * `read(x, sums, passes)` reads `x`, any number of times `ACCUMULATORS * lanes` float32, again and again;
    * `vector(x, y, sums, passes)` makes `2 * DEPTH * ACCUMULATORS * lanes` operations a pass in vectors;
    * `scalar(x, y, sums, passes)` makes `2 * DEPTH * TILE**2` operations a pass one by one;
    * `chained(x, sums, passes)` makes `DEPTH` additions a pass, each waiting for the last one;
    * `empty(sums)` does next to nothing;
    * `parallel(sums)` does next to nothing on each of the target's cores.

    Args:
        target: the complete TVM target.
        lanes: float32 lanes of one of its vectors.
    """
    tvm = load_tvm()
    from tvm.script import tirx as tir  # the parser knows it by the name in the source

    cores, width = int(target.get("num-cores", 1)), ACCUMULATORS * lanes

    # fmt: off
    @tir.prim_func(private=False)
    def read(x_: tir.handle, sums_: tir.handle, passes: tir.int32):
        tir.func_attr({"global_symbol": "read", "tirx.noalias": True})
        blocks = tir.int32()
        x = tir.match_buffer(x_, (blocks, width), "float32")
        sums = tir.match_buffer(sums_, (width,), "float32")
        kept = tir.alloc_buffer((width,), "float32")
        for u in tir.unroll(ACCUMULATORS):
            for v in tir.vectorized(lanes):
                kept[u * lanes + v] = tir.float32(0)
        for _, i in tir.grid(passes, blocks):
            for u in tir.unroll(ACCUMULATORS):
                for v in tir.vectorized(lanes):
                    kept[u * lanes + v] = kept[u * lanes + v] + x[i, u * lanes + v]
        for u in tir.unroll(ACCUMULATORS):
            for v in tir.vectorized(lanes):
                sums[u * lanes + v] = kept[u * lanes + v]

    @tir.prim_func(private=False)
    def vector(x_: tir.handle, y_: tir.handle, sums_: tir.handle, passes: tir.int32):
        tir.func_attr({"global_symbol": "vector", "tirx.noalias": True})
        x = tir.match_buffer(x_, (DEPTH, lanes), "float32")
        y = tir.match_buffer(y_, (DEPTH, ACCUMULATORS), "float32")
        sums = tir.match_buffer(sums_, (width,), "float32")
        kept = tir.alloc_buffer((width,), "float32")
        for u in tir.unroll(ACCUMULATORS):
            for v in tir.vectorized(lanes):
                kept[u * lanes + v] = tir.float32(0)
        for _, i in tir.grid(passes, DEPTH):
            for u in tir.unroll(ACCUMULATORS):
                for v in tir.vectorized(lanes):
                    kept[u * lanes + v] = kept[u * lanes + v] + x[i, v] * y[i, u]
        for u in tir.unroll(ACCUMULATORS):
            for v in tir.vectorized(lanes):
                sums[u * lanes + v] = kept[u * lanes + v]

    @tir.prim_func(private=False)
    def scalar(x_: tir.handle, y_: tir.handle, sums_: tir.handle, passes: tir.int32):
        tir.func_attr({"global_symbol": "scalar", "tirx.noalias": True})
        x = tir.match_buffer(x_, (DEPTH + TILE * SPREAD,), "float32")
        y = tir.match_buffer(y_, (DEPTH + TILE * SPREAD,), "float32")
        sums = tir.match_buffer(sums_, (TILE, TILE), "float32")
        kept = tir.alloc_buffer((TILE, TILE), "float32")
        for u, v in tir.grid(TILE, TILE):
            kept[u, v] = tir.float32(0)
        for _, i in tir.grid(passes, DEPTH):
            for u in tir.unroll(TILE):
                for v in tir.unroll(TILE):
                    kept[u, v] = kept[u, v] + x[i + u * SPREAD] * y[i + v * SPREAD]
        for u, v in tir.grid(TILE, TILE):
            sums[u, v] = kept[u, v]

    @tir.prim_func(private=False)
    def chained(x_: tir.handle, sums_: tir.handle, passes: tir.int32):
        tir.func_attr({"global_symbol": "chained", "tirx.noalias": True})
        x = tir.match_buffer(x_, (DEPTH,), "float32")
        sums = tir.match_buffer(sums_, (1,), "float32")
        kept = tir.alloc_buffer((1,), "float32")
        kept[0] = tir.float32(0)
        for _, i in tir.grid(passes, DEPTH):
            kept[0] = kept[0] + x[i]
        sums[0] = kept[0]

    @tir.prim_func(private=False)
    def empty(sums_: tir.handle):
        tir.func_attr({"global_symbol": "empty", "tirx.noalias": True})
        sums = tir.match_buffer(sums_, (cores,), "float32")
        for i in tir.serial(cores):
            sums[i] = tir.float32(0)

    @tir.prim_func(private=False)
    def parallel(sums_: tir.handle):
        tir.func_attr({"global_symbol": "parallel", "tirx.noalias": True})
        sums = tir.match_buffer(sums_, (cores,), "float32")
        for i in tir.parallel(cores):
            sums[i] = tir.float32(0)

    # fmt: on
    functions = {"read": read, "vector": vector, "chained": chained, "empty": empty, "parallel": parallel}
    unpacked = make_target({**target, "opt-level": SCALAR_LEVEL})
    return (
        tvm.compile(tvm.IRModule(functions), target=make_target(target)).mod,
        tvm.compile(tvm.IRModule({"scalar": scalar}), target=unpacked).mod,
    )
