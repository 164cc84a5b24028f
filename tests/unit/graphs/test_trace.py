import copy
import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.trace import PRIMITIVES, trace_tokens, trace_view
from kernelcast.graphs.trace_columns import (
    ALIASES,
    BLOCK_BUCKETS,
    COLUMN_NAMES,
    COLUMNS,
    LONG_TEXT,
    OPERANDS,
    WORD_BUCKETS,
    WORDS,
    block_code,
    word_code,
)
from kernelcast.graphs.views import TraceTokens
from kernelcast.measurement.sampling import Candidate
from kernelcast.tvm_compat import load_tvm, trace_fault

A100 = Path(__file__).parents[2] / "databases" / "resnet34_a100" / "database_tuning_record.json.gz"
SMALL = [
    [
        ["GetSBlock", [], ["matmul", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v3", "v4"]],
        ["Split", ["l1", "v3", "v4"], [1, 0], ["l5", "l6"]],
        ["SampleCategorical", [], [[0, 16, 64], [0.25, 0.5, 0.25]], ["v7"]],
        ["Annotate", ["b0", "v7"], ["meta_schedule.unroll_explicit"], []],
        ["SampleComputeLocation", ["b0"], [], ["l8"]],
        ["EnterPostproc", [], [], []],
        ["Parallel", ["l6"], [], []],
    ],
    [[2, [4, 16]], [4, 2], [6, -2]],
]


@pytest.fixture(scope="module")
def foreign() -> list[str]:
    """Traces for a GPU, of another TVM."""
    with gzip.open(A100) as stream:
        return [json.dumps(json.loads(line)[1][0]) for line in islice(stream, 0, 4000, 200)]


@pytest.fixture(scope="module")
def traces(candidates: dict[str, list[Candidate]], foreign: list[str]) -> list[str]:
    return [candidate.trace for drawn in candidates.values() for candidate in drawn] + foreign


def column(tokens: TraceTokens, name: str) -> np.ndarray:
    return tokens.values[:, tokens.names.index(name)]


def said(tokens: TraceTokens, step: int) -> dict[str, float]:
    """The columns of a step that are not zero."""
    return {name: float(value) for name, value in zip(tokens.names, tokens.values[step], strict=True) if value}


def log1p(number: float) -> Any:
    return pytest.approx(np.sign(number) * np.log1p(abs(number)), rel=1e-6)


def assert_same(first: TraceTokens, second: TraceTokens) -> None:
    assert first.names == second.names
    for name in ("step_offset", "primitive", "values"):
        left, right = getattr(first, name), getattr(second, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_every_column_is_documented_and_named_once() -> None:
    assert len(set(COLUMN_NAMES)) == len(COLUMNS) == len(COLUMN_NAMES)
    assert all(one.unit and one.meaning for one in COLUMNS)
    assert len(set(PRIMITIVES)) == len(PRIMITIVES)
    assert len(set(WORDS)) == len(WORDS)


def test_every_instruction_of_the_installed_tvm_is_a_primitive() -> None:
    load_tvm()
    from tvm.s_tir.schedule.instruction import InstructionKind
    from tvm_ffi.registry import list_global_func_names

    def registered(name: str) -> bool:
        try:
            InstructionKind.get(name)
        except Exception:
            return False
        return True

    prefix = "s_tir.schedule.Schedule"
    names = {str(name).removeprefix(prefix) for name in list_global_func_names() if str(name).startswith(prefix)}
    kinds = {name for name in names if registered(name)}
    assert len(kinds) > 40
    assert kinds <= set(PRIMITIVES)
    # all but the first exist, so none is misspelt
    assert not [name for name in PRIMITIVES[1:] if not registered(name)]


def test_what_a_small_trace_says() -> None:
    tokens = trace_tokens(SMALL)
    assert len(tokens) == 1
    assert tokens.step_offset.tolist() == [0, 9]
    assert [PRIMITIVES[code] for code in tokens.primitive] == [kind for kind, *_ in SMALL[0]]
    matmul = block_code("matmul")
    assert said(tokens, 0) == {"outputs": log1p(1), "block": matmul}
    assert said(tokens, 3) == {
        "inputs": log1p(3),
        "outputs": log1p(2),
        "block": matmul,
        "chain": log1p(2),
        "attribute_1": log1p(1),
        "operand_1_back": log1p(2),
        "operand_1_value": 1,
        "operand_2_back": log1p(1),
        "operand_2_value": 1,
        "operand_3_back": log1p(1),
        "operand_3_value": 2,
    }
    tile, choice, location = said(tokens, 2), said(tokens, 4), said(tokens, 6)
    assert {name: tile[name] for name in tile if name.startswith("deci")} == {
        "decided": 2,
        "decision_1": log1p(4),
        "decision_2": log1p(16),
    }
    assert choice == {
        "outputs": log1p(1),
        "attribute_1": log1p(3),
        "attribute_2": log1p(3),
        "decided": 2,
        "decision_1": log1p(2),
        "decision_2": log1p(64),
        "decision_3": 0.25,
    }
    assert (location["decided"], location["decision_1"]) == (1, log1p(-2))
    assert said(tokens, 5)["word"] == word_code("meta_schedule.unroll_explicit")
    assert column(tokens, "after_postproc").tolist() == [0] * 8 + [1]
    # the inner loop of the split is made parallel
    parallel = said(tokens, 8)
    assert (parallel["operand_1_back"], parallel["operand_1_value"]) == (log1p(5), 2)
    assert (parallel["block"], parallel["chain"]) == (matmul, log1p(3))


def test_operands_lead_to_the_instruction_that_made_them(traces: list[str]) -> None:
    tokens = trace_view(traces)
    followed = 0
    for number, trace in enumerate(traces):
        instructions = json.loads(trace)[0]
        start = tokens.step_offset[number]
        assert tokens.step_offset[number + 1] - start == len(instructions)
        for step, (_, inputs, _, outputs) in enumerate(instructions):
            row = said(tokens, start + step)
            assert row.get("outputs", 0) == log1p(len(outputs))
            flat = [one for operand in inputs for one in (operand if isinstance(operand, list) else [operand])]
            for place, operand in enumerate(flat[:OPERANDS], start=1):
                back = round(float(np.expm1(row.get(f"operand_{place}_back", 0))))
                if back:
                    made = instructions[step - back][3]
                    assert made[int(row[f"operand_{place}_value"]) - 1] == operand
                    followed += 1
                else:
                    assert not any(operand in one[3] for one in instructions)
    assert followed > 5000


def test_real_traces_have_one_width_and_only_known_primitives(traces: list[str]) -> None:
    tokens = trace_view(traces)
    assert len(tokens) == len(traces)
    assert tokens.values.shape == (len(tokens.primitive), len(COLUMN_NAMES))
    assert np.isfinite(tokens.values).all()
    assert (tokens.primitive > 0).all()
    words = column(tokens, "word")
    assert {WORDS[int(code) - 1] for code in words if 0 < code <= len(WORDS)} >= {
        "blockIdx.x", "threadIdx.x", "vthread.x", "shared", "local", "global", "pragma_auto_unroll_max_step",
    }  # fmt: skip
    blocks = column(tokens, "block")
    assert blocks.max() <= BLOCK_BUCKETS
    # a step that takes a block or a loop knows which block it concerns
    loops = tokens.primitive == PRIMITIVES.index("GetLoops")
    assert (blocks[loops] > 0).all()


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_a_trace_does_not_depend_on_the_others(traces: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(traces) - 1), max_size=5))
    together = trace_view([traces[row] for row in rows])
    assert len(together) == len(rows)
    parts = [trace_tokens(json.loads(traces[row])) for row in rows]
    if parts:
        assert_same(together, TraceTokens.concatenate(parts))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_one_decision_changes_the_numbers_of_its_step_alone(traces: list[str], data: st.DataObject) -> None:
    trace = json.loads(data.draw(st.sampled_from(traces)))
    assume(trace[1])
    changed = copy.deepcopy(trace)
    decision = data.draw(st.sampled_from(changed[1]))
    step, value = decision
    if isinstance(value, list):
        value[data.draw(st.integers(0, min(len(value), 6) - 1))] += data.draw(st.integers(1, 100))
    elif trace[0][step][0] == "SampleCategorical":
        count = len(trace[0][step][2][0])
        decision[1] = (value + data.draw(st.integers(1, count - 1))) % count
    else:
        decision[1] = value + 1
    before, after = trace_tokens(trace), trace_tokens(changed)
    np.testing.assert_array_equal(before.primitive, after.primitive)
    differs = before.values != after.values
    assert np.flatnonzero(differs.any(axis=1)).tolist() == [step]
    assert all(COLUMN_NAMES[place].startswith("decision_") for place in np.flatnonzero(differs[step]))


@given(st.text(max_size=20))
def test_unknown_primitives_are_other(kind: str) -> None:
    assume(kind not in PRIMITIVES[1:] and kind not in ALIASES)
    tokens = trace_tokens(json.dumps([[[kind, [1, "None"], ["new"], ["b0"]], ["Parallel", ["b0"], [], []]], []]))
    assert [PRIMITIVES[code] for code in tokens.primitive] == ["other", "Parallel"]
    assert said(tokens, 1)["operand_1_back"] == log1p(1)


def test_a_renamed_primitive_is_the_same() -> None:
    old = copy.deepcopy(SMALL)
    old[0][0][0] = "GetBlock"
    assert_same(trace_tokens(old), trace_tokens(SMALL))


@given(st.text(max_size=LONG_TEXT + 20))
def test_every_text_has_a_code(text: str) -> None:
    assert 0 <= word_code(text) <= len(WORDS) + WORD_BUCKETS + 1
    assert 1 <= block_code(text) <= BLOCK_BUCKETS


def test_codes_of_texts_are_the_same_in_every_process() -> None:
    assert [word_code(text) for text in ("", "blockIdx.x", '"SSRSRS"', "x" * 65)] == [
        0, 1, WORDS.index("SSRSRS") + 1, len(WORDS) + WORD_BUCKETS + 1,
    ]  # fmt: skip
    assert (block_code("root"), block_code("conv2d_nchw"), word_code("no such word") - len(WORDS)) == (28, 30, 22)


def test_lists_among_operands_stand_in_their_place() -> None:
    trace = [
        [
            ["GetSBlock", [], ["a", "main"], ["b0"]],
            ["CacheRead", ["b0", ["b0"]], [1, "shared"], ["b1"]],
            ["Annotate", ["b1", [0, 3]], ["software_pipeline_stage"], []],
            ["CacheWrite", ["b1", []], [0, "local"], ["b2"]],
        ],
        [],
    ]
    tokens = trace_tokens(trace)
    assert [round(float(np.expm1(count))) for count in column(tokens, "inputs")] == [0, 2, 3, 1]
    assert said(tokens, 1)["operand_2_back"] == log1p(1)
    assert said(tokens, 2)["operand_3_value"] == log1p(3)
    assert said(tokens, 3)["word"] == word_code("local")


def test_more_than_the_columns_hold_is_left_out() -> None:
    factors = list(range(1, 11))
    names = [f"l{number}" for number in range(10)]
    trace = [
        [["GetLoops", [], [], names], ["Reorder", names, list(range(9)), []], ["Sampled", [], [], []]],
        [[2, factors]],
    ]
    tokens = trace_tokens(trace)
    assert said(tokens, 1)["operand_6_value"] == 6
    assert said(tokens, 2)["decided"] == 10
    assert said(tokens, 2)["decision_6"] == log1p(6)


def test_no_trace_and_an_empty_one() -> None:
    assert len(trace_view([])) == 0
    empty = trace_view(["[[],[]]", json.dumps(SMALL), b"[[],[]]"])
    assert empty.step_offset.tolist() == [0, 0, 9, 9]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(allow_nan=False) | st.sampled_from(["b0", "Split", ""]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(JSON)
@settings(max_examples=200)
def test_garbage_is_one_clear_error(garbage: Any) -> None:
    said = refused([garbage])
    assert said is None or "trace 0 is not a schedule trace" in said
    # what has the shape of a trace may still use names that nothing makes
    assert said or not trace_fault(garbage)


def refused(traces: list[Any]) -> str | None:
    """What is said where the traces are refused; what else can be raised fails the test."""
    try:
        tokens = trace_view([json.dumps(trace) for trace in traces])
    except MalformedDataError as error:
        return str(error)
    assert len(tokens) == len(traces)
    assert np.isfinite(tokens.values).all()
    return None


@given(st.data(), JSON)
@settings(max_examples=200, deadline=None)
def test_a_trace_with_a_wrong_part_is_read_or_refused(data: st.DataObject, garbage: Any) -> None:
    trace = copy.deepcopy(SMALL)
    inside: Any = trace
    while True:
        place = data.draw(st.integers(0, len(inside) - 1))
        if not isinstance(inside[place], list) or not inside[place] or data.draw(st.booleans()):
            break
        inside = inside[place]
    inside[place] = garbage
    said = refused([SMALL, trace])
    assert said is None or "trace 1 is not a schedule trace" in said
    assert said or not trace_fault(trace)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[[],[]", "not JSON"),
        ("5", "not a pair of instructions and decisions"),
        ("[[5],[]]", r"instruction 0 is not \[kind, inputs, attributes, outputs\]"),
        ('[[["Split",[],[]]],[]]', "instruction 0 is not"),
        ("[[[5,[],[],[]]],[]]", "instruction 0: its kind is '5', not a name"),
        ('[[["Split","b0",[],[]]],[]]', r"instruction 0 \(Split\): its inputs are no list"),
        ('[[["Split",[],[],[5]]],[]]', r"instruction 0 \(Split\): an output is no name"),
        ('[[["Split",["l7"],[],[]]],[]]', "l7 is used and no instruction makes it"),
        ('[[["Split",["l7"],[],[]],["GetLoops",[],[],["l7"]]],[]]', "instruction 0 uses what a later one makes"),
        ('[[["Split",["l7"],[],["l7"]]],[]]', "instruction 0 uses what a later one makes"),
        ('[[["GetLoops",[],[],["l7","l7"]]],[]]', "make something of the same name"),
        ("[[],[[0,[1]]]]", "decision 0 is of instruction 0, of which there is none"),
        ('[[["A",[],[],[]]],[[true,[1]]]]', "decision 0 is of instruction True"),
        ('[[["A",[],[],[]]],[[0]]]', r"decision 0 is not \[instruction, value\]"),
        ('[[["A",[],[],[]]],[[0,1],[0,2]]]', "decision 1: instruction 0 is decided twice"),
        ('[[["A",[],[],[]]],[[0,["4"]]]]', "TypeError"),
        ('[[["SampleCategorical",[],[[1],[1]],[]]],[[0,1]]]', "IndexError"),
        ('[[["SampleCategorical",[],[[1],[1]],[]]],[[0,-1]]]', "the choice -1 is not a place"),
        ('[[["A",[1e308],[1e308],[]]],[[0,[1e308]]]]', None),
        ('[[["A",[1e400],[],[]]],[]]', "not (JSON|finite)|number that is not finite"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str | None) -> None:
    if says is None:
        assert np.isfinite(trace_tokens(text).values).all()
        return
    with pytest.raises(MalformedDataError, match=says):
        trace_tokens(text)
