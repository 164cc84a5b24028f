"""Which trials a comparison of tunings is about: those of a folder, and those that were published before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from omegaconf import DictConfig

from kernelcast.errors import ConfigError, MissingInputError
from kernelcast.files import read_json
from kernelcast.trials import TRIALS_SCHEMA, TUNING_FILE, finished_tunings, read_trials

if TYPE_CHECKING:
    import pyarrow as pa

TUNING_COLUMNS = ("method", "seed", "network", "workload_key")
"""Tell one tuning of a workload from all others."""


def compared_trials(config: DictConfig) -> pa.Table:
    """The rows of the tunings that `config` (schema `CompareConfig`) asks for.

    A tuning that was published and is also in the folder counts as it is in the folder.

    Raises:
        ConfigError: a name in `only` or a number in `seeds` that no tuning has, or what was published was measured on
            another processor than the tunings of the folder.
        MissingInputError: there is no finished tuning, or nothing was published under that name.
    """
    import pyarrow as pa

    folder = Path(config.paths.tuning)
    tables = [read_trials(path) for path in finished_tunings(folder)]
    if config.published is not None:
        tables.append(_published(config, folder, tables))
    trials = pa.concat_tables([TRIALS_SCHEMA.empty_table(), *tables])
    if not len(trials):
        raise MissingInputError(f"no finished tuning in {folder}; run `python scripts/tune.py workload=NAME` first")
    names = np.array([network or name for network, name in _rows(trials, ("network", "workload_name"))], dtype=object)
    kept = _chosen("only", config.only, names) & _chosen("seeds", config.seeds, trials["seed"].to_numpy())
    if not kept.any():
        raise ConfigError(
            f"only={','.join(config.only)} seeds={list(config.seeds)}: there are finished tunings of the names and of "
            "the seeds, but none of both"
        )
    return trials.filter(pa.array(kept))


def _published(config: DictConfig, folder: Path, own: Sequence[pa.Table]) -> pa.Table:
    """The trials of a published comparison, without the tunings that `own` has."""
    import pyarrow as pa

    from kernelcast.evaluation.tuning_record import published_trials_file, read_tuning_record
    from kernelcast.stages.results import TUNING_RECORDS

    records = Path(config.paths.root, TUNING_RECORDS)
    measured_on = read_tuning_record(records, config.published).measured_on
    if others := processors(folder) - {measured_on}:
        raise ConfigError(
            f"published={config.published}: was measured on {measured_on}, tunings in {folder} on "
            f"{'; '.join(sorted(others))}; times of two machines cannot be compared: tune all on one"
        )
    kept = published_trials_file(records, config.published)
    if not kept.is_file():
        raise MissingInputError(f"published={config.published}: {kept} is not there; publish its tunings again")
    trials = read_trials(kept)
    known = {row for table in own for row in _rows(table, TUNING_COLUMNS)}
    return trials.filter(pa.array([row not in known for row in _rows(trials, TUNING_COLUMNS)], pa.bool_()))


def processors(folder: Path, subjects: Iterable[str] | None = None) -> set[str]:
    """What the finished tunings in `folder` were measured on: of `subjects` alone, or of all."""
    from kernelcast.stages.experiment_record import without_flags

    return {
        without_flags(read_json(path.parent / TUNING_FILE, "tune")["host.cpu"])
        for path in finished_tunings(folder)
        if subjects is None or path.parent.parent.name in subjects
    }


def _rows(trials: pa.Table, columns: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(trials[name].to_pylist() for name in columns), strict=True))


def _chosen(key: str, asked: Sequence[object], values: np.ndarray) -> np.ndarray:
    """Which rows have one of the values `asked`; all where none is.

    Raises:
        ConfigError: no row has one of them.
    """
    if not asked:
        return np.ones(len(values), dtype=np.bool_)
    known = dict.fromkeys(values.tolist())
    if unknown := [value for value in asked if value not in known]:
        raise ConfigError(
            f"{key}={','.join(map(str, asked))}: there is no finished tuning of {', '.join(map(str, unknown))}, only "
            f"of {', '.join(sorted(map(str, known)))}"
        )
    return np.array([value in asked for value in values.tolist()], dtype=np.bool_)
