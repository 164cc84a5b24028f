"""The stage `compare`: what several methods of tuning found, side by side."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig
from rich.console import Console

from kernelcast.errors import ConfigError, MissingInputError
from kernelcast.files import atomic_file

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

PLOT_FILE = "curves.svg"


def compare(config: DictConfig) -> None:
    """Compares the finished tunings below `paths.tuning`.

    Prints a table, one row a method, and writes beside the tunings `comparison.csv` (the same), `curves.csv` (best so
    far, with quartile bands), `pairs.csv` (tests between methods) and `curves.svg`.

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


def _trials(folder: Path, only: Sequence[str]) -> pa.Table:
    """The rows of all finished tunings."""
    import pyarrow as pa

    from kernelcast.trials import finished_tunings, read_trials

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
