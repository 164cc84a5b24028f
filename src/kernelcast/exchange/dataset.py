"""Measurements as a small folder to be shipped: all rows and raw repeats, packed, with a datasheet beside them.

`graphs` and all other readers take such a folder as they take the one that `measure` writes; `measure` goes on with a
copy of it, on a machine of the same kind.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kernelcast.files import atomic_file, write_json
from kernelcast.records import (
    CAMPAIGN_FILE,
    MEASUREMENTS_FILE,
    WORKLOADS_PACKED_FILE,
    Measurements,
    pack_workloads,
)

DATASHEET_FILE = "DATASHEET.md"
DATASET_FILES = (CAMPAIGN_FILE, MEASUREMENTS_FILE, WORKLOADS_PACKED_FILE, DATASHEET_FILE)
"""All that such a folder holds."""

COMPRESSION_LEVEL = 19
"""Of zstandard; written once, read often."""

TEXTS = ("trace", "message")
"""Columns in which every value is another text: a dictionary of them only takes space."""


def write_dataset(measurements: Measurements, folder: Path, datasheet: str) -> int:
    """Writes the four files into an existing folder.

    Rows are sorted by workload and time of the try, so that neighbours resemble each other and pack well.

    Returns:
        How many rows were written.
    """
    table = measurements.table.sort_by([("workload_key", "ascending"), ("finished_at", "ascending")])
    coded = [name for name in table.column_names if pa.types.is_string(table.schema.field(name).type)]
    pq.write_table(
        table,
        folder / MEASUREMENTS_FILE,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        write_page_checksum=True,
        row_group_size=len(table),
        use_dictionary=[name for name in coded if name not in TEXTS],
    )
    pq.write_table(
        pack_workloads(measurements.workloads.values()),
        folder / WORKLOADS_PACKED_FILE,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        write_page_checksum=True,
    )
    write_json(folder / CAMPAIGN_FILE, dataclasses.asdict(measurements.campaign))
    with atomic_file(folder / DATASHEET_FILE) as temporary:
        temporary.write_text(datasheet)
    return int(table.num_rows)
