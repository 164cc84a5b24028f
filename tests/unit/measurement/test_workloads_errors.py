"""Every mistake in an operator's arguments is one message that names the workload, the key and what is allowed."""

import inspect
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.measurement import workloads
from kernelcast.records import Workload

IMAGE = {"height": 6, "width": 5, "channels": 4}
CONV = {**IMAGE, "filters": 4, "kernel": 3}
VALUES = {"rows": 3, "columns": 4}


@pytest.mark.parametrize(
    ("operator", "arguments", "says"),
    [
        ("matmul", {"rows": math.nan, "columns": 1, "depth": 1}, "rows must be a positive integer.*got nan"),
        ("matmul", {**VALUES, "depth": 2**31}, "depth must be a positive integer, 2147483647 at most, got 2147483648"),
        ("matmul", {**VALUES, "depth": 2, "transpose_right": 1}, "transpose_right must be true or false, got 1"),
        ("matmul", {**VALUES, "depth": 2, "dtype": "int4"}, "dtype must be one of float32, .*int8, got 'int4'"),
        ("matmul", {"rows": 2**20, "columns": 2**20, "depth": 1}, "would have 1099511627776 elements"),
        ("batch_matmul", {**VALUES, "depth": 2, "batch": 0}, "batch must be a positive integer"),
        ("dense", {**VALUES, "depth": 2, "activation": "step"}, "activation must be one of none, relu, .*got 'step'"),
        (
            "dense",
            {**VALUES, "depth": 2, "activation": "tanh", "dtype": "int8"},
            "activation must be one of none, relu",
        ),
        ("layer_norm", {**VALUES, "dtype": "float64"}, "dtype must be one of float32, float16, got 'float64'"),
        ("softmax", {**VALUES, "dtype": "int8"}, "dtype must be one of float32, float16, float64, got 'int8'"),
        (
            "conv1d",
            {"width": 4, "channels": 1, "filters": 1, "kernel": 5},
            "kernel .5. is larger than the padded image",
        ),
        ("conv2d", {**CONV, "dilation": 3}, r"kernel \(3, 7 when dilated,\) is larger .* whose height is 6"),
        ("conv2d", {**CONV, "groups": 3}, r"groups \(3\) must divide channels \(4\) and filters \(4\)"),
        ("conv2d", {**CONV, "groups": True}, "groups must be a positive integer"),
        ("conv2d", {**CONV, "layout": "NCWH"}, "layout must be one of NHWC, NCHW, got 'NCWH'"),
        ("conv2d", {**CONV, "kernel": [3]}, r"kernel must be .* for height, width, got \[3\]"),
        ("conv2d", {**CONV, "stride": [1, 0]}, r"stride must be a positive integer.*got \[1, 0\]"),
        ("conv2d", {**CONV, "padding": [0, -1]}, "padding must be an integer of at least 0"),
        ("conv2d", {**CONV, "padding": 2**31 - 1}, "padding .2147483647. makes height"),
        ("conv2d", {**CONV, "padding": 2**20, "stride": 2**20}, "the tensor pad_temp would have"),
        ("conv2d", {**CONV, "kernel": "3"}, "kernel must be a positive integer.*got '3'"),
        ("conv3d", {"depth": 1, **CONV, "kernel": [2, 1, 1]}, "whose depth is 1"),
        ("depthwise_conv2d", {**IMAGE, "kernel": 3, "multiplier": 0}, "multiplier must be a positive integer"),
        ("conv2d_transpose", {**CONV, "padding": 3}, "padding .3. must be smaller than kernel .3."),
        (
            "conv2d_transpose",
            {**CONV, "stride": 2, "output_padding": 2},
            "output_padding .2. must be smaller than stride",
        ),
        (
            "conv1d_transpose",
            {"width": 1, "channels": 1, "filters": 1, "kernel": 3, "padding": 2},
            "the result's width would be -1",
        ),
        ("pool2d", {**IMAGE, "kernel": 2, "padding": 2}, "padding .2. must be smaller than kernel .2."),
        ("pool2d", {**IMAGE, "kernel": 7}, "kernel .7. is larger than the padded image"),
        ("pool2d", {**IMAGE, "kernel": 2, "operation": "median"}, "operation must be one of max, mean, got 'median'"),
        ("pool2d", {**IMAGE, "kernel": 2, "count_padding": "no"}, "count_padding must be true or false"),
        ("global_pool2d", {**IMAGE, "layout": "NWC"}, "layout must be one of NHWC, NCHW"),
        ("batch_norm", {**IMAGE, "layout": "HWC"}, "layout must be one of NHWC, NCHW"),
        ("reduction", {"shape": []}, "shape must be a list of 1 to 6 positive integers"),
        ("reduction", {"shape": 3}, "shape must be a list of 1 to 6 positive integers.*got 3"),
        ("reduction", {"shape": [2, 3.0]}, "shape must be a list of 1 to 6 positive integers"),
        (
            "reduction",
            {"shape": [2, 3], "axes": [2]},
            "axes must be a list of different dimensions, 0 to 1 or -2 to -1",
        ),
        ("reduction", {"shape": [2, 3], "axes": [0, -2]}, "axes must be a list of different dimensions"),
        ("reduction", {"shape": [2, 3], "axes": []}, "axes must be a list of different dimensions"),
        ("reduction", {"shape": [2, 3], "axes": 1}, "axes must be a list of different dimensions.*got 1"),
        ("reduction", {"shape": [2, 3], "operation": "product"}, "operation must be one of sum, mean, max, min"),
        ("elementwise", {"shape": [2], "chain": []}, "chain must be a list of 1 to 32 operations"),
        ("elementwise", {"shape": [2], "chain": "relu"}, "chain must be a list of 1 to 32 operations, got 'relu'"),
        ("elementwise", {"shape": [2], "chain": ["add"] * 33}, "chain must be a list of 1 to 32 operations"),
        ("elementwise", {"shape": [2], "chain": ["relu", "log"]}, "unknown operation 'log' at place 2; there are relu"),
        ("elementwise", {"shape": [2], "chain": [3]}, "unknown operation 3 at place 1"),
        ("attention", {"heads": 1, "tokens": 2**16, "dim": 1}, "the tensor .* would have 4294967296 elements"),
        ("attention", {"heads": 1, "tokens": 2, "dim": 1, "key_tokens": 0}, "key_tokens must be a positive integer"),
    ],
)
def test_a_mistake_is_named(operator: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"workload mine: .*{says}"):
        getattr(workloads, operator)("mine", **arguments)


ODD = st.one_of(
    st.integers(-1, 8),
    st.sampled_from([2**15, 2**16, 2**31 - 1, 2**31, 2**63]),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from([None, True, 1.5, math.nan, "3", "max", "NCHW"]),
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_the_arguments_a_workload_is_made_or_they_are_refused(data: st.DataObject) -> None:
    operators = sorted(set(workloads.__all__) - {"MOST_ELEMENTS", "from_module", "sweep"})
    make = getattr(workloads, data.draw(st.sampled_from(operators)))
    arguments = {}
    for key, parameter in list(inspect.signature(make).parameters.items())[1:]:
        if parameter.default is inspect.Parameter.empty:
            arguments[key] = data.draw(st.integers(1, 6) | ODD)
        elif data.draw(st.integers(0, 5)) == 0:
            arguments[key] = data.draw(ODD)
    refusal = ""
    try:
        workload = make("mine", **arguments)
    except ConfigError as error:
        refusal = str(error)
    else:
        assert isinstance(workload, Workload)
        json.dumps(workload.arguments, allow_nan=False)
    assert not refusal or refusal.startswith("workload mine: ")
