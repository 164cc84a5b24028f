import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.per_store import COLUMN_NAMES, COLUMNS, per_store_rows
from kernelcast.graphs.views import StatementRows
from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, replayed_schedule, resolve_target


@pytest.fixture(scope="module")
def schedules(suite: dict[str, Workload], candidates: dict[str, list[Candidate]]) -> list:
    return [replayed_schedule(suite[name], one.trace) for name, drawn in candidates.items() for one in drawn[:2]]


def column(rows: StatementRows, name: str) -> np.ndarray:
    return rows.values[:, rows.names.index(name)]


def test_there_are_as_many_columns_as_tvm_has() -> None:
    load_tvm()
    from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature

    assert len(set(COLUMN_NAMES)) == len(COLUMNS) == PerStoreFeature().feature_vector_length == 164
    assert all(one.unit and one.meaning for one in COLUMNS)


def test_many_programs_in_one_call_are_the_same_as_one_by_one(schedules: list, target: dict) -> None:
    together = per_store_rows(schedules, target)
    assert len(together) == len(schedules)
    assert (together.counts("row") > 0).all()
    alone = StatementRows.concatenate([per_store_rows([one.mod], target) for one in schedules])
    np.testing.assert_array_equal(together.values, alone.values)
    np.testing.assert_array_equal(together.row_offset, alone.row_offset)
    assert together.values.dtype == np.float32


def test_names_fit_what_a_known_program_does(suite: dict[str, Workload], target: dict) -> None:
    # 64 x 32 outputs of 48 multiply-adds, without a schedule
    plain = replayed_schedule(suite["matmul"], "[[],[]]")
    rows = per_store_rows([plain], target)
    assert len(rows.values) == 1
    work, row = np.log2(1 + 64 * 32 * 48), dict(zip(rows.names, rows.values[0], strict=True))
    for name in ("float_add_sub", "float_mul", "outer_product", "allocated_inner_product"):
        assert row[name] == pytest.approx(work)
    assert row["loops"] == np.log2(1 + 3)
    assert row["allocated_bytes"] == pytest.approx(np.log2(1 + 64 * 32 * 4))
    assert row["float_div_mod"] == row["bool_op"] == row["is_gpu"] == row["auto_unroll_max_step"] == 0
    for kind in ("vectorize", "unroll", "parallel"):
        assert (row[f"{kind}_loops"], row[f"{kind}_at_none"]) == (0, 1)
    unique = sorted(round(2 ** float(row[f"buffer_{number}_unique_bytes"]) - 1) for number in (1, 2, 3))
    assert unique == sorted((64 * 48 * 4, 48 * 32 * 4, 64 * 32 * 4))
    access = [next(name for name in ("read", "write", "read_write") if row[f"buffer_{i}_{name}"]) for i in (1, 2, 3)]
    assert sorted(access) == ["read", "read", "read_write"]
    assert not any(row[name] for name in rows.names if name.startswith(("buffer_4", "buffer_5")))
    # all work over all bytes that are touched
    assert row["intensity_10"] == pytest.approx(np.log2(1 + 2 * 64 * 32 * 48 / sum(unique)), rel=1e-5)


def test_annotations_of_loops_are_found(suite: dict[str, Workload], target: dict) -> None:
    schedule = replayed_schedule(suite["matmul"], "[[],[]]")
    rows, columns, depth = schedule.get_loops(schedule.get_sblock("T_matmul_NN"))
    schedule.parallel(rows)
    schedule.reorder(depth, columns)
    schedule.vectorize(columns)
    found = per_store_rows([schedule], target)
    assert column(found, "parallel_innermost") == np.float32(np.log2(1 + 64))
    assert column(found, "vectorize_product") == np.float32(np.log2(1 + 32))
    assert column(found, "parallel_at_mixed") == 1


def test_the_axes_of_a_gpu_are_found(suite: dict[str, Workload]) -> None:
    schedule = replayed_schedule(suite["matmul"], "[[],[]]")
    rows, columns, _ = schedule.get_loops(schedule.get_sblock("T_matmul_NN"))
    schedule.bind(rows, "blockIdx.x")
    schedule.bind(columns, "threadIdx.x")
    found = per_store_rows([schedule], resolve_target({"kind": "cuda", "arch": "sm_80"}))
    assert column(found, "is_gpu") == 1
    assert column(found, "blockIdx_x_extent") == np.float32(np.log2(1 + 64))
    assert column(found, "threadIdx_x_extent") == np.float32(np.log2(1 + 32))


def test_no_program_is_no_row(target: dict) -> None:
    assert len(per_store_rows([], target)) == 0
    assert per_store_rows([], target).values.shape == (0, 164)


@pytest.mark.parametrize("wrong", ["not a module", None])
def test_what_tvm_cannot_read_is_one_clear_error(target: dict, wrong: object) -> None:
    with pytest.raises(MalformedDataError, match=r"features per store: .*; leave `per_store` out of features\.views"):
        per_store_rows([wrong], target)
