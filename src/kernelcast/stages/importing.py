"""The stage `import`: measurements made of a MetaSchedule tuning database."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError
from kernelcast.records import CAMPAIGN_FILE, MEASUREMENTS_FILE, WORKLOADS_FILE
from kernelcast.stages.config import KnownHost
from kernelcast.stages.exporting import taken

if TYPE_CHECKING:
    from kernelcast.machine import Host

logger = logging.getLogger(__name__)


def import_(config: DictConfig) -> None:
    """Turns the database of `config` (schema `ImportConfig`) into a folder of measurements, whole or not at all.

    Raises:
        ConfigError: no source, several targets to choose from, or measurements that are not to be replaced.
        MissingInputError: the source is no database.
        MalformedDataError: nothing in it can be read.
    """
    from kernelcast.exchange.database import database_file
    from kernelcast.exchange.importing import import_database
    from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS
    from kernelcast.files import atomic_directory
    from kernelcast.graphs.dataset.selection import measurements_hash
    from kernelcast.records import write_campaign, write_measurements
    from kernelcast.stages.graphs import progress_of
    from kernelcast.stages.tracking import tracked_run

    if not (config.source or "").strip():
        raise ConfigError("source is missing; name the folder of the database: source=FOLDER")
    source, output = Path(config.source), Path(config.paths.measurements)
    check_replaceable(output, config.overwrite)
    wanted = wanted_target(config.target)
    for name in (DATABASE_WORKLOADS, DATABASE_RECORDS):
        database_file(source, name)
    with tracked_run(config, "import", "import") as run:
        with progress_of("import") as progress:
            imported = import_database(source, wanted, described_host(config.host), progress)
        measurements = imported.measurements
        with atomic_directory(output) as folder:
            write_campaign(folder, measurements.campaign, measurements.workloads)
            write_measurements(folder, measurements.table)
        run.dataset("measurements", measurements_hash(output), source)
        outcomes = Counter(measurements.table["outcome"].to_pylist())
        run.metrics(
            {
                "import/records": imported.records,
                "import/failed_records": imported.failed,
                "import/copies": imported.copies,
                "import/set_aside": imported.set_aside,
                **{f"import/{outcome}": count for outcome, count in outcomes.items()},
            }
        )
    logger.info("target: %s", measurements.campaign.target)
    if imported.copies:
        logger.info("%d records repeat the times of another one to the last digit and count once", imported.copies)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    logger.info(
        "%d records, %d with times and %d of failures, became %d programs of %d workloads (%s): %s",
        imported.records,
        imported.records - imported.failed,
        imported.failed,
        measurements.table.num_rows,
        len(measurements.workloads),
        counts,
        output,
    )


def wanted_target(node: Any) -> dict[str, Any]:
    """The entries that the target of a record must have; none where all are welcome.

    Raises:
        ConfigError: it is not a mapping.
    """
    wanted = OmegaConf.to_container(node) if OmegaConf.is_config(node) else node
    if wanted is None:
        return {}
    if not isinstance(wanted, dict):
        raise ConfigError(f"target={wanted!r} is not a mapping; write for example 'target={{mcpu: znver4}}'")
    return {str(key): value for key, value in wanted.items()}


def described_host(host: KnownHost) -> Callable[[dict[str, Any]], Host | None]:
    """Tells the machine that measured, once the target is known."""

    def unknown(target: dict[str, Any]) -> Host | None:
        return None

    def this(target: dict[str, Any]) -> Host | None:
        from kernelcast.measurement.host import probe_host
        from kernelcast.tvm_compat import check_runs_here, resolve_target

        complete = resolve_target(target)
        check_runs_here(complete)
        return probe_host(complete)

    return this if host is KnownHost.this else unknown


def check_replaceable(folder: Path, overwrite: bool) -> None:
    """Makes sure that the folder of measurements may be written, and that no measuring of one's own gets lost.

    Raises:
        ConfigError: it is there and not to be replaced, or holds more than an import.
    """
    written = {CAMPAIGN_FILE, WORKLOADS_FILE, MEASUREMENTS_FILE}
    if not folder.exists():
        return
    inside = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else [folder.name]
    foreign = [name for name in inside if name not in written]
    if foreign:
        raise ConfigError(
            f"{folder} holds {foreign[0]}, so it was not imported and is not replaced; move it away, or import into "
            "another folder: paths.measurements=FOLDER"
        )
    if inside and not overwrite:
        raise taken("paths.measurements", folder)
