"""The stage `compare`: what several methods of tuning found, side by side."""

from __future__ import annotations

import logging
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig
from rich.console import Console

from kernelcast.errors import ConfigError
from kernelcast.files import atomic_file, read_json
from kernelcast.stages.compared_trials import compared_trials, processors
from kernelcast.trials import LATENCY_FILE, write_trials

if TYPE_CHECKING:
    import pyarrow as pa

    from kernelcast.evaluation.tuning_comparison import TuningComparison
    from kernelcast.evaluation.tuning_curves import Tunings
    from kernelcast.evaluation.tuning_record import LatencyRow

logger = logging.getLogger(__name__)

PLOT_FILE = "curves.svg"


def compare(config: DictConfig) -> None:
    """Compares the finished tunings below `paths.tuning`, and those that were published as `published`.

    Prints a table, one row a method, and writes beside the tunings `comparison.csv` (the same), `curves.csv` (best so
    far, with quartile bands), `pairs.csv` (tests between methods) and `curves.svg`. With `publish=NAME` it also writes
    the comparison, its trials and its curves to `docs/results/tuning`, and the page of results.

    Raises:
        ConfigError: a setting that cannot work, a name in `only` or a seed that was not tuned, or what was published
            was measured on another processor.
        MissingInputError: there is no finished tuning, or nothing was published under that name.
    """
    from kernelcast.evaluation.tuning_comparison import compare_tunings
    from kernelcast.evaluation.tuning_curves import Tunings
    from kernelcast.evaluation.tuning_plots import svg_of, tuning_figure
    from kernelcast.evaluation.tuning_table import COMPARISON_FILE, comparison_table, write_comparison
    from kernelcast.stages.evaluate import bootstrap_settings
    from kernelcast.stages.tracking import tracked_run

    bootstrap = bootstrap_settings(config)
    for key in ("publish", "published"):
        check_name(key, config[key])
    if config.within < 0:
        raise ConfigError(f"within={config.within:g}: a share, 0 or more; 0.02 is what measuring again differs by")
    folder = Path(config.paths.tuning)
    with tracked_run(config, "compare", "compare") as run:
        trials = compared_trials(config)
        tunings = Tunings.of(trials)
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
        publish(config, trials, tunings, comparison)


def check_name(key: str, name: str | None) -> None:
    """Makes sure that what is published can be a file's name.

    Raises:
        ConfigError: it cannot.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ConfigError(f"{key}={name!r}: a name for a file, of letters, digits, `_`, `-` and `.`")


def publish(config: DictConfig, trials: pa.Table, tunings: Tunings, comparison: TuningComparison) -> None:
    """Writes the record of a comparison, all trials behind it, its curves, and the page of results anew."""
    from kernelcast.evaluation.tuning_record import (
        figure_file,
        published_trials_file,
        read_tuning_record,
        tuning_record,
        write_tuning_record,
    )
    from kernelcast.stages.results import TUNING_RECORDS, results
    from kernelcast.stages.tracking import git_state, library_versions

    root, folder = Path(config.paths.root), Path(config.paths.tuning)
    records = root / TUNING_RECORDS
    revision, dirty = git_state(root)
    title = f"Tuning: {', '.join(comparison.subjects)}"
    revisions, hosts = [revision[:12] + ("+" if dirty else "")], processors(folder, comparison.subjects)
    latency = {name: rows for name in comparison.subjects if (rows := latencies(folder / name))}
    if config.published is not None:
        before = read_tuning_record(records, config.published)
        title, hosts = before.title, {before.measured_on, *hosts}
        revisions = [*before.revision.split(", "), *revisions]
        latency = {name: list(rows) for name, rows in before.latency.items() if name in comparison.subjects} | latency
    record = tuning_record(
        config.publish,
        config.title or title,
        tunings,
        comparison,
        config.within,
        latency,
        {
            "measured_on": "; ".join(sorted(hosts)),
            "date": datetime.now(UTC).date().isoformat(),
            "revision": ", ".join(dict.fromkeys(revisions)),
            "versions": library_versions(),
        },
    )
    logger.info("record: %s", write_tuning_record(records, record))
    write_trials(published_trials_file(records, config.publish), trials)
    with atomic_file(figure_file(records, config.publish)) as temporary:
        shutil.copyfile(folder / PLOT_FILE, temporary)
    results(config)


def latencies(folder: Path) -> list[LatencyRow]:
    """Of a network, those that were timed last, which are of all methods that had tuned it by then; none of others."""
    from kernelcast.evaluation.tuning_record import LatencyRow

    paths = sorted(folder.glob(f"*@*/{LATENCY_FILE}"), key=lambda path: path.stat().st_mtime)
    names = ("contender", "minimum_seconds", "median_seconds")
    rows = read_json(paths[-1], "tune") if paths else []
    return [LatencyRow(**{name: row[name] for name in names}) for row in rows if row["minimum_seconds"] is not None]
