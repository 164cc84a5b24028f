"""Predictions that are kept without their model."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.evaluation.recorded_predictions import Recorded, read_recorded, write_recorded

ROW = Recorded("trees", {"seed": 3, "config": {"model": {"width": 2}}}, "rank", 4.5, np.array([0.1, -2.0, 3e-300]))


@given(predictions=arrays(np.float64, st.integers(0, 40), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_every_bit_comes_back(tmp_path_factory: pytest.TempPathFactory, predictions: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("recorded") / "folder/random@3.parquet"
    rows = [dataclasses.replace(ROW, predictions=predictions), dataclasses.replace(ROW, label="others")]
    write_recorded(path, rows)
    read = read_recorded(path)
    for row, other in zip(rows, read, strict=True):
        assert dataclasses.replace(row, predictions=0) == dataclasses.replace(other, predictions=0)
        assert row.predictions.tobytes() == other.predictions.tobytes()
    before = path.read_bytes()
    write_recorded(path, read)
    assert path.read_bytes() == before


def test_single_precision_takes_half_the_room(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=10_000)
    for name, predictions in (("double", values), ("single", values.astype(np.float32).astype(np.float64))):
        write_recorded(tmp_path / name, [dataclasses.replace(ROW, predictions=predictions)])
    assert (tmp_path / "single").stat().st_size < 0.6 * (tmp_path / "double").stat().st_size


def test_what_is_no_such_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "random@0.parquet"
    with pytest.raises(MissingInputError, match=r"no recorded predictions in .*random@0.parquet"):
        read_recorded(path)
    write_recorded(path, [ROW])
    whole = path.read_bytes()
    for torn in (b"", whole[: len(whole) // 2], whole[:40] + bytes([whole[40] ^ 255]) + whole[41:]):
        path.write_bytes(torn)
        with pytest.raises(MalformedDataError, match=r"random@0.parquet: no recorded predictions can be read"):
            read_recorded(path)
    pq.write_table(pa.table({"label": ["a"]}), path)
    with pytest.raises(MalformedDataError, match="it has other columns, or another version"):
        read_recorded(path)
