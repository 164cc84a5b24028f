import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.graphs.trace_columns import COLUMN_NAMES, PRIMITIVES
from kernelcast.graphs.views import TraceTokens
from kernelcast.models.trace_table import SHOWN, trace_table

TILING, CHOICE, LOCATION, SPLIT = (
    PRIMITIVES.index(name) for name in ("SamplePerfectTile", "SampleCategorical", "SampleComputeLocation", "Split")
)


def traces_of(programs):
    """The tokens of programs that are lists of (primitive, decisions)."""
    steps = [step for program in programs for step in program]
    values = np.zeros((len(steps), len(COLUMN_NAMES)), dtype=np.float32)
    for row, (_, decisions) in zip(values, steps, strict=True):
        row[COLUMN_NAMES.index("decided")] = len(decisions)
        first = COLUMN_NAMES.index("decision_1")
        row[first : first + len(decisions)] = np.sign(decisions) * np.log1p(np.abs(decisions))
    offset = np.cumsum([0, *map(len, programs)])
    return TraceTokens(COLUMN_NAMES, offset, np.array([kind for kind, _ in steps], dtype=np.int16), values)


def test_decisions_stand_in_their_order_whatever_stands_between():
    plain = [(TILING, [4, 8]), (TILING, [2, 1, 16, 1]), (TILING, [32, 2]), (CHOICE, [3, 64]), (LOCATION, [-1])]
    spread = [(SPLIT, [])]
    for step in plain:
        spread += [step, (SPLIT, [])]
    table = trace_table(traces_of([plain, spread]))
    same = [place for place, name in enumerate(table.names) if not name.startswith("steps_")]
    np.testing.assert_array_equal(table.values[0, same], table.values[1, same])
    assert table.column("steps_Split").tolist() == [0, 6]
    value = {name: table.column(name)[0] for name in table.names}
    assert value["tiling_of_2_factor_1_at_1"] == pytest.approx(2)
    assert value["tiling_of_2_factor_1_at_2"] == pytest.approx(5)
    # 4 * 8 and 32 * 2, as powers of two
    assert value["tiling_of_2_product_from_1_at_1"] == pytest.approx(5)
    assert value["tiling_of_2_product_from_1_sum"] == pytest.approx(11)
    assert value["tiling_of_4_product_from_3_at_1"] == pytest.approx(4)
    assert value["tiling_of_4_product_from_1_at_1"] == pytest.approx(5)
    assert value["choice_2_at_1"] == pytest.approx(np.log(65))
    assert value["location_1_at_1"] == pytest.approx(-np.log(2))
    assert np.isnan(value["tiling_of_2_factor_1_at_3"])
    assert np.isnan(value["choice_1_at_2"])


def test_no_traces_give_no_rows_and_the_same_columns():
    assert trace_table(traces_of([])).names == trace_table(traces_of([[(SPLIT, [])], []])).names
    assert trace_table(traces_of([])).values.shape[0] == 0


PROGRAMS = st.lists(
    st.lists(
        st.one_of(
            st.tuples(st.just(TILING), st.lists(st.integers(1, 64), min_size=2, max_size=6)),
            st.tuples(st.just(CHOICE), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
            st.tuples(st.just(SPLIT), st.just([])),
        ),
        max_size=2 * SHOWN,
    ),
    max_size=4,
)


@given(PROGRAMS)
def test_a_row_does_not_depend_on_the_other_programs(programs):
    together = trace_table(traces_of(programs))
    for number, program in enumerate(programs):
        alone = trace_table(traces_of([program]))
        np.testing.assert_allclose(alone.values[0], together.values[number], rtol=1e-6)
    assert together.values.shape == (len(programs), len(together.names))


@given(PROGRAMS)
def test_sums_count_also_the_tilings_without_columns(programs):
    table = trace_table(traces_of(programs))
    for size in range(2, 7):
        expected = [
            sum(np.log2(factors).sum() for kind, factors in program if kind == TILING and len(factors) == size)
            for program in programs
        ]
        np.testing.assert_allclose(table.column(f"tiling_of_{size}_product_from_1_sum"), expected, rtol=1e-4, atol=1e-4)
