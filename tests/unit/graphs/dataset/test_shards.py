"""Views in shards are the views in memory, whatever the shards are."""

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.graphs.dataset import shards
from kernelcast.graphs.dataset.shards import (
    StoredView,
    read_shard_info,
    shard_hash,
    shard_jobs,
    write_shard,
)
from kernelcast.graphs.ragged import PROGRAM, View, offset_name
from kernelcast.graphs.views import VIEW_TYPES

WIDE = {"node_features": 3, "kernel_features": 2, "values": 4}


def random_view(kind: type[View], lengths: dict[str, list[int]], seed: int) -> View:
    """A view with `lengths` rows of each program along each axis, filled at random."""
    random = np.random.default_rng(seed)
    values: dict = {name: tuple(f"{name}{i}" for i in range(2)) for name in kind.column_names()}
    count = len(next(iter(lengths.values())))
    for axis in kind.ragged_axes():
        values[offset_name(axis)] = np.concatenate([[0], np.cumsum(lengths[axis])]).astype(np.int64)
    for name, axis in kind.array_axes().items():
        rows = count if axis == PROGRAM else sum(lengths[axis])
        shape = (rows, WIDE[name]) if name in WIDE else (rows,)
        values[name] = random.integers(0, 100, shape).astype(np.float32 if name in WIDE else np.int32)
    return kind(**values)


def stored(folder: Path, name: str, view: View, cuts: list[int]) -> StoredView:
    """The view written in shards that end at `cuts`, opened again."""
    folders, contents, sizes = [], [], []
    for number, (start, end) in enumerate(pairwise([0, *cuts])):
        rows = np.arange(start, end, dtype=np.int64)
        folders.append(folder / f"{number}")
        write_shard(folders[-1], "made", {name: view.select(rows)}, rows - start)
        info = read_shard_info(folders[-1])
        contents.append(info.content)
        sizes.append(info.programs)
    return StoredView(name, folders, contents, sizes, view.columns())


def assert_same(found: View, expected: View) -> None:
    assert type(found) is type(expected)
    for name, value in vars(expected).items():
        other = getattr(found, name)
        if isinstance(value, np.ndarray):
            assert other.dtype == value.dtype
        np.testing.assert_array_equal(other, value, err_msg=name)


@given(
    name=st.sampled_from(sorted(VIEW_TYPES)),
    programs=st.integers(1, 9),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_of_shards_are_the_rows_in_memory(
    tmp_path_factory: pytest.TempPathFactory, name: str, programs: int, seed: int, data: st.DataObject
) -> None:
    kind = VIEW_TYPES[name]
    random = np.random.default_rng(seed)
    # programs without a row among them
    lengths = {axis: random.integers(0, 4, programs).tolist() for axis in kind.ragged_axes() or ("none",)}
    view = random_view(kind, lengths, seed)
    inner = data.draw(st.sets(st.integers(1, programs - 1), max_size=3)) if programs > 1 else set()
    source = stored(tmp_path_factory.mktemp("shards"), name, view, [*sorted(inner), programs])
    rows = np.array(data.draw(st.lists(st.integers(0, programs - 1), max_size=12)), dtype=np.int64)
    assert len(source) == programs
    assert source.columns() == view.columns()
    assert_same(source.select(rows), view.select(rows))
    for axis in kind.ragged_axes():
        np.testing.assert_array_equal(source.counts(axis), view.counts(axis))


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    view = random_view(VIEW_TYPES["statements"], {"row": [2, 0, 3]}, seed=0)
    write_shard(tmp_path / "s", "of this", {"statements": view}, np.array([0, 2, 3]))
    return tmp_path / "s"


def test_a_shard_says_what_it_is(shard: Path) -> None:
    info = read_shard_info(shard)
    assert (info.name, info.made_of, info.programs) == ("s", "of this", 3)
    assert info.columns == {"statements": {"names": ("names0", "names1")}}
    assert info.content == shard_hash(shard)
    assert shard_jobs(shard).tolist() == [0, 2, 3]


@pytest.mark.parametrize("cut", [1, 30])
def test_a_torn_array_is_named_when_the_shard_is_opened(shard: Path, cut: int) -> None:
    source = StoredView("statements", [shard], [read_shard_info(shard).content], [3], {"names": ("names0", "names1")})
    path = shard / "statements.values.npy"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(MalformedDataError, match=r"statements\.values\.npy has \d+ bytes.*dvc repro graphs"):
        source.select(np.array([0]))


def test_a_missing_array_is_named(shard: Path) -> None:
    (shard / "statements.row_offset.npy").unlink()
    with pytest.raises(MissingInputError, match=r"row_offset\.npy"):
        read_shard_info(shard)


def test_a_shard_of_other_data_is_refused(shard: Path) -> None:
    source = StoredView("statements", [shard], ["another"], [3], {"names": ("names0", "names1")})
    with pytest.raises(MalformedDataError, match="shard of other data"):
        source.select(np.array([0]))


def test_another_version_is_refused(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_VERSION", 99)
    with pytest.raises(MalformedDataError, match="no shard of version 99"):
        read_shard_info(shard)


def test_few_shards_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "OPEN_SHARDS", 2)
    view = random_view(VIEW_TYPES["trace"], {"step": [1, 2, 3, 4, 5]}, seed=1)
    source = stored(tmp_path, "trace", view, [1, 2, 3, 4, 5])
    assert_same(source.select(np.array([4, 0, 2, 1, 3])), view.select(np.array([4, 0, 2, 1, 3])))
    assert len(source._open) == 2


def test_what_goes_to_another_process_is_where_the_shards_are(tmp_path: Path) -> None:
    view = random_view(VIEW_TYPES["trace"], {"step": [200] * 20}, seed=1)
    source = stored(tmp_path, "trace", view, [10, 20])
    closed = len(pickle.dumps(source))
    rows = np.arange(20)
    assert_same(source.select(rows), view)
    sent = pickle.dumps(source)
    assert len(sent) == closed
    assert_same(pickle.loads(sent).select(rows), view)
