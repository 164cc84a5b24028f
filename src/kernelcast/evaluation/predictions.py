"""The predictions of every model as one Parquet file, for the report and for anyone's own questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
        # of the training
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("program_key", pa.string(), nullable=False),
        pa.field("workload", pa.string(), nullable=False),
        # natural logarithm of the measured seconds
        pa.field("log_seconds", pa.float64(), nullable=False),
        # log seconds or a rank score, as the model's `kind` says; lower is faster
        pa.field("prediction", pa.float64(), nullable=False),
    ]
)
"""One row a split, model, seed and test program."""


def prediction_table(
    split: str, model: str, programs: Programs, predicted: Float64[np.ndarray, "programs"], seed: int = 0
) -> pa.Table:
    """The predictions of one model and seed on one split."""
    names = np.asarray(programs.workload_names, dtype=object)
    columns = [
        pa.repeat(pa.scalar(split, pa.string()), len(programs)),
        pa.repeat(pa.scalar(model, pa.string()), len(programs)),
        pa.repeat(pa.scalar(seed, pa.int64()), len(programs)),
        pa.array([str(key) for key in programs.program_key], pa.string()),
        pa.array(names[programs.workload], pa.string()),
        pa.array(programs.log_seconds),
        pa.array(predicted),
    ]
    return pa.Table.from_arrays(columns, schema=PREDICTION_SCHEMA)


def predictions_of(predictions: pa.Table, split: str, model: str, seed: int | None = None) -> pa.Table:
    """The rows of one model on one split: of all its seeds, or of one."""
    chosen = pc.and_(pc.equal(predictions["split"], split), pc.equal(predictions["model"], model))
    if seed is not None:
        chosen = pc.and_(chosen, pc.equal(predictions["seed"], seed))
    return predictions.filter(chosen)


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
