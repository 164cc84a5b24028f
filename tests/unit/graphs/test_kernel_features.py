import numpy as np
import pytest

from kernelcast.graphs.facts import analyse
from kernelcast.graphs.kernel_features import KERNEL_FEATURES, kernel_features
from kernelcast.graphs.vocabulary import FEATURE_GROUPS
from kernelcast.graphs.walker import walk
from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, parse_module, runnable_module, scheduled_module

TILED_MATMUL = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64, 48), "float32"), B: T.Buffer((48, 32), "float32"), C: T.Buffer((64, 32), "float32")):
        for i0_j0 in T.parallel(16, annotations={"pragma_auto_unroll_max_step": 64}):
            for k0, i1, j1, k1, i2 in T.grid(6, 2, 1, 8, 4):
                for j2 in T.vectorized(16):
                    with T.sblock("C"):
                        i = T.axis.spatial(64, i0_j0 // 2 * 8 + i1 * 4 + i2)
                        j = T.axis.spatial(32, i0_j0 % 2 * 16 + j1 * 16 + j2)
                        k = T.axis.reduce(48, k0 * 8 + k1)
                        with T.init():
                            C[i, j] = T.float32(0)
                        C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""

WINDOW = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((34, 16), "float32"), W: T.Buffer((3,), "float32"), C: T.Buffer((16, 16), "float32")):
        for y0 in T.parallel(4):
            for r, y1, x in T.grid(3, 4, 16):
                with T.sblock("C"):
                    y = T.axis.spatial(16, y0 * 4 + y1)
                    c = T.axis.spatial(16, x)
                    dy = T.axis.reduce(3, r)
                    with T.init():
                        C[y, c] = T.float32(0)
                    C[y, c] = C[y, c] + A[y * 2 + dy, c] * W[dy]
"""

NOTHING_REDUCED = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 4, 32), "int32"), B: T.Buffer((8, 4, 32), "int32")):
        for a in T.parallel(8):
            for b in range(4):
                for c in T.vectorized(32):
                    with T.sblock("B"):
                        i, j, k = T.axis.remap("SSS", [a, b, c])
                        B[i, j, k] = A[i, j, k] * 3 + 1
"""


def named(module: object) -> dict[str, float]:
    """Natural values by name, without those that are 0."""
    table = walk(module)
    row = kernel_features(table, analyse(table))
    assert row.shape == (len(KERNEL_FEATURES),)
    return {feature.name: value for feature, value in zip(KERNEL_FEATURES, row, strict=True) if value}


def parsed(text: str) -> object:
    return load_tvm().script.from_source(text)


def tile(prefix: str, *extents: int) -> dict[str, float]:
    found = {f"{prefix}_{place + 1}": extent for place, extent in enumerate(extents)}
    return {**found, f"{prefix}_sum": sum(extents), f"{prefix}_product": int(np.prod(extents))}


def test_tiled_matmul_by_hand() -> None:
    assert named(parsed(TILED_MATMUL)) == {
        # inside k0: two by four rows, sixteen columns, eight terms of each sum
        **tile("output_tile", 16, 8),
        **tile("input1_tile", 8, 8),
        **tile("input2_tile", 16, 8),
        **tile("inner_tile", 16, 4),
        "spatial_inner_extent": 4 * 16,
        "reduced_inner_extent": 8,
        "spatial_middle_extent": 2,
        "reduced_outer_extent": 6,
        "spatial_outer_extent": 16,
        "inner_extent": 16,
        "parallel_extent": 16,
        "unroll_limit": 64,
        "lanes": 16,
        "flops": 2 * 64 * 32 * 48,
        "parallel_flops": 2 * 64 * 32 * 48 / 16,
        "read_bytes": 4 * (64 * 48 + 48 * 32),
        "written_bytes": 4 * 64 * 32,
        "intensity": 2 * 64 * 32 * 48 / (4 * (64 * 48 + 48 * 32 + 64 * 32)),
    }


def test_tile_of_a_window_has_the_rows_that_overlap() -> None:
    found = named(parsed(WINDOW))
    # inside the loop over the window: four rows of the result, from each second row of the input
    assert tile("output_tile", 16, 4).items() <= found.items()
    assert tile("input1_tile", 16, 7).items() <= found.items()
    assert {"reduced_inner_extent": 3, "spatial_inner_extent": 64, "spatial_outer_extent": 4}.items() <= found.items()
    assert {"spatial_middle_extent": 1, "reduced_outer_extent": 1}.items() <= found.items()
    # the weight is read at one place in this time
    assert found["input2_tile_product"] == 1
    assert "inner_is_reduced" not in found


def test_without_reduction_the_tile_is_that_of_a_parallel_iteration() -> None:
    found = named(parsed(NOTHING_REDUCED))
    assert tile("output_tile", 32, 4).items() <= found.items()
    assert tile("inner_tile", 32).items() <= found.items()
    assert {
        "spatial_outer_extent": 8,
        "spatial_inner_extent": 4 * 32,
        "reduced_inner_extent": 1,
    }.items() <= found.items()
    assert found["integer_operations"] == 2 * 8 * 4 * 32
    assert "flops" not in found
    assert found["intensity"] == pytest.approx(2 / 8)


def test_unscheduled_matmul_has_one_level(suite: dict[str, Workload]) -> None:
    found = named(parse_module(suite["matmul"].module))
    expected = {
        "output_tile_product": 1,
        "input1_tile_product": 1,
        "inner_tile_product": 1,
        "reduced_inner_extent": 48,
        "spatial_outer_extent": 64 * 32,
        "spatial_inner_extent": 1,
        "inner_extent": 48,
        "inner_is_reduced": 1,
        "parallel_extent": 1,
        "flops": 2 * 64 * 32 * 48,
    }
    assert expected.items() <= found.items()


@pytest.mark.parametrize("name", ["matmul", "conv"])
def test_what_schedules_change_and_what_they_do_not(
    name: str, suite: dict[str, Workload], candidates: dict[str, list[Candidate]]
) -> None:
    rows = [named(runnable_module(scheduled_module(suite[name], drawn.trace))) for drawn in candidates[name]]
    plain = named(parse_module(suite[name].module))
    for row in rows:
        assert row["flops"] == plain["flops"]
        assert row["read_bytes"] == plain["read_bytes"]
        assert row["written_bytes"] == plain["written_bytes"]
        levels = [row[f"{level}_extent"] for level in ("spatial_inner", "spatial_middle", "spatial_outer")]
        sums = [row[f"{level}_extent"] for level in ("reduced_inner", "reduced_outer")]
        # tiling cuts the loops up and loses none of them
        assert np.prod(levels) == (64 * 32 if name == "matmul" else 8 * 8 * 16)
        assert np.prod(sums) == (48 if name == "matmul" else 3 * 3 * 8)
        assert row["inner_tile_product"] <= row["output_tile_product"]
    tiles = {tuple(row.get(f"output_tile_{place}", 0) for place in (1, 2, 3)) for row in rows}
    assert len(tiles) > 1


def test_features_are_explained() -> None:
    names = [feature.name for feature in KERNEL_FEATURES]
    assert len(set(names)) == len(names)
    for feature in KERNEL_FEATURES:
        assert feature.group in FEATURE_GROUPS
        assert feature.unit
        assert feature.source
        assert len(feature.meaning) > 10
