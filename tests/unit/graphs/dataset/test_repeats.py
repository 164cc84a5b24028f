import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.dataset.repeats import Repeats
from kernelcast.records import MEASUREMENT_SCHEMA, measurement_table

ROW = {
    "workload_key": "k", "workload_name": "w", "workload_kind": "matmul", "program_key": "p", "trace": "",
    "target": "{}", "outcome": "measured",
}  # fmt: skip


def repeats_of(*rows: list[float]) -> Repeats:
    return Repeats.of(measurement_table([{**ROW, "run_seconds": row} for row in rows]))


def test_every_repeat_knows_its_row() -> None:
    repeats = repeats_of([1.0, 2.0], [], [3.0])
    assert repeats.row.tolist() == [0, 0, 2]
    assert repeats.run_seconds.tolist() == [1.0, 2.0, 3.0]
    assert repeats.round_index.tolist() == [0, 1, 0]
    assert repeats.counts.tolist() == [2, 0, 1]
    assert repeats.any_of(repeats.run_seconds > 1.5).tolist() == [True, False, True]
    some = repeats.select(repeats.run_seconds > 1.5)
    assert (len(some), some.rows, some.row.tolist()) == (2, 3, [0, 2])


def test_a_slice_of_a_table_keeps_its_own_values() -> None:
    table = measurement_table([{**ROW, "run_seconds": [1.0, 2.0]}, {**ROW, "run_seconds": [3.0, 4.0]}]).slice(1)
    assert Repeats.of(table).run_seconds.tolist() == [3.0, 4.0]
    assert Repeats.of(table).row.tolist() == [0, 0]


def test_a_table_without_rows_has_no_repeats() -> None:
    repeats = Repeats.of(MEASUREMENT_SCHEMA.empty_table())
    assert (repeats.rows, len(repeats)) == (0, 0)
    assert repeats.quantiles(0.5)[0].tolist() == []


@given(
    st.lists(st.lists(st.floats(1e-9, 1e3), max_size=6), max_size=6),
    st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
def test_quantiles_are_those_of_each_row(rows: list[list[float]], shares: list[float]) -> None:
    for share, found in zip(shares, repeats_of(*rows).quantiles(*shares), strict=True):
        expected = [np.quantile(row, share) if row else np.nan for row in rows]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_lists_of_different_length_are_refused() -> None:
    rows = [{**ROW, "run_seconds": [1.0]}, {**ROW, "run_seconds": [1.0, 2.0], "visit": [0]}]
    with pytest.raises(MalformedDataError, match=r"row 1 has 2 entries in run_seconds and 1 in visit; .*dvc repro"):
        Repeats.of(measurement_table(rows))


def test_a_repeat_of_no_known_visit_is_refused() -> None:
    with pytest.raises(MalformedDataError, match="visit lacks 1 entries"):
        Repeats.of(measurement_table([{**ROW, "run_seconds": [1.0], "visit": [None]}]))
