"""The stage `experiment`: one table of docs/results.md, from measurements to the page."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.files import storage_errors
from kernelcast.stages.experiment_plan import Plan, Training, read_plan, training_config
from kernelcast.stages.experiment_predictions import publish_predictions, restore_published
from kernelcast.stages.experiment_trainings import missing_trainings
from kernelcast.stages.results import RECORDS, results

if TYPE_CHECKING:
    from kernelcast.stages.experiment_pool import Outcome
    from kernelcast.stages.tracking import TrackedRun

logger = logging.getLogger(__name__)


def experiment(config: DictConfig) -> None:
    """Runs the experiment of `config` (schema `ExperimentConfig`); what is up to date is not made again.

    Makes the graphs of every variant, trains each row with each seed on each split, evaluates, and writes the figures
    to `docs/results/NAME.json`, the predictions behind them to `docs/results/predictions/NAME` and the page to
    `docs/results.md`, with `page=false` to the experiment's own folder. With `published=true` the predictions that are
    there stand for trainings. A training that fails costs its own figures alone.

    Raises:
        ConfigError: settings that cannot work, found before any work.
        MissingInputError: the measurements are not there, or no training succeeded.
        KernelcastError: after all is written: some trainings failed.
    """
    from kernelcast.evaluation.experiment_record import write_record
    from kernelcast.stages.experiment_data import make_graphs, measurement_folders
    from kernelcast.stages.experiment_record import record_of
    from kernelcast.stages.tracking import tracked_run

    plan = read_plan(config)
    jobs = jobs_of(config)
    for training in plan.trainings:
        if training.seed == config.seeds[0]:
            check_training(training, config)
    with tracked_run(config, f"experiment {plan.name}", "experiment") as run, as_parent(run):
        folders = measurement_folders(config, plan)
        make_graphs(config, plan, folders)
        published = Path(config.paths.root, RECORDS)
        if config.published:
            logger.info("%d trainings have published predictions", restore_published(plan, config, published))
        failed = train_missing(plan, config, jobs, run)
        evaluate_variants(plan, config, folders, failed)
        # a first look must not take the place of the figures that the page was made of
        records = published if config.page else plan.folder / "results"
        write_record(records, record_of(plan, config, failed))
        publish_predictions(plan, [each for each in plan.trainings if each not in failed], records)
        run.artifact(records / f"{plan.name}.json")
    if config.page:
        results(config)
    if failed:
        reasons = Counter(failed.values()).most_common(3)
        raise KernelcastError(
            f"{len(failed)} of {len(plan.trainings)} trainings of experiment {plan.name} failed: "
            + "; ".join(f"{count} x {reason}" for reason, count in reasons)
            + f"; the others are in the table, what each printed is in {plan.folder / 'logs'}; the same command tries "
            "the failed ones again"
        )


def jobs_of(config: DictConfig) -> int:
    """How many trainings go at once.

    Raises:
        ConfigError: none.
    """
    from kernelcast.tvm_compat import available_cores

    jobs = available_cores() if config.jobs is None else config.jobs
    if jobs < 1:
        raise ConfigError(f"jobs={jobs}: at least 1, or null for one a core")
    return int(jobs)


def check_training(training: Training, config: DictConfig) -> None:
    """Makes sure that the model of a row can be made.

    Raises:
        ConfigError: it cannot; names the row.
    """
    from kernelcast.stages.train import check_objective, make_model

    try:
        asked = training_config(training, config)
        check_objective(asked.objective)
        make_model(asked)
    except ConfigError as error:
        raise ConfigError(f"runs.{training.label}: {error}") from error


@contextmanager
def as_parent(run: TrackedRun) -> Iterator[None]:
    """Nests all runs of the body, in whatever process, under `run`."""
    from kernelcast.stages.tracking import PARENT_VARIABLE

    before = os.environ.get(PARENT_VARIABLE)
    os.environ[PARENT_VARIABLE] = run.run_id
    try:
        yield
    finally:
        os.environ.pop(PARENT_VARIABLE)
        if before is not None:
            os.environ[PARENT_VARIABLE] = before


def train_missing(plan: Plan, config: DictConfig, jobs: int, run: TrackedRun) -> dict[Training, str]:
    """Trains what is not trained yet; gives the reasons of those that failed."""
    from kernelcast.stages.experiment_pool import train_all

    missing = missing_trainings(plan, config)
    total, done = len(plan.trainings), len(plan.trainings) - len(missing)
    if done:
        logger.info("%d of %d trainings are there already", done, total)
    failed: dict[Training, str] = {}
    started = time.perf_counter()
    for number, outcome in enumerate(
        train_all(missing, config, min(jobs, max(len(missing), 1)), plan.folder / "logs"), 1
    ):
        if outcome.reason:
            failed[outcome.training] = outcome.reason
        left = (time.perf_counter() - started) / number * (len(missing) - number)
        tell(outcome, done + number, total, left)
    run.metrics({"experiment/trainings": total, "experiment/reused": done, "experiment/failed": len(failed)})
    return failed


def tell(outcome: Outcome, number: int, total: int, seconds_left: float) -> None:
    """One line about a training that ended."""
    training = outcome.training
    where = f"{training.name} on {training.split}"
    left = f"about {seconds_left / 60:.0f} min left" if seconds_left >= 60 else f"about {seconds_left:.0f} s left"
    if outcome.reason:
        logger.warning("%d of %d: %s failed: %s; %s", number, total, where, outcome.reason, left)
    else:
        logger.info("%d of %d: %s, %.1f s; %s", number, total, where, outcome.seconds, left)


def evaluate_variants(plan: Plan, config: DictConfig, folders: Sequence[Path], failed: dict[Training, str]) -> None:
    """Scores the models of every variant; only those of this plan, whatever else its folder still holds.

    Raises:
        MissingInputError: none can be used.
    """
    from kernelcast.stages.composing import composed
    from kernelcast.stages.evaluate import evaluate

    for variant in plan.variants.values():
        trainings = [each for each in plan.trainings if each.variant == variant and each not in failed]
        if not trainings and any(each.variant == variant for each in plan.trainings):
            logger.warning("graphs %s: no training succeeded", variant.name)
        if not trainings:
            continue
        chosen = variant.folder / "evaluated"
        with storage_errors(chosen):
            shutil.rmtree(chosen, ignore_errors=True)
            for training in trainings:
                link = chosen / training.split / training.name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(os.path.relpath(training.output, link.parent), target_is_directory=True)
        asked = composed("evaluate", [], config)
        asked.measurements = [str(folder) for folder in folders]
        asked.paths.graphs, asked.paths.models = str(variant.graphs), str(chosen)
        asked.paths.evaluation = str(variant.evaluation)
        evaluate(asked)
