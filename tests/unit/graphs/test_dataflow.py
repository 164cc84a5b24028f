from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.graphs.dataflow import EDGE_KIND_MEANINGS, EDGE_KINDS, NODE_FEATURES, OPCODES, dataflow_graph
from kernelcast.graphs.facts import analyse
from kernelcast.graphs.kernel_features import KERNEL_FEATURES, kernel_features
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.views import DataflowGraphs
from kernelcast.graphs.vocabulary import FEATURE_GROUPS
from kernelcast.graphs.walker import walk
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, parse_module, runnable_module, scheduled_module

NATURAL = ViewOptions(log_scale=False)
FORWARD = replace(NATURAL, direction="forward")

HEAD = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main({arguments}):
"""

SPLIT_REDUCTION = (
    HEAD.format(arguments='A: T.Buffer((8, 16), "float32"), C: T.Buffer((8,), "float32")')
    + """
        B = T.sblock_alloc_buffer((8, 16))
        for i0 in range(8):
            with T.sblock("C_init"):
                i = T.axis.spatial(8, i0)
                C[i] = T.float32(0)
        for i0, j0 in T.grid(8, 16):
            with T.sblock("B"):
                i, j = T.axis.remap("SS", [i0, j0])
                B[i, j] = T.exp(A[i, j])
        for i0, j0 in T.grid(8, 16):
            with T.sblock("C_update"):
                i, j = T.axis.remap("SR", [i0, j0])
                C[i] = C[i] + B[i, j]
"""
)

FILL = (
    HEAD.format(arguments='A: T.Buffer((8, 4), "float32")')
    + """
        for i0, j0 in T.grid(8, 4):
            with T.sblock("A"):
                i, j = T.axis.remap("SS", [i0, j0])
                A[i, j] = T.float32(1)
"""
)

NO_BLOCKS = (
    HEAD.format(arguments='A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")')
    + """
        for i in range(8):
            B[i] = A[i] + T.float32(1)
"""
)

ADDED_TO_PARAMETER = (
    HEAD.format(arguments='A: T.Buffer((8, 4), "float32"), C: T.Buffer((8,), "float32")')
    + """
        for i0, j0 in T.grid(8, 4):
            with T.sblock("C"):
                i, j = T.axis.remap("SR", [i0, j0])
                C[i] = C[i] + A[i, j]
"""
)

RESULT_READ_AGAIN = (
    HEAD.format(arguments='A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")')
    + """
        for i0 in range(8):
            with T.sblock("B"):
                i = T.axis.spatial(8, i0)
                B[i] = A[i] * A[i]
            with T.sblock("C"):
                i = T.axis.spatial(8, i0)
                C[i] = T.max(B[i], A[i])
"""
)

PLACE_OF_LARGEST = (
    HEAD.format(arguments='A: T.Buffer((16, 8), "float32"), V: T.Buffer((16,), "float32"), N: T.Buffer((16,), "int64")')
    + """
        for i0, k0 in T.grid(16, 8):
            with T.sblock("largest"):
                i, k = T.axis.remap("SR", [i0, k0])
                with T.init():
                    N[i] = T.int64(-1)
                    V[i] = T.float32(-1e30)
                n: T.let[T.int64] = T.Select(V[i] >= A[i, k], N[i], T.Cast("int64", k))
                v: T.let[T.float32] = T.Select(V[i] >= A[i, k], V[i], A[i, k])
                N[i] = n
                V[i] = v
"""
)

TENSORISED = (
    HEAD.format(
        arguments='A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")'
    )
    + """
        for i0, j0, k0 in T.grid(4, 4, 4):
            with T.sblock("C_o"):
                io, jo, ko = T.axis.remap("SSR", [i0, j0, k0])
                with T.init():
                    for i1, j1 in T.grid(4, 4):
                        with T.sblock("C_init"):
                            i, j = T.axis.remap("SS", [i1, j1])
                            C[io * 4 + i, jo * 4 + j] = T.float32(0)
                for i1, j1, k1 in T.grid(4, 4, 4):
                    with T.sblock("C"):
                        i, j, k = T.axis.remap("SSR", [i1, j1, k1])
                        C[io * 4 + i, jo * 4 + j] = (
                            C[io * 4 + i, jo * 4 + j] + A[io * 4 + i, ko * 4 + k] * B[ko * 4 + k, jo * 4 + j]
                        )
"""
)

MANY_DIMENSIONS = (
    HEAD.format(
        arguments='A: T.Buffer((2, 3, 2, 3, 2, 3, 2, 1), "int8"), B: T.Buffer((2, 3, 2, 3, 2, 3, 2, 1), "int8")'
    )
    + """
        for a, b, c, d, e, f, g in T.grid(2, 3, 2, 3, 2, 3, 2):
            with T.sblock("B"):
                i, j, k, l, m, n, o = T.axis.remap("SSSSSSS", [a, b, c, d, e, f, g])
                B[i, j, k, l, m, n, o, 0] = A[i, j, k, l, m, n, o, 0]
"""
)


def parsed(text: str) -> object:
    return load_tvm().script.from_source(text)


def graph_of(module: object, options: ViewOptions = FORWARD) -> DataflowGraphs:
    table = walk(module)
    facts = analyse(table)
    return dataflow_graph(table, facts, kernel_features(table, facts), options)


def scheduled(workload: Workload, drawn: Candidate) -> object:
    return runnable_module(scheduled_module(workload, drawn.trace))


def opcodes(graph: DataflowGraphs) -> list[str]:
    return [OPCODES[code] for code in graph.node_opcode]


def edges(graph: DataflowGraphs) -> list[tuple[int, int]]:
    return list(zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True))


def column(graph: DataflowGraphs, name: str) -> list[float]:
    return graph.node_features[:, graph.feature_names.index(name)].tolist()


def shapes(graph: DataflowGraphs) -> list[tuple[int, ...]]:
    """Dimensions of every node's tensor, the innermost first."""
    table = np.array([column(graph, f"shape_{place}") for place in range(1, 7)], dtype=int)
    return [tuple(row[row > 0].tolist()) for row in table.T]


def test_convolution_with_bias_and_relu_by_hand(suite: dict[str, Workload]) -> None:
    graph = graph_of(parse_module(suite["conv"].module))
    # image, weight, bias; padded image, sums, sums with bias, result
    assert opcodes(graph) == ["parameter"] * 3 + ["pad", "convolution", "add", "maximum"]
    assert sorted(edges(graph)) == [(0, 3), (1, 4), (2, 5), (3, 4), (4, 5), (5, 6)]
    assert shapes(graph) == [(8, 8, 8), (16, 8, 3, 3), (16,), (8, 10, 10), (16, 8, 8), (16, 8, 8), (16, 8, 8)]
    assert column(graph, "is_output") == [0, 0, 0, 0, 0, 0, 1]
    assert column(graph, "is_temporary") == [0, 0, 0, 1, 1, 1, 0]
    assert column(graph, "readers") == [1, 1, 1, 1, 1, 1, 0]
    assert column(graph, "inputs") == [0, 0, 0, 1, 2, 2, 1]
    assert column(graph, "executions") == [0, 0, 0, 800, 1024 * 72, 1024, 1024]
    assert column(graph, "reduced_extent") == [0, 0, 0, 1, 72, 1, 1]
    assert column(graph, "flops") == [0, 0, 0, 0, 2 * 1024 * 72, 1024, 1024]
    assert column(graph, "tensor_bytes") == [4 * 512, 4 * 1152, 64, 4 * 800, 4096, 4096, 4096]
    assert column(graph, "read_bytes") == [0, 0, 0, 4 * 512, 4 * (800 + 1152), 4096 + 64, 4096]
    assert column(graph, "written_bytes") == [0, 0, 0, 4 * 800, 4096, 4096, 4096]


def test_scheduled_convolutions_by_hand(suite: dict[str, Workload], candidates: dict[str, list[Candidate]]) -> None:
    seen = set()
    for drawn in candidates["conv"]:
        graph = graph_of(scheduled(suite["conv"], drawn))
        codes = opcodes(graph)
        # padding goes into the sum or stays; the bias goes into the last block; sums may be written to a cache first
        expected = ["parameter"] * 3 + [code for code in codes[3:] if code in ("pad", "copy")]
        assert sorted(codes) == sorted([*expected, "convolution", "maximum"])
        place = {code: codes.index(code) for code in ("convolution", "maximum", "copy", "pad") if code in codes}
        image = place.get("pad", 0)
        chain = {(image, place["convolution"]), (1, place["convolution"]), (2, place["maximum"])}
        if "pad" in place:
            chain.add((0, image))
        chain |= (
            {(place["convolution"], place["copy"]), (place["copy"], place["maximum"])}
            if "copy" in place
            else {(place["convolution"], place["maximum"])}
        )
        assert set(edges(graph)) == chain
        assert shapes(graph)[place["maximum"]] == (16, 8, 8)
        seen.add("pad" in place)
    assert seen == {True, False}


def test_matmul_by_hand(suite: dict[str, Workload]) -> None:
    graph = graph_of(parse_module(suite["matmul"].module))
    assert opcodes(graph) == ["parameter", "parameter", "contraction"]
    assert edges(graph) == [(0, 2), (1, 2)]
    assert column(graph, "flops") == [0, 0, 2 * 64 * 32 * 48]
    # loops i, j, k: both k of the left and of the right move first, so the right is read across its rows
    assert column(graph, "order_1") == [1, 2, 1]
    assert column(graph, "order_2") == [2, 1, 2]
    assert column(graph, "loops") == [0, 0, 3]
    assert column(graph, "pieces") == [0, 0, 1]
    assert column(graph, "is_float") == [1, 1, 1]
    assert column(graph, "dtype_bytes") == [4, 4, 4]


def test_sum_that_is_split_is_one_node_after_what_it_reads() -> None:
    graph = graph_of(parsed(SPLIT_REDUCTION))
    assert opcodes(graph) == ["parameter", "exp", "reduce_sum"]
    assert edges(graph) == [(0, 1), (1, 2)]
    assert column(graph, "transcendental_flops") == [0, 128, 0]
    assert column(graph, "flops") == [0, 128, 128]


def test_one_node_without_edges() -> None:
    graph = graph_of(parsed(FILL), NATURAL)
    assert opcodes(graph) == ["fill"]
    assert graph.node_offset.tolist() == [0, 1]
    assert graph.edge_offset.tolist() == [0, 0]
    assert graph.edge_source.dtype == graph.edge_target.dtype == np.int32
    assert graph.edge_kind.dtype == np.int8
    assert shapes(graph) == [(4, 8)]
    assert column(graph, "is_output") == [1]


def test_stores_outside_of_blocks_are_nodes() -> None:
    graph = graph_of(parsed(NO_BLOCKS))
    assert opcodes(graph) == ["parameter", "add"]
    assert edges(graph) == [(0, 1)]
    assert column(graph, "flops") == [0, 8]


def test_a_result_that_is_added_to_is_read_too() -> None:
    graph = graph_of(parsed(ADDED_TO_PARAMETER))
    assert opcodes(graph) == ["parameter", "parameter", "reduce_sum"]
    assert set(edges(graph)) == {(0, 2), (1, 2)}
    assert set(shapes(graph)) == {(8,), (4, 8)}


def test_a_result_that_is_read_again_is_no_parameter() -> None:
    graph = graph_of(parsed(RESULT_READ_AGAIN))
    assert opcodes(graph) == ["parameter", "multiply", "maximum"]
    assert set(edges(graph)) == {(0, 1), (0, 2), (1, 2)}
    assert column(graph, "readers") == [2, 1, 0]
    assert column(graph, "is_output") == [0, 1, 1]
    # both in one loop: one element is made, then read
    assert column(graph, "pieces") == [0, 8, 1]


def test_a_reduction_with_two_results_reads_through_named_values() -> None:
    graph = graph_of(parsed(PLACE_OF_LARGEST))
    assert opcodes(graph) == ["parameter", "reduce_other"]
    assert edges(graph) == [(0, 1)]
    assert column(graph, "written_bytes") == [0, 16 * (4 + 8)]
    assert column(graph, "read_bytes") == [0, 4 * 16 * 8]


def test_blocks_in_blocks_are_one_sum() -> None:
    graph = graph_of(parsed(TENSORISED))
    assert opcodes(graph) == ["parameter", "parameter", "contraction"]
    assert edges(graph) == [(0, 2), (1, 2)]
    assert column(graph, "flops") == [0, 0, 2 * 16**3]
    assert column(graph, "reduced_extent") == [0, 0, 16]


def test_many_dimensions_fold_into_the_last_place() -> None:
    graph = graph_of(parsed(MANY_DIMENSIONS))
    assert shapes(graph) == [(2, 3, 2, 3, 2, 3 * 2)] * 2
    assert column(graph, "shape_product") == [2**4 * 3**3] * 2
    assert column(graph, "shape_sum") == [4 * 2 + 3 * 3] * 2
    assert [column(graph, f"order_{place}")[1] for place in range(1, 7)] == [1, 2, 3, 4, 5, 6]
    assert column(graph, "is_integer") == [1, 1]
    assert column(graph, "is_float") == [0, 0]


def test_fused_kernels_end_in_their_result(target: dict) -> None:
    expected = {
        "depthwise": ({"depthwise_convolution"}, (16, 8, 8)),
        "norm": ({"reduce_sum", "sqrt"}, (64, 16)),
        "attention": ({"contraction", "reduce_maximum", "reduce_sum", "divide"}, (8, 2, 16)),
    }
    made = [
        workloads.depthwise_conv2d("depthwise", height=8, width=8, channels=16, kernel=3, padding=1),
        workloads.layer_norm("norm", rows=16, columns=64),
        workloads.attention("attention", heads=2, tokens=16, dim=8),
    ]
    for workload in made:
        for drawn in sample_candidates(workload, target, count=2, seed=7):
            graph = graph_of(scheduled(workload, drawn))
            codes, shape = expected[workload.name]
            assert codes <= set(opcodes(graph))
            outputs = [node for node, flag in enumerate(column(graph, "is_output")) if flag]
            assert outputs == [len(opcodes(graph)) - 1]
            assert shapes(graph)[-1] == shape
            # whatever is made in between is read
            assert min(column(graph, "readers")[:-1]) >= 1


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_schedules_keep_work_and_result(
    data: st.DataObject, suite: dict[str, Workload], candidates: dict[str, list[Candidate]]
) -> None:
    name = data.draw(st.sampled_from(sorted(suite)))
    graph = graph_of(scheduled(suite[name], data.draw(st.sampled_from(candidates[name]))))
    plain = graph_of(parse_module(suite[name].module))
    assert (graph.edge_source < graph.edge_target).all()
    assert np.isfinite(graph.node_features).all()
    assert (graph.node_features >= 0).all()
    parameters = [code == "parameter" for code in opcodes(graph)]
    assert sum(parameters) == opcodes(plain).count("parameter")
    # a parameter is read and reads nothing; every tensor but the result is read
    assert [count == 0 for count in column(graph, "inputs")] == parameters
    assert [count == 0 for count in column(graph, "readers")] == [flag == 1 for flag in column(graph, "is_output")]
    assert shapes(graph)[-1] == shapes(plain)[-1]
    assert column(graph, "is_output") == [0] * (len(parameters) - 1) + [1]
    if name != "softmax":
        # its sums may be made in two steps, and some of its values twice
        assert sum(column(graph, "flops")) == sum(column(plain, "flops"))


@settings(max_examples=25, deadline=None)
@given(
    direction=st.sampled_from(["both", "forward", "backward"]),
    static_features=st.sampled_from(["kernel", "node", "none"]),
    leave_out=st.sets(st.sampled_from(FEATURE_GROUPS), max_size=3),
    log_scale=st.booleans(),
)
def test_options(
    direction: str,
    static_features: str,
    leave_out: set[str],
    log_scale: bool,
    suite: dict[str, Workload],
    candidates: dict[str, list[Candidate]],
) -> None:
    module = scheduled(suite["conv"], candidates["conv"][0])
    options = ViewOptions(
        direction=direction, static_features=static_features, leave_out=sorted(leave_out), log_scale=log_scale
    )
    graph, whole = graph_of(module, options), graph_of(module, NATURAL)
    forward = whole.edge_kind == EDGE_KINDS.index("producer_to_consumer")
    pairs = np.stack([whole.edge_source[forward], whole.edge_target[forward]])
    expected = {"forward": pairs, "backward": pairs[::-1], "both": np.concatenate([pairs, pairs[::-1]], axis=1)}
    np.testing.assert_array_equal(np.stack([graph.edge_source, graph.edge_target]), expected[direction])
    np.testing.assert_array_equal(graph.edge_kind == 0, graph.edge_source < graph.edge_target)

    def shown(table: tuple, values: np.ndarray, prefix: str = "") -> tuple[list[str], np.ndarray]:
        kept = [place for place, feature in enumerate(table) if feature.group not in leave_out]
        scaled = [np.log1p(values[:, i]) if log_scale and table[i].unit != "flag" else values[:, i] for i in kept]
        return [prefix + table[i].name for i in kept], np.reshape(scaled, (len(kept), len(values))).T

    names, values = shown(NODE_FEATURES, whole.node_features)
    kernel_names, row = shown(KERNEL_FEATURES, whole.kernel_features, "kernel_" if static_features == "node" else "")
    if static_features == "node":
        names, values = names + kernel_names, np.concatenate([values, np.repeat(row, len(values), axis=0)], axis=1)
    if static_features != "kernel":
        kernel_names, row = [], np.zeros((1, 0))
    assert graph.feature_names == tuple(names)
    assert graph.kernel_names == tuple(kernel_names)
    np.testing.assert_allclose(graph.node_features, values, rtol=1e-5)
    np.testing.assert_allclose(graph.kernel_features, row, rtol=1e-5)
    assert graph.node_features.dtype == graph.kernel_features.dtype == np.float32


def test_graphs_of_many_programs_are_joined_and_taken_apart(
    suite: dict[str, Workload], candidates: dict[str, list[Candidate]]
) -> None:
    options = ViewOptions()
    made = [graph_of(scheduled(suite[name], drawn[0]), options) for name, drawn in candidates.items()]
    made.append(graph_of(parsed(FILL), options))
    joined = DataflowGraphs.concatenate(made)
    for number, graph in enumerate(made):
        again = joined.select(np.array([number]))
        np.testing.assert_array_equal(again.node_features, graph.node_features)
        np.testing.assert_array_equal(again.edge_source, graph.edge_source)
        np.testing.assert_array_equal(again.kernel_features, graph.kernel_features)


def test_tables_are_explained() -> None:
    assert tuple(EDGE_KIND_MEANINGS) == EDGE_KINDS
    names = [feature.name for feature in NODE_FEATURES]
    for entries in (EDGE_KINDS, names):
        assert len(set(entries)) == len(entries)
    for feature in NODE_FEATURES:
        assert feature.group in FEATURE_GROUPS
        assert feature.unit
        assert feature.source
        assert len(feature.meaning) > 10
    assert all(len(text) > 10 for text in EDGE_KIND_MEANINGS.values())
