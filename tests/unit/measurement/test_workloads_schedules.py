"""MetaSchedule can schedule every operator, and its programs compute what the unscheduled ones do."""

from typing import Any

import numpy as np
import pytest

from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, make_target, parse_module, runnable_module, scheduled_module

TARGET = {"kind": "llvm", "num-cores": 1}
IMAGE = {"height": 4, "width": 4, "channels": 4}

SMALL: dict[str, dict[str, Any]] = {
    "attention": {"heads": 2, "tokens": 4, "dim": 4},
    "batch_matmul": {"batch": 2, "rows": 4, "columns": 4, "depth": 4},
    "batch_norm": IMAGE,
    "conv1d": {"width": 6, "channels": 2, "filters": 4, "kernel": 3},
    "conv1d_transpose": {"width": 3, "channels": 2, "filters": 2, "kernel": 2, "stride": 2},
    "conv2d": {**IMAGE, "filters": 4, "kernel": 3, "groups": 2},
    "conv2d_bias_relu": {**IMAGE, "filters": 4, "kernel": 3, "layout": "NCHW"},
    "conv2d_transpose": {"height": 2, "width": 2, "channels": 2, "filters": 2, "kernel": 2},
    "conv3d": {"depth": 2, **IMAGE, "filters": 2, "kernel": 2},
    "conv3d_transpose": {"depth": 2, "height": 2, "width": 2, "channels": 2, "filters": 2, "kernel": 2},
    "dense": {"rows": 4, "columns": 4, "depth": 8, "activation": "gelu"},
    "depthwise_conv2d": {**IMAGE, "kernel": 3, "padding": 1},
    "elementwise": {"shape": [4, 8], "chain": ["add", "relu", "multiply", "tanh"]},
    "global_pool2d": IMAGE,
    "layer_norm": {"rows": 4, "columns": 8},
    "log_softmax": {"rows": 4, "columns": 8},
    "matmul": {"rows": 4, "columns": 4, "depth": 8, "dtype": "int8"},
    "pool1d": {"width": 8, "channels": 4, "kernel": 2},
    "pool2d": {**IMAGE, "kernel": 2, "operation": "mean"},
    "pool3d": {"depth": 2, **IMAGE, "kernel": 2},
    "reduction": {"shape": [4, 8], "operation": "mean"},
    "rms_norm": {"rows": 4, "columns": 8},
    "softmax": {"rows": 4, "columns": 8},
}


def programs(workload: Workload, count: int) -> list[Any]:
    """Programs that take the same shapes as the unscheduled module: a schedule may change the layout of weights."""
    shapes = shapes_of(parse_module(workload.module))
    modules = [
        runnable_module(scheduled_module(workload, candidate.trace))
        for candidate in sample_candidates(workload, TARGET, count, seed=0)
    ]
    assert modules
    return [module for module in modules if shapes_of(module) == shapes]


def shapes_of(module: Any) -> list[tuple[int, ...]]:
    return [tuple(int(extent) for extent in buffer.shape) for buffer in module["main"].params]


def result(module: Any) -> np.ndarray:
    tvm = load_tvm()
    random = np.random.default_rng(0)
    arguments = []
    for buffer, shape in zip(module["main"].params, shapes_of(module), strict=True):
        kind = str(buffer.dtype)
        values = random.uniform(-1, 1, shape) if "float" in kind else random.integers(-100, 100, shape)
        arguments.append(tvm.runtime.tensor(values.astype(kind)))
    tvm.compile(module, target=make_target(TARGET))["main"](*arguments)
    return arguments[-1].numpy()


def test_every_operator_has_a_case() -> None:
    assert set(SMALL) == set(workloads.__all__) - {"MOST_ELEMENTS", "from_module", "sweep"}


@pytest.mark.parametrize("operator", SMALL)
def test_two_programs_of_every_operator(operator: str) -> None:
    workload = getattr(workloads, operator)("w", **SMALL[operator])
    expected = result(parse_module(workload.module))
    for module in programs(workload, 2):
        np.testing.assert_allclose(result(module), expected, rtol=1e-4, atol=1e-5)


def test_programs_of_attention_add_up_each_row_once() -> None:
    """They did not when the weights were divided before the second product."""
    workload = workloads.attention("w", heads=2, tokens=8, dim=8)
    expected = result(parse_module(workload.module))
    same = programs(workload, 5)
    assert len(same) == 5, "no input of attention is a weight whose layout may be changed"
    for module in same:
        np.testing.assert_allclose(result(module), expected, rtol=1e-4, atol=1e-5)
