"""What a model says of programs, as a table."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float64, Int64

from kernelcast.errors import ConfigError, StorageError
from kernelcast.files import atomic_file, require_writable
from kernelcast.models.protocol import PredictionKind
from kernelcast.prediction.subjects import Subject

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = pa.schema(
    [
        pa.field("workload", pa.string(), metadata={"meaning": "what the program computes"}),
        pa.field("rank", pa.int64(), metadata={"meaning": "place among the programs of its workload, 1 the fastest"}),
        pa.field("program_key", pa.string(), metadata={"meaning": "structural hash of the program, or of its trace"}),
        pa.field("origin", pa.string(), metadata={"meaning": "given, drawn at random, or recorded"}),
        pa.field("predicted_microseconds", pa.float64(), metadata={"meaning": "empty where the model only ranks"}),
        pa.field("ratio_to_best", pa.float64(), metadata={"meaning": "predicted time over the workload's least one"}),
        pa.field("measured_microseconds", pa.float64(), metadata={"meaning": "empty where nobody measured"}),
        pa.field("weight", pa.int64(), metadata={"meaning": "how often the network runs it"}),
        pa.field("prediction", pa.float64(), metadata={"meaning": "ln(seconds), or a rank score; lower is faster"}),
        pa.field("fault", pa.string(), metadata={"meaning": "why there is no prediction; empty where there is"}),
        pa.field("target", pa.string(), metadata={"meaning": "what it is compiled for, as JSON"}),
        pa.field("trace", pa.string(), metadata={"meaning": "schedule trace as JSON; empty where it is not known"}),
    ]
)
"""The table of predictions: one row a program."""

LARGEST = 600.0
"""ln(seconds) beyond which there is no number of microseconds."""

CSV_COLUMNS = [name for name in SCHEMA.names if name != "trace"]


@dataclass(frozen=True)
class Answer:
    """Predictions of programs, in the order in which these were given or drawn.

    Attributes:
        subjects: the programs.
        predicted: one number each, lower is faster; infinite where there is none.
        faults: why there is none; empty where there is one.
        kind: what the numbers mean.
        slope: what a unit of them is in ln(seconds) within a workload, as far as the model's validation tells.
        target: what the programs are compiled for.
        typical_factor: that half of the times were within in the model's validation; None where nobody knows.
    """

    subjects: tuple[Subject, ...]
    predicted: Float64[np.ndarray, " programs"]
    faults: tuple[str, ...]
    kind: PredictionKind
    slope: float
    target: Mapping[str, Any]
    typical_factor: float | None = None

    @property
    def times(self) -> bool:
        """Whether the numbers are times, and not only an order within each workload."""
        return self.kind is PredictionKind.LOG_SECONDS

    @cached_property
    def groups(self) -> dict[tuple[str, str], Int64[np.ndarray, " rows"]]:
        """Rows of each workload on each target, the fastest first; those without a prediction are last.

        By what `Subject.group` says and the target as JSON: times of two targets say nothing about each other.
        """
        rows: dict[tuple[str, str], list[int]] = {}
        for row, subject in enumerate(self.subjects):
            rows.setdefault((subject.group, self.target_of(subject)), []).append(row)
        return {key: np.array(found)[np.argsort(self.predicted[found], kind="stable")] for key, found in rows.items()}

    def target_of(self, subject: Subject) -> str:
        """What a program is compiled for, as JSON."""
        return json.dumps(dict(subject.target or self.target), sort_keys=True)

    @cached_property
    def targets(self) -> list[dict[str, Any]]:
        """What the programs are for, each once."""
        return [json.loads(text) for text in dict.fromkeys(target for _, target in self.groups)]

    @cached_property
    def microseconds(self) -> Float64[np.ndarray, " programs"]:
        """Predicted times; NaN where the model only ranks or there is no prediction."""
        if not self.times:
            return np.full(len(self.subjects), np.nan)
        return np.where(np.isfinite(self.predicted), 1e6 * np.exp(np.minimum(self.predicted, LARGEST)), np.nan)

    @cached_property
    def measured_microseconds(self) -> Float64[np.ndarray, " programs"]:
        """Measured times; NaN where nobody measured."""
        return np.array(
            [np.nan if one.measured_seconds is None else 1e6 * one.measured_seconds for one in self.subjects]
        )

    @cached_property
    def ratios(self) -> Float64[np.ndarray, " programs"]:
        r"""Predicted time over that of the fastest program of the workload; NaN where there is no prediction.

        With predictions p, s = 1 for times and `slope` for an order::

            ratio_i = exp(s * (p_i - min p))
        """
        ratios = np.full(len(self.subjects), np.nan)
        scale = 1.0 if self.times else self.slope
        for rows in self.groups.values():
            known = rows[np.isfinite(self.predicted[rows])]
            if len(known):
                ratios[known] = np.exp(scale * (self.predicted[known] - self.predicted[known[0]]))
        return ratios

    @cached_property
    def ranks(self) -> dict[int, int]:
        """Place of each row within its workload, from 1; equal predictions share the better place."""
        places: dict[int, int] = {}
        for rows in self.groups.values():
            for place, row in enumerate(rows.tolist()):
                if not np.isfinite(self.predicted[row]):
                    continue
                before = rows[place - 1] if place else None
                same = before is not None and self.predicted[before] == self.predicted[row]
                places[row] = places[int(before)] if same and before is not None else place + 1
        return places

    def table(self, ranked: bool = False) -> pa.Table:
        """The columns of `SCHEMA`; a row a program, in order, or workload by workload, the fastest first."""
        order = np.concatenate(list(self.groups.values())) if ranked and self.groups else np.arange(len(self.subjects))

        def known(values: Float64[np.ndarray, " programs"]) -> list[float | None]:
            return [float(values[row]) if np.isfinite(values[row]) else None for row in order]

        subjects = [self.subjects[row] for row in order]
        return pa.table(
            [
                [one.workload.name for one in subjects],
                [self.ranks.get(int(row)) for row in order],
                [one.program_key for one in subjects],
                [one.origin.value for one in subjects],
                known(self.microseconds),
                known(self.ratios),
                known(self.measured_microseconds),
                [max(sum(one.workload.networks.values()), 1) for one in subjects],
                known(self.predicted),
                [self.faults[row] for row in order],
                [self.target_of(one) for one in subjects],
                [one.trace for one in subjects],
            ],
            schema=SCHEMA,
        )

    def frame(self) -> pd.DataFrame:
        """`table` as a pandas DataFrame; its `attrs` have the kind of the predictions, their unit and the target."""
        frame = self.table().to_pandas()
        unit = "ln(seconds)" if self.times else "a rank score without unit, comparable within a workload"
        frame.attrs.update({"kind": self.kind.value, "unit": unit, "target": dict(self.target)})
        return frame


def check_output(path: Path) -> None:
    """Makes sure, before any work, that predictions can be written to a file.

    Raises:
        ConfigError: its ending is neither `.csv` nor `.parquet`.
        StorageError: something else than earlier predictions is there, or the disk refuses.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"output={path}: its ending says how it is written; it must be .csv or .parquet")
    if path.exists() and not _is_prediction(path):
        raise StorageError(f"output={path} is there and holds no predictions, so it stays as it is; name another file")
    require_writable(path)


def write_output(answer: Answer, path: Path) -> None:
    """Writes the table, workload by workload, the fastest program first, as CSV or Parquet by the file's ending.

    Traces are kilobytes of JSON each, and go into Parquet alone.
    """
    table = answer.table(ranked=True)
    with atomic_file(path) as temporary:
        if path.suffix == ".parquet":
            pq.write_table(table, temporary, compression="zstd")
            return
        with temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, CSV_COLUMNS)
            writer.writeheader()
            for row in table.select(CSV_COLUMNS).to_pylist():
                writer.writerow({name: "" if value is None else value for name, value in row.items()})


def _is_prediction(path: Path) -> bool:
    if not path.is_file():
        return False
    if path.suffix == ".csv":
        with path.open("rb") as stream:
            return stream.readline().strip() == ",".join(CSV_COLUMNS).encode()
    try:
        return pq.read_schema(path).names == SCHEMA.names
    except (pa.ArrowException, OSError):
        return False
