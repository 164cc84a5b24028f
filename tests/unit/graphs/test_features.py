import re

import numpy as np
import pytest

from kernelcast.graphs import features, vocabulary
from kernelcast.graphs.analysis import analyse
from kernelcast.graphs.features import flat_features, natural
from kernelcast.graphs.programs import FlatFeatures
from kernelcast.graphs.reader import parse_program
from kernelcast.records import Workload

CACHE_BYTES = 2**20


def rows_of(modules: list[str]) -> FlatFeatures:
    made = [flat_features(analyse(parse_program(module)), CACHE_BYTES) for module in modules]
    assert len({names for _, names in made}) == 1
    return FlatFeatures(np.stack([row for row, _ in made]), made[0][1])


def test_width_is_the_same_for_every_kind_of_program(modules: dict[str, list[str]]) -> None:
    made = {name: rows_of(drawn) for name, drawn in modules.items()}
    assert len({table.names for table in made.values()}) == 1
    assert len({table.values.shape for table in made.values()}) == 1
    assert all(np.isfinite(table.values).all() and (table.values >= 0).all() for table in made.values())


def test_features_repeat(modules: dict[str, list[str]]) -> None:
    np.testing.assert_array_equal(rows_of(modules["conv"]).values, rows_of(modules["conv"]).values)


def test_distinct_programs_have_distinct_rows(modules: dict[str, list[str]]) -> None:
    for drawn in modules.values():
        assert len(np.unique(rows_of(drawn).values, axis=0)) == len(drawn)


def test_matmul_by_hand(suite: dict[str, Workload]) -> None:
    table = rows_of([suite["matmul"].module])
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


def test_schedules_move_what_they_should(modules: dict[str, list[str]]) -> None:
    table = rows_of(modules["matmul"])
    assert np.ptp(natural(table, features.FLOPS)) == 0
    assert (natural(table, features.PARALLEL_EXTENT) > 1.5).any()
    assert set(natural(table, features.VECTOR_SHARE).round(3)) <= {0, 1}
    assert np.ptp(table.column("first_straight_steps")) > 0
    assert np.ptp(table.column("moved_past_8kib_bytes")) > 0


def test_the_table_of_columns_names_all_of_them(modules: dict[str, list[str]]) -> None:
    names = rows_of(modules["softmax"][:1]).names
    assert len(set(names)) == len(names)
    documented = re.findall(r"`([\w]+)`", str(features.__doc__).split("Of one statement")[0])
    prefixes = tuple(name for name in documented if name.endswith("_"))
    patterns = {name.replace("KIND", r"[a-z_]+").replace("N", r"\d+") for name in documented if not name.endswith("_")}
    unknown = [
        name for name in names if not name.startswith(prefixes) and not any(re.fullmatch(p, name) for p in patterns)
    ]
    assert unknown == []
    columns = {name for name in documented if name.islower() and not name.endswith("_")} - {"natural", "log1p"}
    assert columns <= set(names)


def test_every_entry_of_the_vocabulary_is_used_once_and_explained() -> None:
    for table in (vocabulary.NODE_KINDS, vocabulary.EDGE_KINDS, [entry.name for entry in vocabulary.NODE_FEATURES]):
        assert len(set(table)) == len(table)
    for entry in vocabulary.NODE_FEATURES:
        assert entry.unit == "flag" or re.fullmatch(r"log1p\(.+\)", entry.unit)
        assert len(entry.meaning) > 10
