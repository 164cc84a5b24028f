"""The stage `export`: finished measurements in the format of another tool, or packed to be shipped."""

from __future__ import annotations

import logging
from fnmatch import fnmatch
from pathlib import Path

from omegaconf import DictConfig

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.stages.config import ExportFormat

logger = logging.getLogger(__name__)


def export(config: DictConfig) -> None:
    """Writes the measurements of `config` (schema `ExportConfig`), whole or not at all.

    Raises:
        ConfigError: the output exists, and is not to be replaced or is no earlier export.
        MissingInputError: the measurements are not there.
        MalformedDataError: they are not what `measure` writes.
    """
    from kernelcast.evaluation.datasheet import datasheet
    from kernelcast.exchange.csv_table import write_csv
    from kernelcast.exchange.dataset import DATASET_FILES, write_dataset
    from kernelcast.exchange.metaschedule import DATABASE_FILES, write_database
    from kernelcast.exchange.t4 import METADATA_FILE, RESULTS_SUFFIX, write_t4
    from kernelcast.files import atomic_directory, atomic_file
    from kernelcast.records import read_measurements

    output = output_of(config)
    if config.format is ExportFormat.csv:
        check_free_file(output, config.overwrite)
    elif config.format is ExportFormat.t4:
        check_free_folder(output, config.overwrite, (METADATA_FILE, f"*{RESULTS_SUFFIX}"))
    else:
        written = DATASET_FILES if config.format is ExportFormat.dataset else DATABASE_FILES
        check_free_folder(output, config.overwrite, written)
    measurements = read_measurements(Path(config.paths.measurements))
    if config.format is ExportFormat.csv:
        with atomic_file(output) as temporary:
            said = f"{write_csv(measurements, temporary)} programs"
    elif config.format is ExportFormat.t4:
        with atomic_directory(output) as folder:
            counts = write_t4(measurements, folder, config.times)
        said = f"{sum(counts.values())} programs of {len(counts)} search spaces"
    elif config.format is ExportFormat.dataset:
        with atomic_directory(output) as folder:
            said = f"{write_dataset(measurements, folder, datasheet(measurements, output.name))} programs"
    else:
        with atomic_directory(output) as folder:
            outcomes = write_database(measurements, folder, config.times)
        said = f"{outcomes['measured']} measured and {outcomes['failed']} failed programs"
    logger.info("exported %s: %s", said, output)


def output_of(config: DictConfig) -> Path:
    """Where the export goes: `output` from the current folder, or a place below `data/export`."""
    if config.output is not None:
        if not config.output.strip():
            raise ConfigError("output is empty; name a folder or file, or leave it out for one in data/export")
        return Path(config.output)
    name = "measurements.csv" if config.format is ExportFormat.csv else config.format.value
    return Path(config.paths.root, "data", "export", name)


def check_free_file(path: Path, overwrite: bool) -> None:
    """Makes sure that `path` may be written.

    Raises:
        ConfigError: it is there and not to be replaced, or is no file.
    """
    if path.is_dir():
        raise ConfigError(f"output={path} is a folder; name a file, for example output={path / 'measurements.csv'}")
    if path.exists() and not path.is_file():
        # a device would be replaced by a file
        raise ConfigError(f"output={path} is neither a file nor a free name; name a file")
    if path.exists() and not overwrite:
        raise taken("output", path)


def check_free_folder(path: Path, overwrite: bool, written: tuple[str, ...]) -> None:
    """Makes sure that the folder `path` may be written, and that replacing it loses nothing but an earlier export.

    Args:
        path: the folder.
        overwrite: whether an earlier export is to be replaced.
        written: patterns of the names that an export of this format has.

    Raises:
        ConfigError: it is there and not to be replaced, or holds something else.
    """
    if not path.exists():
        return
    if not path.is_dir():
        raise ConfigError(f"output={path} is a file; name a folder")
    inside = sorted(entry.name for entry in path.iterdir())
    foreign = [name for name in inside if not any(fnmatch(name, pattern) for pattern in written)]
    if foreign:
        raise ConfigError(f"output={path} holds {foreign[0]}, which is no part of such an export; name another folder")
    if inside and not overwrite:
        raise taken("output", path)


def taken(key: str, path: Path) -> KernelcastError:
    """The error about an output that is there already."""
    return ConfigError(f"{path} exists; set overwrite=true to replace it, or another {key}=...")
