import csv
import io
from pathlib import Path

import pandas as pd

from kernelcast.exchange.csv_table import COLUMNS, write_csv
from kernelcast.records import Measurements


def test_one_row_a_program(measurements: Measurements, tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    rows = measurements.table.to_pylist()
    assert write_csv(measurements, path) == len(rows)
    table = pd.read_csv(path, dtype={"program_key": str, "workload_key": str}, keep_default_na=True)
    assert tuple(table.columns) == COLUMNS
    for column in ("program_key", "workload_key", "workload_name", "outcome", "target", "device", "origin", "checked"):
        assert table[column].tolist() == [row[column] for row in rows]
    measured = table[table["outcome"] == "measured"]
    times = [row["run_seconds"][:3] for row in rows if row["outcome"] == "measured"]
    assert measured["minimum_seconds"].tolist() == [min(seconds) for seconds in times]
    assert measured["median_seconds"].tolist() == [sorted(seconds)[1] for seconds in times]
    assert set(measured["repeats"]) == {3}
    failed = table[table["outcome"] != "measured"]
    assert failed["minimum_seconds"].isna().all()
    assert failed["message"].tolist() == ["signal 11", "60 s", 'off by "2", at 3']


def test_lines_end_as_rfc_4180_says(measurements: Measurements, tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    write_csv(measurements, path)
    content = path.read_bytes().decode("ascii")
    assert content.endswith("\r\n")
    assert content.count("\r\n") == content.count("\n") == measurements.table.num_rows + 1
    # a comma and quotes inside of a field
    assert '"off by ""2"", at 3"' in content
    assert {len(row) for row in csv.reader(io.StringIO(content, newline=""), strict=True)} == {len(COLUMNS)}
