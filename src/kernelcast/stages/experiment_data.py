"""The measurements and graphs of an experiment; what is up to date is not made again."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict

from kernelcast.errors import ConfigError
from kernelcast.files import atomic_directory, json_hash, read_json, write_json
from kernelcast.stages.composing import composed
from kernelcast.stages.experiment_plan import FOLDER, Plan, Variant, graphs_config

if TYPE_CHECKING:
    from kernelcast.graphs.dataset.selection import Folder

logger = logging.getLogger(__name__)

STORES = "stores"
"""Graphs without splits that all experiments share, one folder for what they were made of; it may be removed."""


def measurement_folders(config: DictConfig, plan: Plan) -> list[Path]:
    """The folders of measurements of an experiment; imports its database first, if it has one.

    Raises:
        ConfigError: it names neither.
        MissingInputError: the database is not there.
    """
    folders = [Path(config.paths.root, folder) for folder in config.measurements]
    if config.database is not None:
        folders.append(_imported(config, plan))
    if not folders:
        raise ConfigError(f"experiment {plan.name}: name its measurements, or a database")
    return folders


def _imported(config: DictConfig, plan: Plan) -> Path:
    from kernelcast.exchange.database import database_file
    from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS
    from kernelcast.records import MEASUREMENTS_FILE
    from kernelcast.stages.importing import import_

    source = Path(config.paths.root, config.database.source)
    folder, note = plan.folder / "measurements", plan.folder / "measurements.json"
    digest = hashlib.sha256(OmegaConf.to_yaml(config.database).encode())
    for name in (DATABASE_WORKLOADS, DATABASE_RECORDS):
        digest.update(database_file(source, name).read_bytes())
    made_of = {"database": digest.hexdigest()[:16]}
    if (folder / MEASUREMENTS_FILE).is_file() and note.is_file() and read_json(note, "import") == made_of:
        return folder
    imported = composed("import", [], config)
    imported.source, imported.target, imported.overwrite = str(source), config.database.target, True
    imported.paths.measurements = str(folder)
    import_(imported)
    write_json(note, made_of)
    return folder


def make_graphs(config: DictConfig, plan: Plan, folders: list[Path]) -> None:
    """Makes the graphs of all variants, with the splits of the experiment.

    Raises:
        ConfigError: programs that cannot be split so.
        MissingInputError: the measurements are not there.
    """
    from kernelcast.stages.graphs import read_folders

    measured = read_folders(folders)
    for variant in plan.variants.values():
        asked = graphs_config(variant, plan.splits, config)
        asked.measurements = [str(folder) for folder in folders]
        _write_variant(variant, _shared_store(asked, measured, Path(config.paths.root)), asked, measured)
    check_same_tests(plan)


def check_same_tests(plan: Plan) -> None:
    """Makes sure that the rows of a table are about the same programs, whatever graphs they learn from.

    Raises:
        ConfigError: a variant of the graphs has other test programs.
    """
    from kernelcast.graphs.dataset.store import read_programs
    from kernelcast.graphs.splits import read_split

    for split in plan.splits:
        found = {}
        for name, variant in plan.variants.items():
            programs = read_programs(variant.graphs)
            test = programs.select(read_split(variant.graphs, split).test)
            found[name] = set(zip(test.workload.tolist(), test.program_key.tolist(), strict=True))
        first = next(iter(found))
        for name, programs_of in found.items():
            if programs_of != found[first]:
                raise ConfigError(
                    f"graphs.{name}: on the split {split} it has other test programs than graphs.{first}, so their "
                    "rows cannot be compared; make them two experiments"
                )


def _shared_store(config: DictConfig, measured: Mapping[Path, Folder], root: Path) -> Path:
    """The graphs without splits, built unless they are there."""
    from kernelcast.graphs.dataset.store import META_FILE
    from kernelcast.graphs.dataset.unit import code_hash
    from kernelcast.stages.graphs import graphs

    settings: dict[str, Any] = OmegaConf.to_container(config, enum_to_str=True)  # type: ignore[assignment]
    # where they are made decides nothing, and splits come later
    decisive = {key: settings[key] for key in settings if key not in ("split", "builder", "paths", "tracking")}
    del decisive["measurements"]
    key = json_hash([decisive, [folder.digest for folder in measured.values()], code_hash()])
    store = root / FOLDER / STORES / key
    if not (store / META_FILE).is_file():
        alone = config.copy()
        with open_dict(alone):
            alone.split = {}
        alone.paths.graphs = str(store)
        graphs(alone)
    return store


def _write_variant(variant: Variant, store: Path, config: DictConfig, measured: Mapping[Path, Folder]) -> None:
    """Links the graphs of `store` into the variant's folder and writes the splits beside them."""
    from kernelcast.graphs.dataset.store import META_FILE, read_data_hash, read_description, read_programs
    from kernelcast.graphs.splits import write_split
    from kernelcast.stages.graphs import named_split, rows_of
    from kernelcast.stages.instantiation import made
    from kernelcast.stages.tracking import flatten

    programs, description, data_hash = read_programs(store), read_description(store), read_data_hash(store)
    rows = rows_of(programs, description, measured.values())
    with atomic_directory(variant.graphs, META_FILE) as folder:
        shutil.copytree(store, folder, dirs_exist_ok=True, copy_function=_link)
        for name, node in config.split.items():
            split = named_split(str(name), made(f"splits.{name}", node), rows)
            write_split(folder, str(name), split, rows, data_hash, flatten(OmegaConf.to_container(node)))
            sizes = ", ".join(f"{len(numbers)} {part}" for part, numbers in split.parts())
            logger.info("graphs %s, split %s: %s", variant.name, name, sizes)


def _link(source: str, target: str) -> None:
    """One file under two names, where the file system can."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
