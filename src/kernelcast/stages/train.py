"""Fits one cost model on one split and records it."""

from __future__ import annotations

import csv
import logging
import math
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from kernelcast.errors import ConfigError
from kernelcast.files import atomic_directory, require_replaceable, write_json
from kernelcast.stages.debugging import begin_debug_run, check_debug_output, debug_split, judge_overfitting, profiled
from kernelcast.stages.failures import noted_failure
from kernelcast.stages.instantiation import made
from kernelcast.stages.lineage import SPLIT, SPLIT_TAG, note_graphs
from kernelcast.stages.provenance import provenance
from kernelcast.stages.sweep_job import SweepTrial, end_tags, trial_of_this_job, trial_run
from kernelcast.stages.sweeping import OBJECTIVE_METRIC, OVERRIDES_TAG
from kernelcast.stages.tracking import TrackedRun
from kernelcast.stages.workspace import TrainingWorkspace, training_workspace

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs
    from kernelcast.models.protocol import CostModel
    from kernelcast.models.trained_on import TrainedOn

logger = logging.getLogger(__name__)

TRAIN_SECONDS = "train_seconds"
"""Metric of a run: how long `fit` took."""

TRAINING_FILE = "training.json"
"""Every folder of a trained model has it: how it was made."""

SPLIT_ARTIFACTS = "split"
"""Folder of a run: which programs it learned from."""

LONGEST_ROW_LIST = 16 * 2**20
"""Bytes of a list of rows that every run keeps, of some 700,000 programs; a study makes hundreds of runs."""


class History:
    """A `MetricLog` that keeps every value for the learning curve and passes it on to the tracked run and the trial."""

    def __init__(self, run: TrackedRun, workspace: TrainingWorkspace, trial: SweepTrial | None) -> None:
        self.run = run
        self.workspace = workspace
        self.trial = trial
        self.rows: dict[int, dict[str, float]] = {}

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Records `values` at `step`.

        Raises:
            TrainingPruned: the study that this training is a trial of does not want more of it.
        """
        self.workspace.note()
        self.rows.setdefault(step, {}).update(values)
        self.run.metrics(values, step)
        if self.trial is not None:
            self.trial.report(values, step)

    @property
    def next_step(self) -> int:
        """The step after the last one."""
        return 1 + max(self.rows, default=-1)

    def write(self, path: Path) -> None:
        """Writes one row a step, one column a metric."""
        names = sorted({name for row in self.rows.values() for name in row})
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["step", *names])
            writer.writeheader()
            writer.writerows({"step": step, **row} for step, row in sorted(self.rows.items()))


def train(config: DictConfig) -> float:
    """Trains `config.model` on the training part of `config.split`.

    Writes the model, how it was made and its learning curve to `config.output`, or to this run's own folder. After a
    kill the same command goes on where it was.

    Returns:
        The metric that `config.objective` names; NaN where this run has no value of it.

    Raises:
        ConfigError: there is no such split, or no such metric, or a study without -m.
        MissingInputError: the graphs are not there.
        TrainingPruned: the study that this training is a trial of has ended it.
    """
    from kernelcast.graphs.dataset.store import read_data_hash, read_description, read_programs
    from kernelcast.graphs.splits import SPLITS_FOLDER, read_split, read_split_hash, split_files
    from kernelcast.models.trained_on import TrainedOn

    launch = HydraConfig.get()
    choices: Mapping[str, Any] = launch.runtime.choices
    name = choices["model"]
    if choices.get("hparams_search") and launch.mode != RunMode.MULTIRUN:
        study = choices["hparams_search"]
        raise ConfigError(
            f"hparams_search={study} is a study of many trainings: `python scripts/train.py -m hparams_search={study}`"
        )
    graphs = Path(config.paths.graphs)
    output = Path(config.paths.root, config.output or Path(launch.runtime.output_dir, "output"))
    check_debug_output(config, output)
    trial = trial_of_this_job(config.objective)
    with (
        training_workspace(config) as workspace,
        trial_run(config, f"{name} on {config.split}", trial, workspace.earlier_run) as run,
        noted_failure(output),
    ):
        run.tags({OVERRIDES_TAG: shlex.join(launch.overrides.task)})
        # settings that cannot work are found before any data is read
        check_objective(config.objective)
        require_replaceable(output, TRAINING_FILE)
        model = make_model(config)
        begin_debug_run(config, model.learned, run)
        if model.learned:
            run.tags({"mlflow.runName": f"{name}-{choices['loss']} on {config.split}"})
        programs = read_programs(graphs)
        note_graphs(run, graphs, "input", rows=len(programs))
        with split_folder(config, run) as folder:
            split = read_split(graphs, config.split, folder)
            split_hash = read_split_hash(graphs, config.split, folder)
            record_split(run, folder, config.split, split_hash)
        run.dataset(f"{SPLIT}{config.split}", split_hash, split_files(graphs / SPLITS_FOLDER, config.split)[0])
        run.note(f"runs that learned from this split: the filter ``tags.`{SPLIT_TAG}` = '{split_hash}'``")
        data_hash, description = read_data_hash(graphs), read_description(graphs)

        workspace.begin(run)
        history = History(run, workspace, trial)
        split = debug_split(split, programs, config.debug)
        with profiled(config, run):
            model.fit(programs.select(split.train), programs.select(split.valid), history, workspace.folder)
        seconds = workspace.seconds

        values = {TRAIN_SECONDS: seconds}
        for part, rows in (("valid", split.valid), ("test", split.test)):
            values |= score(model, programs.select(rows), part, run)
        judge_overfitting(config.debug, history.rows, run)
        objective = objective_value(config.objective, values)
        values[OBJECTIVE_METRIC] = objective
        # after the curves, which share names with them: the last value of a run is that of the model it kept
        run.metrics(values, history.next_step)
        run.tags(end_tags(trial, objective))
        settings = {
            "model": name,
            "split": config.split,
            "loss": choices["loss"],
            "seed": config.seed,
            "seconds": seconds,
            "kind": str(model.kind),
            "learned": model.learned,
            # tells evaluate that what it tests on was not learned from
            "split_hash": split_hash,
            "mlflow_run_id": run.run_id,
            **provenance(config, str(model.kind), description, (programs.feature_version, data_hash), values),
        }
        judges = programs.select(split.valid if len(split.valid) else split.train)
        write_outputs(output, model, TrainedOn.of(model, judges, description), settings, history)
        log_outputs(run, output, history)
        logger.info(
            "%s with the split %s: trained in %.1f s, %s = %.4f, in %s",
            name, config.split, seconds, config.objective, objective, output,
        )  # fmt: skip
    return objective


@contextmanager
def split_folder(config: DictConfig, run: TrackedRun) -> Iterator[Path]:
    """Where the files of the split are: with the graphs, or those that the run `config.from_run` has kept.

    Raises:
        ConfigError: there is no such run, it kept no whole split, or one of another name.
    """
    from mlflow.exceptions import MlflowException

    from kernelcast.graphs.splits import SPLITS_FOLDER

    if config.from_run is None:
        yield Path(config.paths.graphs, SPLITS_FOLDER)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            kept = Path(run.client.download_artifacts(config.from_run, SPLIT_ARTIFACTS, folder))
        except (MlflowException, OSError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(
                f"from_run={config.from_run}: no run that has kept its split ({reason}); copy the id of a finished "
                "training from the MLflow page"
            ) from error
        names = sorted(path.stem for path in kept.glob("*.npy"))
        if config.split not in names:
            kept_names = f"it has kept {', '.join(names)}" if names else "its list of rows was too long to be kept"
            raise ConfigError(f"from_run={config.from_run} has no split {config.split}: {kept_names}; set split=NAME")
        yield kept


def record_split(run: TrackedRun, folder: Path, name: str, split_hash: str) -> None:
    """Stores with the run which programs it learned from: what the split's file says, and its list of rows if short.

    A longer list is named there by its hash, and made again by `graphs` with the settings and the seed that are there.
    """
    from kernelcast.graphs.splits import split_files

    described, rows = split_files(folder, name)
    run.tags({SPLIT_TAG: split_hash})
    run.artifact(described, SPLIT_ARTIFACTS)
    if rows.stat().st_size <= LONGEST_ROW_LIST:
        run.artifact(rows, SPLIT_ARTIFACTS)


def make_model(config: DictConfig) -> CostModel:
    """The untrained model that the configuration names.

    Raises:
        ConfigError: a setting of model, loss or trainer that cannot work.
    """
    loss, trainer = made("loss", config.loss), made("trainer", config.trainer)
    model: CostModel = made("model", config.model, loss=loss, trainer=trainer, seed=config.seed)
    return model


def score(model: CostModel, programs: Programs, part: str, run: TrackedRun) -> dict[str, float]:
    """Metrics of the model on one part of the split, named `PART/METRIC`, with a plot of them on the run."""
    from kernelcast.evaluation.plots import prediction_figure
    from kernelcast.evaluation.summary import summarise

    if not len(programs):
        return {}
    predicted = model.predict(programs)
    run.figure(prediction_figure(programs, predicted, model.kind), f"{part}_predictions.png")
    return {f"{part}/{metric}": value for metric, value in summarise(programs, predicted, model.kind).overall.items()}


def check_objective(name: str) -> None:
    """Makes sure that a run can have the metric `name`.

    Raises:
        ConfigError: there is no such metric; the message lists those there are.
    """
    from kernelcast.evaluation.summary import METRICS

    known = [TRAIN_SECONDS, *(f"{part}/{metric.name}" for part in ("valid", "test") for metric in METRICS)]
    if name not in known:
        raise ConfigError(f"objective={name} is no metric of a run; use one of {', '.join(known)}")


def objective_value(name: str, values: Mapping[str, float]) -> float:
    """The metric that a sweep looks at; NaN, which a sweep takes as failed, where this run has no value of it."""
    if name not in values:
        logger.warning(
            "the objective %s has no value here: it needs more programs a workload, or a loss that predicts times", name
        )
    return values.get(name, math.nan)


def write_outputs(
    directory: Path, model: CostModel, trained_on: TrainedOn, settings: dict[str, Any], history: History
) -> None:
    """Writes the folder that `evaluate` reads, whole or not at all."""
    from kernelcast.models.saved import save_model

    with atomic_directory(directory, TRAINING_FILE) as temporary:
        save_model(model, temporary / "model", trained_on)
        write_json(temporary / TRAINING_FILE, settings)
        if history.rows:
            history.write(temporary / "history.csv")


def log_outputs(run: TrackedRun, directory: Path, history: History) -> None:
    """Stores the model and its learning curve with the run."""
    from kernelcast.evaluation.plots import learning_curve_figure

    run.artifact(directory / "model", "model")
    if history.rows:
        run.artifact(directory / "history.csv")
        run.figure(learning_curve_figure(directory / "history.csv"), "learning_curve.png")
