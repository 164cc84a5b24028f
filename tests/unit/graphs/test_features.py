from typing import Any

import numpy as np
import pytest

from kernelcast.errors import ConfigError
from kernelcast.graphs import features, vocabulary
from kernelcast.graphs.dataflow import NODE_FEATURES as DATAFLOW_FEATURES
from kernelcast.graphs.facts import analyse
from kernelcast.graphs.features import natural, program_row, program_rows, statement_rows, statement_table
from kernelcast.graphs.flat_columns import PROGRAM_FEATURES, STATEMENT_FEATURES
from kernelcast.graphs.kernel_features import KERNEL_FEATURES
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.views import FlatFeatures, StatementRows
from kernelcast.graphs.walker import walk
from kernelcast.records import Workload
from kernelcast.tvm_compat import parse_module

CACHE_BYTES = 2**20
EVERYTHING = ViewOptions()


def rows_of(modules: list[Any], options: ViewOptions = EVERYTHING) -> FlatFeatures:
    made = []
    for module in modules:
        table = walk(module)
        facts = analyse(table)
        made.append(program_row(table, facts, statement_table(table, facts), CACHE_BYTES))
    return program_rows(made, options)


def statements_of(modules: list[Any], options: ViewOptions = EVERYTHING) -> StatementRows:
    tables = [walk(module) for module in modules]
    return statement_rows([statement_table(table, analyse(table))[0] for table in tables], options)


def test_width_is_the_same_for_every_kind_of_program(modules: dict[str, list[Any]]) -> None:
    made = {name: rows_of(drawn) for name, drawn in modules.items()}
    assert len({table.names for table in made.values()}) == 1
    assert len({table.values.shape for table in made.values()}) == 1
    assert all(np.isfinite(table.values).all() and (table.values >= 0).all() for table in made.values())


def test_features_repeat(modules: dict[str, list[Any]]) -> None:
    np.testing.assert_array_equal(rows_of(modules["conv"]).values, rows_of(modules["conv"]).values)


def test_distinct_programs_have_distinct_rows(modules: dict[str, list[Any]]) -> None:
    for drawn in modules.values():
        assert len(np.unique(rows_of(drawn).values, axis=0)) == len(drawn)


def test_matmul_by_hand(suite: dict[str, Workload]) -> None:
    table = rows_of([parse_module(suite["matmul"].module)])
    flops, size = 2 * 64 * 32 * 48, 4 * (64 * 48 + 48 * 32 + 64 * 32)
    expected = {
        features.FLOPS: flops,
        features.UNIQUE_BYTES: size,
        features.MOVED_BYTES: size,
        features.VECTOR_SHARE: 0,
        features.PARALLEL_EXTENT: 1,
        features.LOOP_STARTS: 1 + 64 + 64 * 32,
        features.LOOP_ITERATIONS: 64 + 64 * 32 + 64 * 32 * 48,
        "temporary_bytes": 0,
        "load_count": 3 * flops / 2,
        "statements": 2,
        "buffers": 3,
        "first_executions": flops / 2,
        "first_inner1_extent": 48,
        "first_inner3_extent": 64,
        "first_inner4_extent": 0,
        "first_reduction_extent": 48,
        "first_inner_reduction_extent": 48,
        "first_load1_touched_bytes": 64 * 48 * 4,
        "second_executions": 64 * 32,
        "third_executions": 0,
    }
    found = {name: natural(table, name)[0] for name in expected}
    assert found == pytest.approx(expected, rel=1e-4)


def test_schedules_move_what_they_should(modules: dict[str, list[Any]]) -> None:
    table = rows_of(modules["matmul"])
    assert np.ptp(natural(table, features.FLOPS)) == 0
    assert (natural(table, features.PARALLEL_EXTENT) > 1.5).any()
    assert set(natural(table, features.VECTOR_SHARE).round(3)) <= {0, 1}
    assert np.ptp(table.column("first_straight_steps")) > 0
    assert np.ptp(table.column("moved_past_8kib_bytes")) > 0


def test_statements_of_matmul_by_hand(suite: dict[str, Workload]) -> None:
    rows = statements_of([parse_module(suite["matmul"].module)], ViewOptions(log_scale=False))
    assert rows.row_offset.tolist() == [0, 2]
    init, update = ({name: float(row[n]) for n, name in enumerate(rows.names)} for row in rows.values)
    assert (init["is_init"], init["flops"], init["executions"], init["accesses"]) == (1, 0, 64 * 32, 1)
    expected = {
        "executions": 64 * 32 * 48,
        "flops": 2,
        "is_init": 0,
        "is_guarded": 0,
        "accesses": 4,
        "depth_loops": 3,
        "lanes": 1,
        "lane_parts": 1,
        "straight_steps": 1,
        "reduction_extent": 48,
        "repeated_iterations": 1,
        "removable_iterations": 1,
        "target_runs": 1,
        "inner1_extent": 48,
        "inner2_extent": 32,
        "inner3_extent": 64,
        "inner4_extent": 0,
        "inner1_is_reduction": 1,
        "inner2_is_reduction": 0,
        # a line of the result, three of left, a column of right
        "inner1_touched_bytes": 64 + 48 * 4 + 48 * 64,
        "target_stride_1": 0,
        "target_stride_2": 1,
        "load1_buffer_bytes": 64 * 48 * 4,
        "load1_stride_1": 1,
        "load1_reuse": 32,
        "load2_buffer_bytes": 64 * 32 * 4,
        "load3_stride_1": 32,
    }
    assert {name: update[name] for name in expected} == expected
    assert update["inner1_intensity"] == pytest.approx(2 * 48 / (64 + 48 * 4 + 48 * 64))


def test_statements_of_many_programs_stand_one_after_the_other(modules: dict[str, list[Any]]) -> None:
    drawn = modules["softmax"] + modules["matmul"]
    rows = statements_of(drawn)
    assert len(rows) == len(drawn)
    for program, module in enumerate(drawn):
        one = statements_of([module])
        start, stop = rows.row_offset[program : program + 2]
        np.testing.assert_array_equal(rows.values[start:stop], one.values)
    assert np.isfinite(rows.values).all()


def test_work_of_the_statements_is_that_of_the_program(modules: dict[str, list[Any]]) -> None:
    for drawn in modules.values():
        natural_rows = statements_of(drawn, ViewOptions(log_scale=False))
        flops, executions = (natural_rows.names.index(name) for name in ("flops", "executions"))
        work = natural_rows.values[:, flops].astype(np.float64) * natural_rows.values[:, executions]
        total = np.add.reduceat(work, natural_rows.row_offset[:-1])
        np.testing.assert_allclose(total, natural(rows_of(drawn), features.FLOPS), rtol=1e-5)


def test_a_column_left_out_says_so_when_it_is_needed(modules: dict[str, list[Any]]) -> None:
    bare = rows_of(modules["matmul"][:1], ViewOptions(leave_out=("work",)))
    assert bare.values.shape[1] == sum(feature.group != "work" for feature in PROGRAM_FEATURES)
    with pytest.raises(ConfigError, match=r"column flops.*features\.leave_out"):
        natural(bare, features.FLOPS)


def test_every_entry_of_the_vocabulary_is_used_once_and_explained() -> None:
    tables = [vocabulary.NODE_FEATURES, STATEMENT_FEATURES, PROGRAM_FEATURES, KERNEL_FEATURES, DATAFLOW_FEATURES]
    for names in (vocabulary.NODE_KINDS, vocabulary.EDGE_KINDS, *([e.name for e in table] for table in tables)):
        assert len(set(names)) == len(names)
    for entry in (entry for table in tables for entry in table):
        assert entry.group in vocabulary.FEATURE_GROUPS
        assert entry.unit
        assert not entry.unit.startswith("log1p")
        assert len(entry.meaning) > 5
        assert entry.source
