"""What a trained model predicted for the test programs of its split, kept without the model.

Stands in for a model that is no longer there: its figures can be reckoned again, next to those of models trained since.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float64

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.files import atomic_file

RECORDED_FILE = "predictions.parquet"
"""In the folder of a training, where its model would be."""

RECORDED_SCHEMA = pa.schema(
    [
        # the row of the experiment's table
        pa.field("label", pa.string(), nullable=False),
        # `training.json`, of the configuration what decides
        pa.field("training", pa.string(), nullable=False),
        # a `PredictionKind`
        pa.field("kind", pa.string(), nullable=False),
        # of one prediction, per program
        pa.field("predict_microseconds", pa.float64(), nullable=False),
        # in the order of the test programs of the split
        pa.field("predictions", pa.list_(pa.field("element", pa.float64(), nullable=False)), nullable=False),
    ],
    metadata={"kernelcast.recorded_predictions": "1"},
)
"""One row a training. The number is the version of the file."""


def is_recorded(directory: Path) -> bool:
    """Whether the folder of a training has predictions in the place of its model."""
    return (directory / RECORDED_FILE).is_file() and not (directory / "model").exists()


@dataclass(frozen=True)
class Recorded:
    """One training and what its model predicted.

    Attributes:
        label: the row of the table.
        training: the content of `training.json`.
        kind: a `PredictionKind`.
        predict_microseconds: of one prediction, per program.
        predictions: in the order of the test programs of the split.
    """

    label: str
    training: dict[str, Any]
    kind: str
    predict_microseconds: float
    predictions: Float64[np.ndarray, "programs"]


def write_recorded(path: Path, rows: Sequence[Recorded]) -> None:
    """Writes the file, whole or not at all; equal rows make an equal file."""
    table = pa.Table.from_pydict(
        {
            "label": [row.label for row in rows],
            "training": [json.dumps(row.training, sort_keys=True) for row in rows],
            "kind": [row.kind for row in rows],
            "predict_microseconds": [row.predict_microseconds for row in rows],
            "predictions": [row.predictions for row in rows],
        },
        schema=RECORDED_SCHEMA,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        # networks predict in single precision: half of the bytes of each number are zero, and lie together this way
        leaf = ["predictions.list.element"]
        texts = [name for name in RECORDED_SCHEMA.names if RECORDED_SCHEMA.field(name).type == pa.string()]
        pq.write_table(
            table, temporary, compression="zstd", compression_level=19, use_dictionary=texts,
            use_byte_stream_split=leaf, write_page_checksum=True,
        )  # fmt: skip


def read_recorded(path: Path) -> list[Recorded]:
    """Reads what `write_recorded` wrote.

    Raises:
        MissingInputError: it is not there.
        MalformedDataError: it is torn or of another version.
    """
    if not path.is_file():
        raise MissingInputError(f"there are no recorded predictions in {path}; train the models")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as stored:
            table = stored.read()
        if not table.schema.equals(RECORDED_SCHEMA, check_metadata=True):
            raise ValueError("it has other columns, or another version")
        return [
            Recorded(
                row["label"],
                json.loads(row["training"]),
                row["kind"],
                row["predict_microseconds"],
                np.array(row["predictions"], dtype=np.float64),
            )
            for row in table.to_pylist()
        ]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise MalformedDataError(
            f"{path}: no recorded predictions can be read ({error}); remove the file and train the models"
        ) from error
