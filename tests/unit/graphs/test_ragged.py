import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.graphs.ragged import PROGRAM, View, along, offset_name, ragged_rows
from kernelcast.graphs.views import VIEW_TYPES, FlatFeatures, StatementRows


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.data())
def test_ragged_rows_are_the_chosen_lists_one_after_the_other(lengths: list[int], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=12))
    offset = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    elements, gathered = ragged_rows(offset, np.array(rows, dtype=np.int64))
    lists = [list(range(offset[row], offset[row + 1])) for row in rows]
    assert elements.tolist() == [element for part in lists for element in part]
    assert np.diff(gathered).tolist() == [len(part) for part in lists]


@pytest.mark.parametrize("kind", VIEW_TYPES.values())
def test_a_view_declares_columns_offsets_and_arrays_and_nothing_else(kind: type[View]) -> None:
    declared = {*kind.column_names(), *map(offset_name, kind.ragged_axes()), *kind.array_axes()}
    assert declared == {field.name for field in dataclasses.fields(kind)}
    assert all(name.endswith("names") for name in kind.column_names())


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.data())
def test_a_selection_of_a_joined_view_is_the_joined_selections(lengths: list[int], data: st.DataObject) -> None:
    total = sum(lengths)
    whole = StatementRows(
        names=("a",),
        row_offset=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        values=np.arange(total, dtype=np.float32).reshape(total, 1),
    )
    alone = [whole.select(np.array([row])) for row in range(len(lengths))]
    joined = StatementRows.concatenate(alone)
    np.testing.assert_array_equal(joined.values, whole.values)
    np.testing.assert_array_equal(joined.row_offset, whole.row_offset)
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=6))
    chosen = whole.select(np.array(rows))
    expected = StatementRows.concatenate([alone[row] for row in rows])
    np.testing.assert_array_equal(chosen.values, expected.values)
    assert chosen.counts("row").tolist() == [lengths[row] for row in rows]


def test_a_view_without_ragged_axes_counts_its_rows() -> None:
    features = FlatFeatures(("a", "b"), np.zeros((3, 2), dtype=np.float32))
    assert (len(features), features.ragged_axes(), features.array_axes()) == (3, (), {"values": PROGRAM})
    assert features.columns() == {"names": ("a", "b")}


def test_a_field_is_declared_with_its_axis() -> None:
    field = along("node")
    assert field.metadata["axis"] == "node"
    assert field.default is dataclasses.MISSING
