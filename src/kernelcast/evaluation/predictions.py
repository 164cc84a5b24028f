"""The predictions of every model as one Parquet file, for the report and for anyone's own questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float64

from kernelcast.errors import MalformedDataError
from kernelcast.files import atomic_file, require

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs

PREDICTIONS_FILE = "predictions.parquet"

PREDICTION_SCHEMA = pa.schema(
    [
        pa.field("split", pa.string(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("program_key", pa.string(), nullable=False),
        pa.field("workload", pa.string(), nullable=False),
        # natural logarithm of the measured seconds
        pa.field("log_seconds", pa.float64(), nullable=False),
        # log seconds or a rank score, as the model's `kind` says; lower is faster
        pa.field("prediction", pa.float64(), nullable=False),
    ]
)
"""One row a split, model and test program."""


def prediction_table(
    split: str, model: str, programs: Programs, predicted: Float64[np.ndarray, "programs"]
) -> pa.Table:
    """The predictions of one model on one split."""
    names = np.asarray(programs.workload_names, dtype=object)
    columns = [
        pa.array([split] * len(programs), pa.string()),
        pa.array([model] * len(programs), pa.string()),
        pa.array([str(key) for key in programs.program_key], pa.string()),
        pa.array(names[programs.workload], pa.string()),
        pa.array(programs.log_seconds),
        pa.array(predicted),
    ]
    return pa.Table.from_arrays(columns, schema=PREDICTION_SCHEMA)


def write_predictions(directory: Path, predictions: pa.Table) -> None:
    """Writes the predictions of all models."""
    with atomic_file(directory / PREDICTIONS_FILE) as temporary:
        pq.write_table(predictions, temporary, compression="zstd")


def read_predictions(directory: Path) -> pa.Table:
    """Reads the predictions of all models.

    Raises:
        MissingInputError: `evaluate` has not run.
        MalformedDataError: the file is torn or has other columns.
    """
    path = directory / PREDICTIONS_FILE
    require(path, "evaluate")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise MalformedDataError(f"{path} cannot be read ({error}); run `dvc repro -f -s evaluate`") from error
    if not table.schema.equals(PREDICTION_SCHEMA):
        raise MalformedDataError(f"{path} has other columns than expected; run `dvc repro -f -s evaluate`")
    return table
