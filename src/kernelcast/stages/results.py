"""The page of results, made of the figures that experiments and comparisons of tunings left."""

from __future__ import annotations

import logging
from pathlib import Path

from omegaconf import DictConfig

from kernelcast.files import atomic_file

logger = logging.getLogger(__name__)

RECORDS = "docs/results"
TUNING_RECORDS = "docs/results/tuning"
PAGE = "docs/results.md"
"""The figures of all experiments, of published tunings, and the page made of them, below `paths.root`."""

FIRST = ("networks",)
"""Experiments that stand at the top of the page."""


def results(config: DictConfig) -> None:
    """Writes `docs/results.md` anew of the figures in `docs/results`.

    Raises:
        MalformedDataError: a file there is not what an experiment or a comparison writes.
    """
    from kernelcast.evaluation.experiment_record import read_records
    from kernelcast.evaluation.results_page import render_page
    from kernelcast.evaluation.tuning_record import read_tuning_records

    root = Path(config.paths.root)
    page = render_page(read_records(root / RECORDS), FIRST, read_tuning_records(root / TUNING_RECORDS))
    with atomic_file(root / PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8")
    logger.info("page: %s", root / PAGE)
