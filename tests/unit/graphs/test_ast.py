import itertools
from collections import Counter

import numpy as np
import pytest

from kernelcast.errors import ConfigError
from kernelcast.graphs.analysis import analyse
from kernelcast.graphs.ast import AstOptions, syntax_tree
from kernelcast.graphs.programs import AstGraphs
from kernelcast.graphs.reader import parse_program
from kernelcast.graphs.vocabulary import EDGE_KIND_INDEX, EDGE_KINDS, NODE_FEATURE_INDEX, NODE_FEATURES, NODE_KINDS
from kernelcast.records import Workload

EVERYTHING = AstOptions()


def tree_of(module: str, options: AstOptions = EVERYTHING) -> AstGraphs:
    return syntax_tree(analyse(parse_program(module)), options)


def every(modules: dict[str, list[str]]) -> list[AstGraphs]:
    return [tree_of(module) for module in itertools.chain.from_iterable(modules.values())]


def kinds(graph: AstGraphs) -> Counter[str]:
    return Counter(NODE_KINDS[number] for number in graph.node_kind)


def column(graph: AstGraphs, name: str) -> np.ndarray:
    values = graph.node_features[:, NODE_FEATURE_INDEX[name]]
    return values if NODE_FEATURES[NODE_FEATURE_INDEX[name]].unit == "flag" else np.expm1(values)


def edges(graph: AstGraphs, kind: str) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in graph.edge_index[:, graph.edge_kind == EDGE_KIND_INDEX[kind]].T}


def test_unscheduled_matmul_by_hand(suite: dict[str, Workload]) -> None:
    graph = tree_of(suite["matmul"].module)
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
    np.testing.assert_allclose(column(graph, "stride")[loads], [0, 1, 32], atol=1e-4)
    np.testing.assert_allclose(column(graph, "reuse")[loads], [48, 32, 64], rtol=1e-5)
    np.testing.assert_allclose(
        column(graph, "touched_bytes")[loads], np.array([64 * 32, 64 * 48, 48 * 32]) * 4, rtol=1e-5
    )


def test_scheduled_programs_show_their_schedule(modules: dict[str, list[str]]) -> None:
    counts = [kinds(tree_of(module)) for module in modules["matmul"] + modules["conv"]]
    assert any(count["loop_parallel"] for count in counts)
    assert any(count["loop_vectorized"] for count in counts)
    limits = {float(column(tree_of(module), "unroll_limit").max().round()) for module in modules["conv"]}
    assert len(limits) > 1
    assert limits <= {0, 16, 64, 512}


def test_nodes_are_in_depth_first_order(modules: dict[str, list[str]]) -> None:
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


def test_every_edge_has_its_reverse(modules: dict[str, list[str]]) -> None:
    for graph in every(modules):
        for kind, reverse in zip(EDGE_KINDS[::2], EDGE_KINDS[1::2], strict=True):
            forward = edges(graph, kind)
            assert forward == {(b, a) for a, b in edges(graph, reverse)}
            assert len(forward) == (graph.edge_kind == EDGE_KIND_INDEX[kind]).sum()
        assert graph.edge_index.min() >= 0
        assert graph.edge_index.max() < len(graph.node_kind)


def test_tree_edges_are_the_parents_and_the_order_of_siblings(modules: dict[str, list[str]]) -> None:
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
    graph = tree_of(suite["matmul"].module)
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


def test_trees_repeat_and_are_finite(modules: dict[str, list[str]]) -> None:
    for module in modules["softmax"] + modules["transpose"]:
        first, second = tree_of(module), tree_of(module)
        for name, value in vars(first).items():
            np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)
        assert np.isfinite(first.node_features).all()
        assert (first.node_features >= 0).all()


def test_programs_of_a_workload_have_different_trees(modules: dict[str, list[str]]) -> None:
    for drawn in modules.values():
        trees = {tree_of(module).node_kind.tobytes() + tree_of(module).node_features.tobytes() for module in drawn}
        assert len(trees) == len(drawn)


def test_options_leave_parts_out(suite: dict[str, Workload]) -> None:
    bare = tree_of(suite["matmul"].module, AstOptions(indices=False, buffer_edges=False, definition_edges=False))
    assert kinds(bare)["variable"] == 0
    assert len(bare.node_kind) == 27 - 10
    assert set(bare.edge_kind.tolist()) == {EDGE_KIND_INDEX[name] for name in EDGE_KINDS[:4]}


def test_an_option_that_is_no_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"features\.indices"):
        AstOptions(indices="maybe")  # type: ignore[arg-type]
