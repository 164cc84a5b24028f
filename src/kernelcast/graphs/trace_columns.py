"""What a step of a schedule trace says, column by column: primitives, words, and the meaning of every number."""

from __future__ import annotations

import zlib

from kernelcast.graphs.vocabulary import Column

OTHER = "other"

PRIMITIVES = (
    OTHER, "AddUnitLoop", "Annotate", "AnnotateBufferAccess", "Bind", "Blockize", "CacheIndex", "CacheInplace",
    "CacheRead", "CacheWrite", "ComputeAt", "ComputeInline", "DecomposePadding", "DecomposeReduction", "EnterPostproc",
    "Fuse", "FuseReductionEpilogue", "GetChildBlocks", "GetConsumers", "GetLoops", "GetOutputBlocks", "GetProducers",
    "GetSBlock", "LoopPartition", "Merge", "PadEinsum", "Parallel", "RFactor", "ReIndex", "ReadAt", "ReindexCacheRead",
    "ReindexCacheWrite", "Reorder", "ReorderBlockIterVar", "ReverseComputeAt", "ReverseComputeInline", "RollingBuffer",
    "SampleCategorical", "SampleComputeLocation", "SamplePartitionedTile", "SamplePerfectTile", "SetScope", "Split",
    "StorageAlign", "Tensorize", "TransformBlockLayout", "TransformLayout", "Unannotate", "Unroll",
    "UnsafeHideBufferAccess", "UnsafeSetDType", "Vectorize", "WriteAt",
)  # fmt: skip
"""Kinds of instructions that TVM 0.16 to 0.27 register. New ones go to the end: data keeps the numbers."""

ALIASES = {"GetBlock": "GetSBlock"}
"""Earlier names of the same primitive."""

WORDS = (
    # thread axes of Bind
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread.x", "vthread.y",
    "vthread.z", "vthread",
    # buffer scopes of CacheRead, CacheWrite, SetScope, ReadAt, WriteAt
    "global", "shared", "shared.dyn", "local", "warp", "global.texture", "global.vtcm", "wmma.matrix_a",
    "wmma.matrix_b", "wmma.accumulator", "m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC",
    # keys of Annotate and Unannotate
    "meta_schedule.tiling_structure", "meta_schedule.parallel", "meta_schedule.vectorize",
    "meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit", "meta_schedule.cooperative_fetch",
    "meta_schedule.thread_extent_low_inclusive", "meta_schedule.thread_extent_high_inclusive",
    "meta_schedule.auto_tensorize", "meta_schedule.auto_tensorize_init", "meta_schedule.layout_rewrite_preproc",
    "meta_schedule.random_compute_producer", "meta_schedule.inline_rule", "meta_schedule.cache_type",
    "pragma_auto_unroll_max_step", "pragma_unroll_explicit", "pragma_loop_partition_hint", "software_pipeline_stage",
    "software_pipeline_order", "software_pipeline_async_stages", "double_buffer_scope", "warp_execution",
    "schedule_rule", "buffer_dim_align", "explicit_read_region", "explicit_write_region",
    # tiling structures, which Annotate writes for the schedule rules
    "SSRSRS", "SSSRRSRS",
    # tensor intrinsics of Tensorize and meta_schedule.auto_tensorize
    "dot_16x4_vnni", "dot_16x4_avx512", "dp4a_s8s8s32", "dp4a_u8s8s32", "dp4a_s8u8s32", "dp4a_u8u8u32",
    "dot_4x4_i8i8s32_neon", "dot_4x4_i8i8s32_sdot", "dot_4x4_u8u8u32_udot", "dot_4x4_u8u8i32_hdot",
    "wmma_load_16x16x16_f16_a_shared", "wmma_load_16x16x16_f16_b_shared", "wmma_load_16x16x16_f16_b_trans_shared",
    "wmma_load_16x16x16_f16_a_shared_dyn", "wmma_load_16x16x16_f16_b_shared_dyn", "wmma_fill_16x16x16_f16",
    "wmma_fill_16x16x16_f32", "wmma_sync_16x16x16_f16f16f16", "wmma_sync_16x16x16_f16f16f32",
    "wmma_store_16x16x16_f16_shared", "wmma_store_16x16x16_f32_shared", "wmma_store_16x16x16_f16_shared_dyn",
    "wmma_store_16x16x16_f32_shared_dyn",
)  # fmt: skip
"""Texts that steps carry and that have a code of their own: the place here, from 1. New ones go to the end of a new
feature version."""

WORD_BUCKETS = 32
"""Other texts share the codes after those of `WORDS`, by a hash that is the same everywhere."""

LONG_TEXT = 64
"""Longer texts (index maps) all have the code after those; what they say follows from decisions."""

BLOCK_BUCKETS = 64
"""Names of blocks have the codes 1 to this, by the same hash."""

ATTRIBUTES, OPERANDS, DECISIONS = 4, 6, 6
"""How many of each a step shows; more are left out, fewer leave zeros, so that every step has the same width."""


COLUMNS: tuple[Column, ...] = (
    Column("after_postproc", "0 or 1", "the step stands after EnterPostproc: a postprocessor made it, not a rule"),
    Column("inputs", "log1p of a count", "operands, those in lists too"),
    Column("outputs", "log1p of a count", "blocks, loops and variables that it makes"),
    Column("block", "code", "the block that the first operand descends from, a bucket of its name; 0: none"),
    Column("chain", "log1p of a count", "steps from that block to here, going from first operand to first operand"),
    Column("word", "code", "the first text among the attributes: axis, scope, key, intrinsic; see word_code; 0: none"),
    *(
        Column(
            f"attribute_{number}",
            "log1p",
            f"attribute {number}: a number or truth as it is, a list by its length, a text or nothing as 0",
        )
        for number in range(1, ATTRIBUTES + 1)
    ),
    *(
        column
        for number in range(1, OPERANDS + 1)
        for column in (
            Column(f"operand_{number}_back", "log1p of a count", "steps back to the one that made it; 0: a literal"),
            Column(
                f"operand_{number}_value",
                "log1p; code for a text",
                "its place from 1 among what that step made (the loops of a split, outermost first), or the literal",
            ),
        )
    ),
    Column("decided", "count", "numbers that were decided here, of which the first follow; 0: nothing to decide"),
    *(
        Column(
            f"decision_{number}",
            "log1p",
            f"factor {number} of a tiling, outermost first; of a location the loop's number (-1: root, -2: inlined); "
            + ("of a choice " + ("its place", "the value", "its probability, as it is")[number - 1])
            if number <= 3
            else f"factor {number} of a tiling",
        )
        for number in range(1, DECISIONS + 1)
    ),
)
"""The columns of `TraceTokens.values`, in order. Source: Zhai et al. 2023 (TLP, arXiv 2211.03578), who keep the kind,
the numbers and the names of a primitive; where operands come from is added here."""

COLUMN_NAMES = tuple(column.name for column in COLUMNS)

_CODES = {word: code for code, word in enumerate(WORDS, start=1)}


def word_code(text: str) -> int:
    """The code of a text: of one of `WORDS` its place from 1, of others one of the buckets after; empty: 0."""
    if len(text) > LONG_TEXT:
        return len(WORDS) + WORD_BUCKETS + 1
    # a literal text keeps its quotation marks in the trace
    plain = text.strip('"')
    known = _CODES.get(plain)
    if known is not None:
        return known
    return len(WORDS) + 1 + _hash(plain) % WORD_BUCKETS if plain else 0


def block_code(name: str) -> int:
    """The code of a block's name, from 1 to `BLOCK_BUCKETS`."""
    return 1 + _hash(name) % BLOCK_BUCKETS


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
