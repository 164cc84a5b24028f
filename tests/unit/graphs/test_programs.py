import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import AstGraphs, FlatFeatures


def test_isolated_and_single_nodes_survive_selection(hand_made: AstGraphs) -> None:
    # case PYG-01
    chosen = hand_made.select(np.array([2, 1, 0]))
    assert len(chosen) == 3
    assert chosen.node_offset.tolist() == [0, 3, 4, 8]
    assert chosen.edge_offset.tolist() == [0, 0, 0, 6]
    assert chosen.node_kind.tolist() == [0, 1, 2, 0, 0, 1, 12, 13]
    assert chosen.node_parent.tolist() == [-1, 0, 0, -1, -1, 0, 1, 2]
    assert chosen.edge_source.tolist() == hand_made.edge_source.tolist()
    assert chosen.edge_target.tolist() == hand_made.edge_target.tolist()


def test_nothing_selected_is_an_empty_set(hand_made: AstGraphs) -> None:
    empty = hand_made.select(np.array([], dtype=np.int64))
    assert (len(empty), empty.node_kind.shape, empty.edge_source.shape) == (0, (0,), (0,))


def tiny_programs() -> Programs:
    ast = AstGraphs(
        feature_names=("a", "b"),
        kernel_names=("flops",),
        node_kind=np.arange(6, dtype=np.int16),
        node_features=np.arange(12, dtype=np.float32).reshape(6, 2),
        node_parent=np.array([-1, -1, 0, -1, 0, 1], dtype=np.int32),
        node_depth=np.array([0, 0, 1, 0, 1, 2], dtype=np.int16),
        node_offset=np.array([0, 1, 3, 6]),
        edge_source=np.array([0, 0], dtype=np.int32),
        edge_target=np.array([1, 1], dtype=np.int32),
        edge_kind=np.array([0, 0], dtype=np.int8),
        edge_offset=np.array([0, 0, 1, 2]),
        kernel_features=np.array([[1], [2], [3]], dtype=np.float32),
    )
    return Programs.in_memory(
        {"ast": ast, "features": FlatFeatures(("a_bytes", "b_flops"), np.arange(6, dtype=np.float32).reshape(3, 2))},
        log_seconds=np.array([-1.0, -2.0, -3.0]),
        workload=np.array([0, 0, 1], dtype=np.int32),
        workload_names=("one", "two"),
        program_key=np.array(["x", "y", "z"]),
        machines=(Machine(2, 8, 1e11, 1e10, 2**20),),
        feature_version="v",
    )


@given(st.lists(st.integers(0, 2), max_size=6), st.data())
def test_selection_of_a_selection(rows: list[int], data: st.DataObject) -> None:
    programs = tiny_programs()
    again = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)) if rows else []
    twice = programs.select(np.array(rows, dtype=np.int64)).select(np.array(again, dtype=np.int64))
    once = programs.select(np.array([rows[row] for row in again], dtype=np.int64))
    assert len(twice) == len(again)
    assert twice.log_seconds.tolist() == once.log_seconds.tolist()
    assert twice.target.tolist() == [0] * len(again)
    assert twice.features.values.tolist() == once.features.values.tolist()
    assert twice.ast.node_features.tolist() == once.ast.node_features.tolist()
    assert twice.counts("ast", "node").tolist() == once.ast.counts("node").tolist()
    assert twice.workload_names == programs.workload_names


def test_a_view_of_some_rows_reads_only_these() -> None:
    programs = tiny_programs().select(np.array([2, 0]))
    view = programs.view("ast", np.array([0]))
    assert view.node_kind.tolist() == [3, 4, 5]
    assert view.kernel_features.tolist() == [[3.0]]


def test_all_rows_in_their_order_are_no_copy() -> None:
    programs = tiny_programs()
    assert programs.ast is programs.sources["ast"]
    assert programs.select(np.array([0, 1])).ast is not programs.sources["ast"]


def test_a_view_that_is_not_there_is_named_with_those_that_are() -> None:
    programs = tiny_programs()
    for ask in (
        lambda: programs.view("trace"),
        lambda: programs.counts("dataflow", "node"),
        lambda: programs.columns("trace"),
    ):
        with pytest.raises(ConfigError, match=r"no view `(trace|dataflow)`, only ast, features.*dvc repro graphs"):
            ask()


def test_a_column_is_found_by_name() -> None:
    features = tiny_programs().features
    assert features.column("b_flops").tolist() == [1, 3, 5]
    with pytest.raises(ValueError, match="not in tuple"):
        features.column("c")
