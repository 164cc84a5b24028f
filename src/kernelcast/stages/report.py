"""Writes the report about the measurements and the models."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from kernelcast.files import atomic_file

if TYPE_CHECKING:
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
    from kernelcast.evaluation.report import read_curves, render_report
    from kernelcast.evaluation.results import read_results
    from kernelcast.records import read_measurements
    from kernelcast.stages.tracking import tracked_run

    evaluation = Path(config.paths.evaluation)
    path = Path(config.paths.report) / REPORT_FILE
    results = read_results(evaluation)
    with tracked_run(config, "report", "report") as run:
        measurements = read_measurements(Path(config.paths.measurements))
        tunings = _tunings(Path(config.paths.tuning))
        page = render_report(measurements, results, read_predictions(evaluation), read_curves(evaluation), tunings)
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
