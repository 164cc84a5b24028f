import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.graphs.ast import concatenate
from kernelcast.graphs.programs import AstGraphs, FlatFeatures, Machine, Programs, ragged_rows


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.data())
def test_ragged_rows_are_the_chosen_lists_one_after_the_other(lengths: list[int], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=12))
    offset = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    elements, gathered = ragged_rows(offset, np.array(rows, dtype=np.int64))
    lists = [list(range(offset[row], offset[row + 1])) for row in rows]
    assert elements.tolist() == [element for part in lists for element in part]
    assert np.diff(gathered).tolist() == [len(part) for part in lists]


def test_isolated_and_single_nodes_survive_selection(hand_made: AstGraphs) -> None:
    chosen = hand_made.select(np.array([2, 1, 0]))
    assert len(chosen) == 3
    assert chosen.node_offset.tolist() == [0, 3, 4, 8]
    assert chosen.edge_offset.tolist() == [0, 0, 0, 6]
    assert chosen.node_kind.tolist() == [0, 1, 2, 0, 0, 1, 12, 13]
    assert chosen.node_parent.tolist() == [-1, 0, 0, -1, -1, 0, 1, 2]
    assert chosen.edge_index.tolist() == hand_made.edge_index.tolist()


def test_nothing_selected_is_an_empty_set(hand_made: AstGraphs) -> None:
    empty = hand_made.select(np.array([], dtype=np.int64))
    assert (len(empty), empty.node_kind.shape, empty.edge_index.shape) == (0, (0,), (2, 0))


def test_concatenating_the_single_graphs_gives_all_of_them(hand_made: AstGraphs) -> None:
    joined = concatenate([hand_made.select(np.array([row])) for row in range(3)])
    for name, value in vars(hand_made).items():
        np.testing.assert_array_equal(getattr(joined, name), value, err_msg=name)


@given(st.lists(st.integers(0, 2), max_size=6), st.data())
def test_selection_of_a_selection(rows: list[int], data: st.DataObject) -> None:
    programs = tiny_programs()
    again = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)) if rows else []
    twice = programs.select(np.array(rows, dtype=np.int64)).select(np.array(again, dtype=np.int64))
    once = programs.select(np.array([rows[row] for row in again], dtype=np.int64))
    assert len(twice) == len(again)
    assert twice.log_seconds.tolist() == once.log_seconds.tolist()
    assert twice.features.values.tolist() == once.features.values.tolist()
    assert twice.ast.node_features.tolist() == once.ast.node_features.tolist()
    assert twice.workload_names == programs.workload_names


def tiny_programs() -> Programs:
    ast = AstGraphs(
        node_kind=np.arange(6, dtype=np.int16),
        node_features=np.arange(12, dtype=np.float32).reshape(6, 2),
        node_parent=np.array([-1, -1, 0, -1, 0, 1], dtype=np.int32),
        node_depth=np.array([0, 0, 1, 0, 1, 2], dtype=np.int16),
        node_offset=np.array([0, 1, 3, 6]),
        edge_index=np.array([[0, 0], [1, 1]], dtype=np.int32),
        edge_kind=np.array([0, 0], dtype=np.int8),
        edge_offset=np.array([0, 0, 1, 2]),
    )
    return Programs(
        ast=ast,
        features=FlatFeatures(np.arange(6, dtype=np.float32).reshape(3, 2), ("a_bytes", "b_flops")),
        log_seconds=np.array([-1.0, -2.0, -3.0]),
        workload=np.array([0, 0, 1], dtype=np.int32),
        workload_names=("one", "two"),
        program_key=np.array(["x", "y", "z"]),
        machine=Machine(2, 8, 1e11, 1e10, 2**20),
        feature_version="v",
    )


def test_a_column_is_found_by_name() -> None:
    features = tiny_programs().features
    assert features.column("b_flops").tolist() == [1, 3, 5]
    with pytest.raises(ValueError, match="not in tuple"):
        features.column("c")
