"""What a folder was begun with: whoever goes on in it must ask for the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelcast.errors import MalformedDataError, MeasurementError
from kernelcast.files import read_json, storage_errors, write_json
from kernelcast.measurement.settings import TimingSettings


def agree(path: Path, settled: Mapping[str, Any], why: str) -> None:
    """Notes what a new folder is begun with, or makes sure that it is the same as it was.

    Args:
        path: the file that says it; its folder is made where there is none.
        settled: values by the key under which a user sets them.
        why: what is wrong with another value, as part of the error.

    Raises:
        MeasurementError: a value is another one; names the key.
        MalformedDataError: the file is not what this function writes.
        StorageError: the disk refused.
    """
    # as it will be read back: tuples become lists
    now = json.loads(json.dumps(settled))
    if not path.exists():
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, now)
        return
    before = read_json(path, "tune")
    if not isinstance(before, dict):
        raise MalformedDataError(
            f"{path} is not what `tune` writes; move its folder away and run the same command again"
        )
    for key in sorted(now.keys() | before.keys()):
        if before.get(key) != now.get(key):
            raise MeasurementError(
                f"{path.parent} was begun with {key} = {before.get(key)!r}, this run has {now.get(key)!r}: {why}; "
                "set it back, move the folder away, or set another one"
            )


def described_timing(timing: TimingSettings) -> dict[str, Any]:
    """The settings that recorded times depend on, by key."""
    return {f"runner.timing.{name}": value for name, value in timing.as_dict().items()}
