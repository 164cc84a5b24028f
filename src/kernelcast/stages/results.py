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

README = "README.md"

FIRST = ("networks",)
"""Experiments that stand at the top of the page."""


def results(config: DictConfig) -> None:
    """Writes `docs/results.md` anew of the figures in `docs/results`, and the leaderboard in the README.

    Raises:
        MalformedDataError: a file there is not what an experiment or a comparison writes.
    """
    from kernelcast.evaluation.experiment_record import read_records
    from kernelcast.evaluation.leaderboard_excerpt import with_leaderboard
    from kernelcast.evaluation.results_page import render_page
    from kernelcast.evaluation.tuning_record import figure_file, read_tuning_records

    root = Path(config.paths.root)
    records, tunings = read_records(root / RECORDS), read_tuning_records(root / TUNING_RECORDS)
    drawn = {record.name: figure_file(root / TUNING_RECORDS, record.name) for record in tunings}
    page = root / PAGE
    figures = {name: path.relative_to(page.parent).as_posix() for name, path in drawn.items() if path.is_file()}
    pages = {page: render_page(records, FIRST, tunings, figures)}
    if (root / README).is_file():
        pages[root / README] = with_leaderboard((root / README).read_text(encoding="utf-8"), records)
    for path, text in pages.items():
        with atomic_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    logger.info("page: %s", root / PAGE)
