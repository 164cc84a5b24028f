import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from kernelcast.graphs.ast import syntax_tree
from kernelcast.graphs.facts import analyse
from kernelcast.graphs.kernel_features import KERNEL_FEATURES, kernel_features
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.views import AstGraphs
from kernelcast.graphs.vocabulary import (
    EDGE_KIND_INDEX,
    EDGE_KINDS,
    FEATURE_GROUPS,
    NODE_FEATURE_INDEX,
    NODE_FEATURES,
    NODE_KINDS,
)
from kernelcast.graphs.walker import walk
from kernelcast.records import Workload
from kernelcast.tvm_compat import parse_module

EVERYTHING = ViewOptions()


def tree_of(module: Any, options: ViewOptions = EVERYTHING) -> AstGraphs:
    table = walk(module)
    facts = analyse(table)
    return syntax_tree(table, facts, options, kernel_features(table, facts))


def every(modules: dict[str, list[Any]]) -> list[AstGraphs]:
    return [tree_of(module) for module in itertools.chain.from_iterable(modules.values())]


def kinds(graph: AstGraphs) -> Counter[str]:
    return Counter(NODE_KINDS[number] for number in graph.node_kind)


def column(graph: AstGraphs, name: str) -> np.ndarray:
    values = graph.node_features[:, NODE_FEATURE_INDEX[name]]
    return values if NODE_FEATURES[NODE_FEATURE_INDEX[name]].unit == "flag" else np.expm1(values)


def edges(graph: AstGraphs, kind: str) -> set[tuple[int, int]]:
    chosen = graph.edge_kind == EDGE_KIND_INDEX[kind]
    return set(zip(graph.edge_source[chosen].tolist(), graph.edge_target[chosen].tolist(), strict=True))


def test_unscheduled_matmul_by_hand(suite: dict[str, Workload]) -> None:
    graph = tree_of(parse_module(suite["matmul"].module))
    assert kinds(graph) == {
        "function": 1,
        "loop_serial": 3,
        "block": 1,
        "axis_spatial": 2,
        "axis_reduce": 1,
        "init": 1,
        "store": 2,
        "load": 3,
        "add": 1,
        "mul": 1,
        "constant": 1,
        # two indices for each of two stores and three loads
        "variable": 10,
    }
    loops = graph.node_kind == NODE_KINDS.index("loop_serial")
    np.testing.assert_allclose(column(graph, "extent")[loops], [64, 32, 48], rtol=1e-5)
    np.testing.assert_allclose(column(graph, "executions")[loops], [1, 64, 64 * 32], rtol=1e-5)
    np.testing.assert_allclose(column(graph, "flops_below")[loops], [2 * 64 * 32 * 48, 2 * 32 * 48, 2 * 48], rtol=1e-5)
    assert column(graph, "reduction")[loops].tolist() == [0, 0, 1]
    # left[i, k], right[k, j] and result[i, j] where k is innermost
    loads = graph.node_kind == NODE_KINDS.index("load")
    np.testing.assert_allclose(column(graph, "stride_1")[loads], [0, 1, 32], atol=1e-4)
    np.testing.assert_allclose(column(graph, "reuse")[loads], [48, 32, 64], rtol=1e-5)
    np.testing.assert_allclose(
        column(graph, "touched_bytes")[loads], np.array([64 * 32, 64 * 48, 48 * 32]) * 4, rtol=1e-5
    )


def test_scheduled_programs_show_their_schedule(modules: dict[str, list[Any]]) -> None:
    counts = [kinds(tree_of(module)) for module in modules["matmul"] + modules["conv"]]
    assert any(count["loop_parallel"] for count in counts)
    assert any(count["loop_vectorized"] for count in counts)
    limits = {float(column(tree_of(module), "unroll_limit").max().round()) for module in modules["conv"]}
    assert len(limits) > 1
    assert limits <= {0, 16, 64, 512}


def test_nodes_are_in_depth_first_order(modules: dict[str, list[Any]]) -> None:
    for graph in every(modules):
        parent, depth = graph.node_parent, graph.node_depth
        assert parent[0] == -1
        assert depth[0] == 0
        assert (parent[1:] < np.arange(1, len(parent))).all()
        assert (depth[1:] == depth[parent[1:]] + 1).all()
        # the parent of a node is on the path from the root to the node before it
        for node in range(1, len(parent)):
            path = {node - 1}
            while max(path) > 0 and parent[min(path)] >= 0:
                path.add(int(parent[min(path)]))
            assert parent[node] in path


def test_every_edge_has_its_reverse(modules: dict[str, list[Any]]) -> None:
    for graph in every(modules):
        for kind, reverse in zip(EDGE_KINDS[::2], EDGE_KINDS[1::2], strict=True):
            forward = edges(graph, kind)
            assert forward == {(b, a) for a, b in edges(graph, reverse)}
            assert len(forward) == (graph.edge_kind == EDGE_KIND_INDEX[kind]).sum()
        for ends in (graph.edge_source, graph.edge_target):
            assert ends.min() >= 0
            assert ends.max() < len(graph.node_kind)


def test_tree_edges_are_the_parents_and_the_order_of_siblings(modules: dict[str, list[Any]]) -> None:
    for graph in every(modules):
        parent = graph.node_parent
        assert edges(graph, "parent_to_child") == {(int(parent[node]), node) for node in range(1, len(parent))}
        children: dict[int, list[int]] = {}
        for node in range(1, len(parent)):
            children.setdefault(int(parent[node]), []).append(node)
        assert edges(graph, "next_sibling") == {pair for row in children.values() for pair in itertools.pairwise(row)}
        for row in children.values():
            np.testing.assert_allclose(column(graph, "position")[row], np.arange(len(row)), atol=1e-4)


def test_definitions_lead_from_loops_over_axes_to_indices(suite: dict[str, Workload]) -> None:
    graph = tree_of(parse_module(suite["matmul"].module))
    names = [NODE_KINDS[number] for number in graph.node_kind]
    links = Counter((names[a], names[b]) for a, b in edges(graph, "definition_to_use"))
    assert links == {
        ("loop_serial", "axis_spatial"): 2,
        ("loop_serial", "axis_reduce"): 1,
        ("axis_spatial", "variable"): 8,
        ("axis_reduce", "variable"): 2,
    }
    # the init writes, then the update writes and reads the result
    accesses = [node for node, name in enumerate(names) if name in ("store", "load")]
    assert edges(graph, "next_same_buffer") == {(accesses[0], accesses[1]), (accesses[1], accesses[2])}


def test_trees_repeat_and_are_finite(modules: dict[str, list[Any]]) -> None:
    for module in modules["softmax"] + modules["transpose"]:
        first, second = tree_of(module), tree_of(module)
        for name, value in vars(first).items():
            np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)
        assert np.isfinite(first.node_features).all()
        assert (first.node_features >= 0).all()


def test_programs_of_a_workload_have_different_trees(modules: dict[str, list[Any]]) -> None:
    for drawn in modules.values():
        trees = {tree_of(module).node_kind.tobytes() + tree_of(module).node_features.tobytes() for module in drawn}
        assert len(trees) == len(drawn)


def test_options_leave_parts_out(suite: dict[str, Workload]) -> None:
    options = ViewOptions(indices=False, buffer_edges=False, definition_edges=False)
    bare = tree_of(parse_module(suite["matmul"].module), options)
    assert kinds(bare)["variable"] == 0
    assert len(bare.node_kind) == 27 - 10
    assert set(bare.edge_kind.tolist()) == {EDGE_KIND_INDEX[name] for name in EDGE_KINDS[:4]}


def test_context_of_loops_by_hand(suite: dict[str, Workload]) -> None:
    graph = tree_of(parse_module(suite["matmul"].module))
    loops = graph.node_kind == NODE_KINDS.index("loop_serial")
    np.testing.assert_allclose(column(graph, "top_down")[loops], [64, 64 * 32, 64 * 32 * 48], rtol=1e-5)
    np.testing.assert_allclose(column(graph, "bottom_up")[loops], [32 * 48, 48, 1], rtol=1e-5)
    # left (64, 48), result (64, 32), right (48, 32); one row of left and result; one line of a result that stays
    largest = [[64 * 48 * 4, 48 * 32 * 4, 48 * 64], [64 * 32 * 4, 48 * 4, 48 * 4], [48 * 32 * 4, 32 * 4, 64]]
    for name, expected in zip(("largest_bytes", "second_bytes", "third_bytes"), largest, strict=True):
        np.testing.assert_allclose(column(graph, name)[loops], expected, rtol=1e-5)


def test_strides_of_the_loops_around_by_hand(suite: dict[str, Workload]) -> None:
    graph = tree_of(parse_module(suite["matmul"].module))
    loads = graph.node_kind == NODE_KINDS.index("load")
    # result[i, j], left[i, k] and right[k, j] in loops i, j, k from outside
    expected = {"stride_1": [0, 1, 32], "stride_2": [1, 0, 1], "stride_3": [32, 48, 0], "stride_4": [0, 0, 0]}
    for name, strides in expected.items():
        np.testing.assert_allclose(column(graph, name)[loads], strides, atol=1e-4)


def test_one_direction_and_the_other_are_both(modules: dict[str, list[Any]]) -> None:
    for module in modules["conv"][:3]:
        parts = {name: tree_of(module, ViewOptions(direction=name)) for name in ("both", "forward", "backward")}
        found = {
            name: sorted(zip(graph.edge_kind, graph.edge_source, graph.edge_target, strict=True))
            for name, graph in parts.items()
        }
        assert sorted(found["forward"] + found["backward"]) == found["both"]
        assert {kind % 2 for kind, _, _ in found["forward"]} == {0}
        assert {kind % 2 for kind, _, _ in found["backward"]} == {1}


@pytest.mark.parametrize("group", FEATURE_GROUPS)
def test_a_group_left_out_takes_its_columns_along(group: str, suite: dict[str, Workload]) -> None:
    module = parse_module(suite["matmul"].module)
    whole, bare = tree_of(module), tree_of(module, ViewOptions(leave_out=(group,)))
    left = [feature.name for feature in NODE_FEATURES if feature.group != group]
    assert list(bare.feature_names) == left
    assert len(left) < len(NODE_FEATURES)
    np.testing.assert_array_equal(bare.node_features, whole.node_features[:, [NODE_FEATURE_INDEX[n] for n in left]])
    assert list(bare.kernel_names) == [feature.name for feature in KERNEL_FEATURES if feature.group != group]


def test_without_log_scale_values_are_natural(suite: dict[str, Workload]) -> None:
    module = parse_module(suite["matmul"].module)
    logged, natural = tree_of(module), tree_of(module, ViewOptions(log_scale=False))
    for feature in NODE_FEATURES:
        values = natural.node_features[:, NODE_FEATURE_INDEX[feature.name]]
        np.testing.assert_allclose(column(logged, feature.name), values, rtol=1e-4, atol=1e-4)


def test_features_of_the_program_go_where_the_option_says(suite: dict[str, Workload]) -> None:
    module = parse_module(suite["matmul"].module)
    kernel, node, none = (tree_of(module, ViewOptions(static_features=name)) for name in ("kernel", "node", "none"))
    width = len(KERNEL_FEATURES)
    assert kernel.kernel_features.shape == (1, width)
    assert none.kernel_features.shape == node.kernel_features.shape == (1, 0)
    assert none.feature_names == kernel.feature_names
    assert node.feature_names[:-width] == kernel.feature_names
    np.testing.assert_array_equal(node.node_features[:, -width:], np.repeat(kernel.kernel_features, 27, axis=0))
