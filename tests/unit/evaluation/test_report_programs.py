import base64
import dataclasses
import gzip
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from kernelcast.evaluation.predictions import PREDICTION_SCHEMA
from kernelcast.evaluation.report_page.columns import COLUMNS, program_columns
from kernelcast.evaluation.report_page.explored import (
    NO_FEATURES,
    NO_GRAPHS,
    PARTS,
    Store,
    explored_programs,
    ranked_as,
)
from kernelcast.evaluation.report_page.packing import packed, short_floats, smallest
from kernelcast.evaluation.report_page.payload import family_of, payload
from kernelcast.evaluation.report_page.schedule import TIMES, UNDECIDED, UNREADABLE, schedule_words
from kernelcast.evaluation.results import Results
from kernelcast.graphs.dataset.store import Description, StoredTarget, StoredWorkload
from kernelcast.graphs.flat_columns import PROGRAM_FEATURES
from kernelcast.graphs.kernel_features import KERNEL_FEATURES
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.splits import Split
from kernelcast.graphs.trace import trace_view
from kernelcast.graphs.views import FlatFeatures
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Measurements, Workload, measurement_table

# a matmul tiled and unrolled by the stock schedule rules, its bias fused and its transpose inlined
INSTRUCTIONS = [
    ["GetSBlock", [], ["matmul", "main"], ["b0"]],
    ["GetSBlock", [], ["T_transpose", "main"], ["b1"]],
    ["ComputeInline", ["b1"], [], []],
    ["GetConsumers", ["b0"], [], ["b2"]],
    ["GetLoops", ["b0"], [], ["l3", "l4", "l5"]],
    ["SamplePerfectTile", ["l3"], [4, 64], ["v6", "v7", "v8", "v9"]],
    ["SamplePerfectTile", ["l4"], [4, 64], ["v10", "v11", "v12", "v13"]],
    ["SamplePerfectTile", ["l5"], [2, 64], ["v14", "v15"]],
    ["Split", ["l3", "v6", "v7", "v8", "v9"], [True, False], ["l16", "l17", "l18", "l19"]],
    ["ReverseComputeAt", ["b2", "l17"], [True, -1], []],
    ["SampleCategorical", [], [[0, 16, 64, 512], [0.25, 0.25, 0.25, 0.25]], ["v20"]],
    ["Annotate", ["b0", "v20"], ["meta_schedule.unroll_explicit"], []],
    ["Parallel", ["l16"], [], []],
    ["Vectorize", ["l19"], [], []],
    ["Vectorize", ["l18"], [], []],
]
DECISIONS = [[5, [1, 4, 8, 2]], [6, [2, 2, 1, 16]], [7, [4, 32]], [10, 2]]
TRACE = json.dumps([INSTRUCTIONS, DECISIONS])


def unpacked(text: str) -> dict:
    """What the page's script makes of a packed text."""
    whole = gzip.decompress(base64.b64decode(text))
    length = int.from_bytes(whole[:4], "little")
    kinds = {"Float32": "<f4", "Uint32": "<u4", "Uint16": "<u2", "Uint8": "|u1"}

    def found(value: object) -> object:
        if isinstance(value, list):
            return [found(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "array" in value:
            assert value["at"] % 4 == 0
            return np.frombuffer(whole, kinds[value["array"]], value["count"], 4 + length + value["at"])
        return {key: found(each) for key, each in value.items()}

    return found(json.loads(whole[4 : 4 + length]))


def test_a_schedule_is_told_by_its_tiles_and_what_was_done_besides() -> None:
    tiles, notes = schedule_words(TRACE).split("\n")
    assert tiles.replace(TIMES, "x") == "matmul: 1x4x8x2, 2x2x1x16; 4x32"
    assert notes == (
        "unroll up to 64 · 1 parallel loop · 2 vectorised loops · consumer of matmul within the tiles · "
        "inlined: T_transpose"
    )


def test_the_limit_that_was_written_into_the_program_counts() -> None:
    written = [*INSTRUCTIONS, ["Annotate", ["l16", 16], ["pragma_auto_unroll_max_step"], []]]
    assert "unroll up to 16 ·" in schedule_words(json.dumps([written, DECISIONS]))


@pytest.mark.parametrize(
    ("trace", "words"),
    [("[[], []]", UNDECIDED), ("[]", UNREADABLE), ("nonsense", UNREADABLE), ('[[["GetSBlock"]], []]', UNREADABLE)],
)
def test_a_trace_without_decisions_or_that_is_none_is_told_as_it_is(trace: str, words: str) -> None:
    assert schedule_words(trace) == words


def test_what_is_packed_comes_out_again_and_is_the_same_each_time() -> None:
    content = {
        "numbers": short_floats(np.array([1.5, -2.25, np.nan, 1e30])),
        "rows": [{"values": smallest(np.array([0, 255]))}, {"values": smallest(np.array([70_000]))}],
        "texts": ["</script>", "é"],
        "none": None,
        "empty": smallest(np.array([], dtype=np.int64)),
    }
    found = unpacked(packed(content))
    np.testing.assert_allclose(found["numbers"], [1.5, -2.25, np.nan, 1e30], rtol=1e-5)
    assert [row["values"].tolist() for row in found["rows"]] == [[0, 255], [70_000]]
    assert (found["texts"], found["none"], len(found["empty"])) == (["</script>", "é"], None, 0)
    assert packed(content) == packed(content)
    # nothing in it can end the element that holds it
    assert "<" not in packed(content)


def test_short_floats_keep_five_digits() -> None:
    values = np.exp(np.random.default_rng(0).uniform(-30, 30, 1000))
    np.testing.assert_allclose(short_floats(values), values, rtol=2.0**-16)
    assert short_floats(np.array([0.0, np.inf])).tolist() == [0.0, np.inf]


def test_programs_of_a_workload_take_the_time_of_their_predicted_place() -> None:
    truth = np.log(np.array([1.0, 2.0, 4.0, 5.0, 7.0]))
    workloads = ["a", "a", "a", "b", "b"]
    right = ranked_as(truth, np.array([-3.0, -2.0, -1.0, 5.0, 6.0]), workloads)
    np.testing.assert_allclose(right, truth)
    reversed_order = ranked_as(truth, np.array([3.0, 2.0, 1.0, 6.0, 5.0]), workloads)
    np.testing.assert_allclose(np.exp(reversed_order), [4.0, 2.0, 1.0, 7.0, 5.0])
    # all alike: each in the middle
    np.testing.assert_allclose(np.exp(ranked_as(truth, np.zeros(5), workloads))[:3], 2.0)


COUNT = 6
KEYS = np.array([f"{number:016x}" for number in range(COUNT)])


def store_of(views: dict, log_scale: bool = True) -> Store:
    programs = Programs.in_memory(
        views,
        log_seconds=np.log(np.arange(1, COUNT + 1) * 1e-6),
        workload=np.array([0, 0, 0, 1, 1, 1], dtype=np.int32),
        workload_names=("matmul", "conv"),
        program_key=KEYS,
        feature_version="1",
    )
    workloads = (StoredWorkload("m", "matmul", "dense", {}, {"bert": 2}), StoredWorkload("c", "conv", "conv2d", {}, {}))
    options = ViewOptions(log_scale=log_scale)
    description = Description(workloads, (StoredTarget({"kind": "llvm"}, "", None, "0" * 16),), "minimum", options)
    split = Split(np.array([0, 3]), np.array([1]), np.array([2, 4]), left_out={"few": np.array([5])})
    return Store(programs, description, {"random": split})


def flat(values: Sequence[float] = (7.0,)) -> FlatFeatures:
    """Every flat feature has the value 1 but the first, `flops`."""
    table = np.ones((COUNT, len(PROGRAM_FEATURES)))
    table[:, 0] = np.resize(values, COUNT)
    return FlatFeatures(tuple(feature.name for feature in PROGRAM_FEATURES), np.log1p(table).astype(np.float32))


@pytest.fixture
def measurements() -> Measurements:
    rows = [
        {
            "workload_key": "m" if number < 3 else "c",
            "workload_name": "matmul" if number < 3 else "conv",
            "workload_kind": "dense" if number < 3 else "conv2d",
            "program_key": KEYS[number],
            "trace": TRACE,
            "target": "{}",
            "outcome": "measured",
            "message": "",
            "origin": "evolved" if number % 2 else "random",
            "spread": 0.1 * number,
            "run_seconds": [(number + 1) * 1e-6, (number + 2) * 1e-6],
            "round_index": [0, 1],
            "reference_seconds": [1e-3, 1e-3],
            "ended_at": [0.0, 1.0],
        }
        for number in range(COUNT - 1)
    ]
    campaign = Campaign(MEASUREMENTS_VERSION, {"kind": "llvm"}, None, {}, {}, 0)
    return Measurements(campaign, {"m": Workload("m", "matmul", "dense", {}, "{}")}, measurement_table(rows))


@pytest.fixture
def predictions() -> pa.Table:
    rows = [
        {
            "split": "random",
            "model": model,
            "seed": 0,
            "program_key": KEYS[number],
            "workload": "matmul" if number < 3 else "conv",
            "log_seconds": float(np.log((number + 1) * 1e-6)),
            "prediction": float(np.log(2e-6 * (number + 1))) if model == "xgboost" else -float(number),
        }
        for model in ("gcn", "xgboost")
        for number in (0, 1, 2, 4)
    ]
    return pa.Table.from_pylist(rows, schema=PREDICTION_SCHEMA)


def test_every_column_of_the_explorer_is_made_of_columns_that_there_are() -> None:
    known = {feature.name for feature in PROGRAM_FEATURES} | {f"kernel_{row.name}" for row in KERNEL_FEATURES}
    for column in COLUMNS:
        assert set(column.of or (column.name,)) <= known, column.name
    assert len({column.label for column in COLUMNS}) == len(COLUMNS) >= 24


def test_columns_are_natural_values_and_ratios_of_them() -> None:
    columns = program_columns(store_of({"features": flat([8.0])}).programs, log_scale=True)
    np.testing.assert_allclose(columns["flops"], 8.0, rtol=1e-5)
    np.testing.assert_allclose(columns["intensity"], 8.0, rtol=1e-5)
    np.testing.assert_allclose(columns["contiguous_share"], 0.5, rtol=1e-5)
    # tiles are features of the graphs, which these programs have not
    assert "kernel_output_tile_product" not in columns


def test_programs_of_a_store_are_joined_with_measurements_parts_and_predictions(
    measurements: Measurements, predictions: pa.Table, results: Results
) -> None:
    explored = explored_programs(measurements, results, predictions, store_of({"features": flat()}))
    assert len(explored) == COUNT
    assert [PARTS[part] for part in explored.parts["random"]] == [
        "train", "valid", "test", "train", "test", "left out",
    ]  # fmt: skip
    assert explored.networks == (("bert",), ())
    assert explored.origin.tolist() == [0, 1, 0, 1, 0, 3]
    np.testing.assert_allclose(explored.spread[:5], [0.0, 0.1, 0.2, 0.3, 0.4])
    assert explored.schedules[0].startswith("matmul: ")
    assert explored.schedules[5] == ""
    assert explored.notes == (
        "1 programs are not among the measurements of this report, so their schedules are not shown.",
    )
    gcn, xgboost = explored.predicted
    assert (gcn.model, gcn.of_time, gcn.log_seconds) == ("gcn", False, None)
    assert gcn.rows.tolist() == [0, 1, 2, 4]
    # the other way round in the workload
    np.testing.assert_allclose(np.exp(gcn.log_claimed[:3]) * 1e6, [3.0, 2.0, 1.0])
    assert xgboost.of_time
    np.testing.assert_allclose(np.exp(xgboost.log_claimed) * 1e6, [2.0, 4.0, 6.0, 10.0])
    np.testing.assert_allclose(np.exp(xgboost.log_ranked_as) * 1e6, [1.0, 2.0, 3.0, 5.0])


def test_without_graphs_the_measured_programs_are_shown_and_without_features_this_is_said(
    measurements: Measurements, predictions: pa.Table, results: Results
) -> None:
    explored = explored_programs(measurements, results, predictions, None)
    assert len(explored) == COUNT - 1
    np.testing.assert_allclose(np.exp(explored.log_seconds) * 1e6, [1, 2, 3, 4, 5])
    assert (explored.columns, explored.notes) == ({}, (NO_GRAPHS,))
    assert [predicted.model for predicted in explored.predicted] == ["gcn", "xgboost"]
    traces = trace_view([TRACE] * COUNT)
    alone = explored_programs(measurements, results, predictions, store_of({"trace": traces}))
    assert alone.columns == {}
    assert NO_FEATURES in alone.notes


def test_one_program_on_two_targets_keeps_the_predictions_of_each(
    measurements: Measurements, predictions: pa.Table, results: Results
) -> None:
    store = store_of({"features": flat()})
    keys = KEYS.copy()
    keys[1] = keys[0]
    place = predictions.schema.get_field_index("program_key")
    renamed = ["0" * 16 if key == KEYS[1] else key for key in predictions["program_key"].to_pylist()]
    table = predictions.set_column(place, predictions.schema.field(place), pa.array(renamed, pa.string()))
    both = dataclasses.replace(store, programs=dataclasses.replace(store.programs, program_key=keys))
    assert explored_programs(measurements, results, table, both).predicted[0].rows.tolist() == [0, 1, 2, 4]


def test_the_browser_gets_one_value_a_program_and_the_tables_by_workload(
    measurements: Measurements, predictions: pa.Table, results: Results
) -> None:
    explored = explored_programs(measurements, results, predictions, store_of({"features": flat()}))
    found = unpacked(packed(payload(explored, results, None)))
    for name in ("microseconds", "spread", "workload", "origin", "schedule", "key"):
        assert len(found[name]) == COUNT
    assert all(len(column["values"]) == COUNT for column in found["columns"])
    np.testing.assert_allclose(found["microseconds"], np.arange(1, COUNT + 1), rtol=1e-4)
    assert found["roof"] is None
    table = found["by_workload"][0]
    assert (table["group"], table["metric"]) == ("random split", "Kendall's tau")
    assert table["rows"] == ["matmul", "softmax"]
    assert len(table["values"]) == 2 * len(table["models"])
    assert any(each["group"] == "random split, by network" for each in found["by_workload"])


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("conv2d_transpose", "transposed convolution"),
        ("fused_conv2d_subtract_divide_multiply_add_relu", "convolution"),
        ("depthwise_conv2d", "depthwise convolution"),
        ("batch_matmul", "matrix product"),
        ("dense", "matrix product"),
        ("global_pool2d", "pooling"),
        ("layer_norm", "normalisation, reduction"),
        ("relu", "elementwise and others"),
    ],
)
def test_kinds_of_operators_have_a_family(kind: str, family: str) -> None:
    assert family_of(kind) == family
