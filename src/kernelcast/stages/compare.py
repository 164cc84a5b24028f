"""The stage `compare`: what several methods of tuning found, side by side."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig
from rich.console import Console

from kernelcast.errors import ConfigError, MissingInputError
from kernelcast.files import atomic_file, read_json
from kernelcast.trials import LATENCY_FILE, TUNING_FILE, finished_tunings, read_trials

if TYPE_CHECKING:
    import pyarrow as pa

    from kernelcast.evaluation.tuning_comparison import TuningComparison
    from kernelcast.evaluation.tuning_curves import Tunings
    from kernelcast.evaluation.tuning_record import LatencyRow

logger = logging.getLogger(__name__)

PLOT_FILE = "curves.svg"


def compare(config: DictConfig) -> None:
    """Compares the finished tunings below `paths.tuning`.

    Prints a table, one row a method, and writes beside the tunings `comparison.csv` (the same), `curves.csv` (best so
    far, with quartile bands), `pairs.csv` (tests between methods) and `curves.svg`. With `publish=NAME` it also writes
    `docs/results/tuning/NAME.json` and the page of results.

    Raises:
        ConfigError: a setting that cannot work, or a name in `only` that was not tuned.
        MissingInputError: there is no finished tuning.
    """
    from kernelcast.evaluation.tuning_comparison import compare_tunings
    from kernelcast.evaluation.tuning_curves import Tunings
    from kernelcast.evaluation.tuning_plots import svg_of, tuning_figure
    from kernelcast.evaluation.tuning_table import COMPARISON_FILE, comparison_table, write_comparison
    from kernelcast.stages.evaluate import bootstrap_settings
    from kernelcast.stages.tracking import tracked_run

    bootstrap = bootstrap_settings(config)
    check_name(config.publish)
    if config.within < 0:
        raise ConfigError(f"within={config.within:g}: a share, 0 or more; 0.02 is what measuring again differs by")
    folder = Path(config.paths.tuning)
    with tracked_run(config, "compare", "compare") as run:
        tunings = Tunings.of(_trials(folder, config.only))
        comparison = compare_tunings(tunings, bootstrap, config.reference, config.within)
        write_comparison(folder, tunings, comparison)
        with atomic_file(folder / PLOT_FILE) as temporary:
            temporary.write_text(svg_of(tuning_figure(tunings)), encoding="utf-8")
        run.artifact(folder / COMPARISON_FILE)
        run.artifact(folder / PLOT_FILE)
        run.metrics({f"area_under_curve/{result.method}": result.area.value for result in comparison.methods})
    Console().print(comparison_table(comparison))
    logger.info("comparison: %s", folder / COMPARISON_FILE)
    if config.publish is not None:
        publish(config, tunings, comparison)


def check_name(name: str | None) -> None:
    """Makes sure that `publish` can be a file's name.

    Raises:
        ConfigError: it cannot.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ConfigError(f"publish={name!r}: a name for a file, of letters, digits, `_`, `-` and `.`")


def publish(config: DictConfig, tunings: Tunings, comparison: TuningComparison) -> None:
    """Writes the record of a comparison and the page of results anew."""
    from kernelcast.evaluation.tuning_record import tuning_record, write_tuning_record
    from kernelcast.stages.experiment_record import without_flags
    from kernelcast.stages.results import TUNING_RECORDS, results
    from kernelcast.stages.tracking import git_state, library_versions

    root, folder = Path(config.paths.root), Path(config.paths.tuning)
    revision, dirty = git_state(root)
    hosts = {
        without_flags(read_json(path.parent / TUNING_FILE, "tune")["host.cpu"])
        for path in finished_tunings(folder)
        if path.parent.parent.name in comparison.subjects
    }
    record = tuning_record(
        config.publish,
        config.title or f"Tuning: {', '.join(comparison.subjects)}",
        tunings,
        comparison,
        config.within,
        {name: rows for name in comparison.subjects if (rows := latencies(folder / name))},
        {
            "measured_on": "; ".join(sorted(hosts)),
            "date": datetime.now(UTC).date().isoformat(),
            "revision": revision[:12] + ("+" if dirty else ""),
            "versions": library_versions(),
        },
    )
    logger.info("record: %s", write_tuning_record(root / TUNING_RECORDS, record))
    results(config)


def latencies(folder: Path) -> list[LatencyRow]:
    """Of a network, those that were timed last, which are of all methods that had tuned it by then; none of others."""
    from kernelcast.evaluation.tuning_record import LatencyRow

    paths = sorted(folder.glob(f"*@*/{LATENCY_FILE}"), key=lambda path: path.stat().st_mtime)
    names = ("contender", "minimum_seconds", "median_seconds")
    rows = read_json(paths[-1], "tune") if paths else []
    return [LatencyRow(**{name: row[name] for name in names}) for row in rows if row["minimum_seconds"] is not None]


def _trials(folder: Path, only: Sequence[str]) -> pa.Table:
    """The rows of all finished tunings."""
    import pyarrow as pa

    paths = finished_tunings(folder)
    if only:
        known = {path.parent.parent.name for path in paths}
        if unknown := [name for name in only if name not in known]:
            raise ConfigError(
                f"only={','.join(only)}: there is no finished tuning of {', '.join(unknown)}, only of "
                f"{', '.join(sorted(known)) or 'nothing'}"
            )
        paths = [path for path in paths if path.parent.parent.name in only]
    if not paths:
        raise MissingInputError(f"no finished tuning in {folder}; run `python scripts/tune.py workload=NAME` first")
    return pa.concat_tables([read_trials(path) for path in paths])
