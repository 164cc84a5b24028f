from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.measurement.checking import TOLERANCE, difference, random_array, read_results, write_results
from kernelcast.measurement.devices import Loading
from kernelcast.measurement.local import LocalDevice, OpenLocalRunner
from kernelcast.measurement.messages import Failed
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.workloads import dense, matmul
from kernelcast.records import Outcome, Workload
from kernelcast.tvm_compat import parse_module, runnable_module, scheduled_module, structural_key

MakeDevice = Callable[..., LocalDevice]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_come_back_as_they_were_written(tmp_path: Path, dtype: str) -> None:
    arrays = [random_array(np.random.default_rng(0), shape, dtype) for shape in ((3, 4), (), (0, 2), (5,))]
    write_results(tmp_path / "results.npz", arrays)
    stored = read_results(tmp_path / "results.npz")
    assert [(one.shape, one.dtype) for one in stored] == [(one.shape, np.dtype(one.dtype)) for one in arrays]
    assert difference(["a", "b", "c", "d"], arrays, stored) == ""


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 2**31))
def test_random_arguments_are_repeatable_finite_and_safe_as_indices(dtype: str, seed: int) -> None:
    array, again = (random_array(np.random.default_rng(seed), (40,), dtype) for _ in range(2))
    assert array.tobytes() == again.tobytes()
    values = array.astype(np.float64)
    low = -1 if "float" in dtype else 0
    assert ((low <= values) & (values <= 1)).all()
    assert len(set(values)) > 1


@given(
    dtype=st.sampled_from(sorted(TOLERANCE)),
    position=st.integers(0, 11),
    # in the element's tolerance
    factor=st.floats(-20, 20),
)
def test_one_element_beyond_the_tolerance_is_named(dtype: str, position: int, factor: float) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    expected = np.linspace(0.5, 1.0, 12).reshape(3, 4).astype(kind)
    result = expected.copy()
    result.flat[position] = kind.type(float(expected.flat[position]) + factor * TOLERANCE[dtype])
    said = difference(["out"], [result], [expected])
    right = expected.astype(np.float64)
    scale = np.sqrt(np.mean(right**2)) + right.flat[position]
    apart = abs(float(result.flat[position]) - right.flat[position])
    assert bool(said) == (apart > TOLERANCE[dtype] * scale)
    if said:
        row, column = divmod(position, 4)
        assert said.startswith("1 of 12 elements of `out` differ from the unscheduled workload's; the first, ")
        assert f"[{row}, {column}]" in said


@given(st.lists(st.sampled_from([0.5, -2.0, np.inf, -np.inf, np.nan]), min_size=1, max_size=6))
def test_what_the_workload_itself_makes_of_its_inputs_is_right(values: list[float]) -> None:
    expected = np.array(values, dtype=np.float32)
    assert difference(["out"], [expected.copy()], [expected]) == ""
    # without something to compare with, only finite numbers are
    assert bool(difference(["out"], [expected], None)) == (not np.isfinite(expected).all())
    for index, value in enumerate(values):
        for other in (0.5, np.inf, np.nan):
            if not np.array_equal(value, other, equal_nan=True):
                changed = expected.copy()
                changed[index] = other
                assert "the first, [" in difference(["out"], [changed], [expected])


def test_integers_must_be_equal() -> None:
    expected = np.arange(6, dtype=np.int32)
    assert difference(["out"], [expected.copy()], [expected]) == ""
    assert difference(["out"], [expected + (expected > 3)], [expected]) == (
        "2 of 6 elements of `out` differ from the unscheduled workload's"
    )
    assert difference(["out"], [expected], None) == ""


def test_a_difference_in_shape_is_named() -> None:
    said = difference(["in", "out"], [np.ones(2), np.ones(3)], [np.ones(2), np.ones(4)])
    assert said == "`out` has shape (3,), the unscheduled workload has (4,)"


def test_a_tensor_of_zeros_may_only_be_zeros() -> None:
    zeros = np.zeros(3, dtype=np.float32)
    assert difference(["out"], [zeros], [zeros]) == ""
    assert difference(["out"], [zeros + 1e-6], [zeros])


def load(make_device: MakeDevice, workload: Workload, candidate: Any, compared: bool = True) -> Loading:
    """Builds, runs and compares one program in a worker of its own."""
    device = make_device()
    expected = OpenLocalRunner([device], device._bench).expected(workload) if compared else None
    loading = device.load(workload, candidate, expected)
    if not isinstance(loading.program, Failed):
        loading.program.close()
    return loading


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
def test_right_programs_of_every_type_pass(make_device: MakeDevice, target: dict[str, Any], dtype: str) -> None:
    workload = matmul("m", 16, 24, 32, dtype=dtype)
    for candidate in sample_candidates(workload, target, 2, seed=0):
        loading = load(make_device, workload, candidate)
        assert not isinstance(loading.program, Failed)
        assert loading.checked
        assert loading.call_seconds > 0


def test_a_program_with_weights_of_another_layout_is_compared_as_a_whole(
    make_device: MakeDevice, target: dict[str, Any]
) -> None:
    # a square matrix that is turned over has the shape that it had
    workload = dense("d", 8, 4, 4)
    plain = [tuple(map(int, one.shape)) for one in parse_module(workload.module)["main"].params]
    found = {True: 0, False: 0}
    for candidate in sample_candidates(workload, target, 8, seed=0):
        module = scheduled_module(workload, candidate.trace)
        taken = runnable_module(module)
        if structural_key(taken) != structural_key(module):
            same_shapes = [tuple(map(int, one.shape)) for one in taken["main"].params] == plain
            found[same_shapes] += 1
            if found[same_shapes] <= 2:
                loading = load(make_device, workload, candidate)
                assert not isinstance(loading.program, Failed)
                assert loading.checked
    assert found[True]
    assert found[False]


def test_a_program_that_computes_something_else_is_found_out(faulty: Any, make_device: MakeDevice) -> None:
    workload = faulty.hidden_order("hidden")
    assert load(make_device, workload, faulty.unscheduled(workload)).checked
    loading = load(make_device, workload, faulty.reordered(workload))
    assert isinstance(loading.program, Failed)
    assert loading.program.outcome is Outcome.WRONG_RESULT
    assert " of 594 elements of `result` differ from the unscheduled workload's; the first, [2, 1], is " in (
        loading.program.message
    )
    assert loading.checked
    assert loading.build_seconds is not None
    # that is all that a program which nobody compares has to do: run
    assert not isinstance(load(make_device, workload, faulty.reordered(workload), compared=False).program, Failed)


def test_results_that_are_no_numbers_are_wrong_even_where_nothing_is_compared(
    faulty: Any, make_device: MakeDevice
) -> None:
    workload = faulty.not_a_number("root")
    loading = load(make_device, workload, faulty.unscheduled(workload), compared=False)
    assert loading.program == Failed(Outcome.WRONG_RESULT, "the results in `result` are not all finite numbers")
    assert not loading.checked
    # the workload itself computes no numbers, so a program that does not either is right
    assert load(make_device, workload, faulty.unscheduled(workload)).checked
