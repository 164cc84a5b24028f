"""What the view says of programs whose work is known."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.dataset.store import feature_version
from kernelcast.graphs.machine_code import columns as machine_code
from kernelcast.graphs.machine_code.columns import COLUMN_NAMES, COLUMNS, WIDTHS
from kernelcast.graphs.machine_code.listing import COMPUTE
from kernelcast.graphs.machine_code.rows import machine_code_row, machine_code_rows
from kernelcast.graphs.options import ViewOptions
from kernelcast.tvm_compat import assembly, load_tvm, resolve_target, runnable_module
from tests.unit.graphs.machine_code.conftest import listing

MATMUL_FLOPS = 2 * 64 * 32 * 48


def row_of(text):
    return dict(zip(COLUMN_NAMES, machine_code_row(text), strict=True))


def operations(row):
    """Floats that are worked on, a multiply-add being two."""
    lanes = sum(row[f"arithmetic_{width}"] * width / 4 for width in WIDTHS)
    instructions = sum(row[f"arithmetic_{width}"] for width in WIDTHS)
    return lanes * (1 + row["multiply_adds"] / instructions)


def test_every_column_is_described_once():
    assert len(set(COLUMN_NAMES)) == len(COLUMNS)
    assert all(one.unit.startswith("log1p of") and one.meaning for one in COLUMNS)


def test_a_product_of_matrices_has_its_operations(plain, target):
    row = row_of(assembly(runnable_module(plain["matmul"].mod), target))
    assert operations(row) == pytest.approx(MATMUL_FLOPS, rel=0.05)
    assert row["guessed_loops"] == 0
    assert row["parallel_cycles"] == 0


def test_drawn_programs_of_a_product_have_at_least_its_operations(assemblies):
    # LLVM computes a lane or two more where vectors do not fit
    for text in assemblies["matmul"]:
        assert 0.95 * MATMUL_FLOPS < operations(row_of(text)) < 3 * MATMUL_FLOPS


@pytest.mark.parametrize(("mcpu", "widest"), [("x86-64", 16), ("haswell", 32), ("skylake-avx512", 64), ("znver4", 64)])
def test_every_instruction_set_is_read(plain, mcpu, widest):
    schedule = plain["matmul"].copy()
    rows, columns, depth = schedule.get_loops(schedule.get_sblock("T_matmul_NN"))
    schedule.reorder(rows, depth, columns)
    schedule.vectorize(columns)
    target = resolve_target({"kind": "llvm", "mcpu": mcpu, "num-cores": 1})
    row = row_of(assembly(runnable_module(schedule.mod), target))
    assert operations(row) == pytest.approx(MATMUL_FLOPS, rel=0.05)
    assert max(width for width in WIDTHS if row[f"arithmetic_{width}"]) == widest


def test_vectors_take_fewer_instructions_and_cycles(plain, target):
    schedule = plain["matmul"].copy()
    rows, columns, depth = schedule.get_loops(schedule.get_sblock("T_matmul_NN"))
    schedule.reorder(rows, depth, columns)
    schedule.vectorize(columns)
    slow = row_of(assembly(runnable_module(plain["matmul"].mod), target))
    fast = row_of(assembly(runnable_module(schedule.mod), target))
    assert fast["cycles"] < slow["cycles"] / 2
    assert fast["instructions"] < slow["instructions"]
    assert operations(fast) == pytest.approx(operations(slow), rel=0.1)


def test_a_parallel_loop_counts_for_all_threads(plain, target):
    schedule = plain["matmul"].copy()
    schedule.parallel(schedule.get_loops(schedule.get_sblock("T_matmul_NN"))[0])
    row = row_of(assembly(runnable_module(schedule.mod), target))
    assert operations(row) == pytest.approx(MATMUL_FLOPS, rel=0.05)
    assert row["parallel_cycles"] == pytest.approx(row["cycles"], rel=0.1)


def test_rows_are_finite_scaled_and_independent_of_each_other(modules, assemblies, target):
    made = [runnable_module(one) for drawn in modules.values() for one in drawn[:2]]
    texts = [text for drawn in assemblies.values() for text in drawn]
    view = machine_code_rows(made, target)
    assert view.values.dtype == np.float32
    assert view.names == COLUMN_NAMES
    assert np.isfinite(view.values).all()
    assert (view.values[:, COLUMN_NAMES.index("cycles")] > 0).all()
    np.testing.assert_array_equal(machine_code_rows(made[::-1], target).values, view.values[::-1])
    for row, text in zip(view.values, texts, strict=True):
        np.testing.assert_allclose(row, np.log1p(machine_code_row(text)), rtol=1e-6)


def test_no_program_is_no_row(target):
    assert machine_code_rows([], target).values.shape == (0, len(COLUMNS))


OVERLAPPING = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((64, 48), "float32"), b: T.Buffer((48, 32), "float32"), c: T.Buffer((64, 32), "float32")):
        for i, j, k in T.grid(64, 32, 48):
            with T.sblock("c"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""


def test_a_function_whose_arguments_may_overlap_is_read_too(target):
    # TVM then leaves the loops where the arguments are checked
    module = load_tvm().script.from_source(OVERLAPPING)
    text = assembly(runnable_module(module), target)
    assert "\nmain_compute_:" not in text
    assert operations(row_of(text)) == pytest.approx(MATMUL_FLOPS, rel=0.05)


@pytest.mark.parametrize("text", ["", "main:\n\tretq\n", ".L__tvm:\n\tcmpl\n", "nothing of the kind", "\x00\n\t\t\n"])
def test_what_is_no_code_of_tvm_is_one_clear_error(text):
    with pytest.raises(
        MalformedDataError, match=r"no function that computes: .*; leave `machine_code` out of features"
    ):
        machine_code_row(text)


@pytest.mark.parametrize(
    "body", ["retq", "jmp .LBB9_9", ".LBB0_1: \n jmp .LBB0_1", ".LBB0_1: \n .LBB0_2: \n jne .LBB0_1"]
)
def test_code_that_does_nothing_or_never_ends_has_a_row(body):
    assert np.isfinite(machine_code_row(listing((COMPUTE, body)))).all()


LINES = st.sampled_from(
    [
        *(f".LBB0_{number}:" for number in range(4)),
        *(f"\t{jump}\t.LBB0_{number}" for jump in ("jne", "jmp", "jb", "ja") for number in range(4)),
        "\tretq",
        "\tincq\t%rax",
        "\tincq\t8(%rsp)",
        "\tmovq\t8(%rsp), %rax",
        "\tmovq\t%rax, 8(%rsp)",
        "\tmovl\t$7, %ecx",
        "\txorl\t%eax, %eax",
        "\taddq\t$-16, %rax",
        "\tleaq\t4(%rcx), %rax",
        "\tcmpq\t$96, %rax",
        "\tcmpq\t%rcx, %rax",
        "\ttestb\t$1, %cl",
        "\tvfmadd231ps\t(%rdi,%rax,4), %zmm0, %zmm1",
        "\tvmovups\t%ymm1, 8(%rsp)",
        "\tvmovss\t8(%rsp), %xmm1",
        "\tcallq\texpf@PLT",
        ".Lfunc_end0:",
        ".L__tvm_parallel_lambda.7:",
        "\tcmpl\t$100, %eax",
    ]
)


@given(st.lists(LINES, max_size=60))
@settings(max_examples=400, deadline=None)
def test_any_order_of_instructions_has_a_finite_row_that_more_code_never_lessens(lines):
    text = "\n".join(["main_compute_:", *lines])
    row = machine_code_row(text)
    assert np.isfinite(row).all()
    assert (row >= 0).all()
    more = machine_code_row("\n".join(["main_compute_:", "\tvaddps\t%ymm0, %ymm1, %ymm2", *lines]))
    assert dict(zip(COLUMN_NAMES, more, strict=True))["arithmetic_32"] >= 1


@given(st.text(alphabet="\t\n .:%$(),jmpvadxyl0123LB_", max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_has_a_row_or_is_refused(text):
    for found in (f"main_compute_:\n{text}", text):
        try:
            assert np.isfinite(machine_code_row(found)).all()
        except MalformedDataError:
            assert found == text


def test_a_file_that_was_cut_off_has_a_row_of_what_there_is(assemblies):
    text = assemblies["conv"][0]
    for end in range(text.index("main_compute_:") + 20, len(text), max(1, len(text) // 40)):
        assert np.isfinite(machine_code_row(text[:end])).all()


def test_code_of_a_gpu_is_refused_by_name(plain):
    cuda = resolve_target({"kind": "cuda", "arch": "sm_80"})
    with pytest.raises(
        ConfigError, match=r"`machine_code` reads x86-64 code, and the target is .*cuda.*leave it.*inspect=null"
    ):
        assembly(runnable_module(plain["matmul"].mod), cuda)


def test_what_llvm_cannot_build_is_one_clear_error(target):
    with pytest.raises(
        MalformedDataError, match=r"cannot be built for .*; leave `machine_code` out of features\.views"
    ):
        assembly("not a module", target)


def test_the_version_is_part_of_that_of_the_features(monkeypatch):
    from kernelcast.graphs.dataset import store

    columns = {"machine_code": {"names": COLUMN_NAMES}}
    options = ViewOptions(views=("machine_code",))
    before = feature_version(options, columns)
    monkeypatch.setattr(store, "MACHINE_CODE_VERSION", machine_code.MACHINE_CODE_VERSION + 1)
    assert feature_version(options, columns) != before
    # views of other stores stay what they are
    other = feature_version(dataclasses.replace(options, views=("trace",)), {"trace": {"names": ("a",)}})
    monkeypatch.undo()
    assert feature_version(dataclasses.replace(options, views=("trace",)), {"trace": {"names": ("a",)}}) == other
