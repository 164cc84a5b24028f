"""Writes the report about the measurements and the models."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from kernelcast.files import atomic_file

if TYPE_CHECKING:
    from kernelcast.evaluation.report_page.explored import Store
    from kernelcast.evaluation.tuning_curves import Tunings

logger = logging.getLogger(__name__)

REPORT_FILE = "index.html"


def report(config: DictConfig) -> None:
    """Writes `index.html` to `paths.report` from the measurements, what `evaluate` found and any tunings.

    Raises:
        MissingInputError: `measure` or `evaluate` has not run.
        MalformedDataError: one of their files is torn or of another version.
    """
    from kernelcast.evaluation.predictions import read_predictions
    from kernelcast.evaluation.report_page.charts import read_curves
    from kernelcast.evaluation.report_page.page import render_report
    from kernelcast.evaluation.results import read_results
    from kernelcast.records import read_measurements
    from kernelcast.stages.tracking import tracked_run

    evaluation = Path(config.paths.evaluation)
    path = Path(config.paths.report) / REPORT_FILE
    results = read_results(evaluation)
    with tracked_run(config, "report", "report") as run:
        measurements = read_measurements(Path(config.paths.measurements))
        tunings = _tunings(Path(config.paths.tuning))
        store = _store(Path(config.paths.graphs))
        predictions, curves = read_predictions(evaluation), read_curves(evaluation)
        page = render_report(measurements, results, predictions, curves, tunings, store)
        with atomic_file(path) as temporary:
            temporary.write_text(page, encoding="utf-8")
        run.artifact(path)
    logger.info("report: %s", path)
    logger.info("table:  %s", evaluation / "table.csv")
    logger.info(
        "runs:   mlflow ui --backend-store-uri %s, then "
        "http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning",
        shlex.quote(config.tracking.uri),
    )


def _tunings(folder: Path) -> Tunings | None:
    """The finished tunings; None where there is none."""
    import pyarrow as pa

    from kernelcast.evaluation.tuning_curves import Tunings
    from kernelcast.trials import finished_tunings, read_trials

    tables = [read_trials(path) for path in finished_tunings(folder)]
    return Tunings.of(pa.concat_tables(tables)) if tables else None


def _store(folder: Path) -> Store | None:
    """The graphs with their splits; None where there are none, which costs the explorer its columns and no more."""
    from kernelcast.evaluation.report_page.explored import Store
    from kernelcast.graphs.dataset.store import META_FILE, read_description, read_programs
    from kernelcast.graphs.splits import read_split, split_names

    if not (folder / META_FILE).exists():
        return None
    splits = {name: read_split(folder, name) for name in split_names(folder)}
    return Store(read_programs(folder), read_description(folder), splits)
