"""Scores every model on every split with the same metrics."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError, MissingInputError
from kernelcast.files import read_json

if TYPE_CHECKING:
    import pyarrow as pa

    from kernelcast.evaluation.bootstrap import Bootstrap
    from kernelcast.evaluation.noise import Noise, PairedLabels
    from kernelcast.evaluation.results import MissingModel, ModelResult, Results, SplitResult
    from kernelcast.graphs.dataset.store import Description
    from kernelcast.graphs.programs import Programs
    from kernelcast.records import Measurements
    from kernelcast.stages.tracking import TrackedRun

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scored:
    """One split with its models scored.

    Attributes:
        result: the numbers.
        predictions: one table a model, columns of `PREDICTION_SCHEMA`.
        missing: models that could not be scored.
    """

    result: SplitResult
    predictions: list[pa.Table]
    missing: list[MissingModel]


def evaluate(config: DictConfig) -> None:
    """Scores every model in `paths.models` on the test programs of every split in `paths.graphs`.

    A model that is missing or cannot be used is listed as such, and the others are scored. Prints a table a split and
    writes to `paths.evaluation`: `results.json` (everything), `metrics.json` and `metrics/` (for DVC), `table.csv`
    (one row a model), `leaderboard.csv` (one row a metric), `per_workload.csv`, `learning.csv`, `predictions.parquet`
    and `plots/`.

    Raises:
        ConfigError: `confidence` or `bootstrap_samples` makes no sense.
        MissingInputError: there are no graphs, no measurements, or no model that can be used.
    """
    import pyarrow as pa

    from kernelcast.evaluation.machine import machine_states
    from kernelcast.evaluation.noise import joined, noise_of, paired_labels
    from kernelcast.evaluation.outputs import write_outputs
    from kernelcast.evaluation.results import RESULTS_VERSION, Results
    from kernelcast.graphs.dataset.labels import Labelling
    from kernelcast.graphs.dataset.store import check_store, read_data_hash, read_description, read_programs
    from kernelcast.graphs.splits import split_names
    from kernelcast.records import read_measurements
    from kernelcast.stages.tracking import tracked_run

    bootstrap = bootstrap_settings(config)
    if not config.measurements:
        raise ConfigError("measurements=[] is empty; name the folders that the graphs were made of")
    graphs, models = Path(config.paths.graphs), Path(config.paths.models)
    # all of it is read here anyway: figures of changed data would be none
    check_store(graphs)
    programs, description = read_programs(graphs), read_description(graphs)
    names = model_names(models)
    with tracked_run(config, "evaluate", "evaluate") as run:
        run.dataset("graphs", read_data_hash(graphs), graphs)
        folders = [read_measurements(Path(config.paths.root, folder)) for folder in config.measurements]
        labelling = Labelling(description.label, description.reference_correction)
        labels = joined(
            [paired_labels(named_as_in_graphs(folder, programs, description), labelling) for folder in folders]
        )
        scored = [
            score_split(split, programs, models, names, graphs, labels, bootstrap) for split in split_names(graphs)
        ]
        results = Results(
            RESULTS_VERSION,
            bootstrap.confidence,
            bootstrap.samples,
            description.label,
            description.reference_correction,
            description.spread_limit,
            noise_of(programs, labels, bootstrap),
            tuple(entry.result for entry in scored),
            tuple(missing for entry in scored for missing in entry.missing),
        )
        if not any(entry.predictions for entry in scored):
            reasons = "; ".join(f"{missing.model} on {missing.split}: {missing.reason}" for missing in results.missing)
            raise MissingInputError(
                f"none of the models in {models} can be used ({reasons or f'{graphs} has no split'}); "
                "run `dvc repro graphs train`"
            )
        predictions = pa.concat_tables(table for entry in scored for table in entry.predictions)
        write_outputs(Path(config.paths.evaluation), results, predictions, models, machine_states(folders[0]))
        log_results(run, Path(config.paths.evaluation), results)
    print_tables(results)
    logger.info("tables, plots and predictions are in %s", config.paths.evaluation)


def named_as_in_graphs(measurements: Measurements, programs: Programs, description: Description) -> pa.Table:
    """The measured rows with the workload names of the graphs: these tell apart what folders and targets call the same.

    Rows of workloads that have no program there are left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from kernelcast.graphs.dataset.selection import Folder

    label = Folder(measurements, "").stored_target.label
    groups, first = np.unique(programs.workload, return_index=True)
    names = {
        description.workloads[group].key: programs.workload_names[group]
        for group, row in zip(groups.tolist(), first.tolist(), strict=True)
        if programs.targets[programs.target[row]] == label
    }
    table = measurements.measured
    keys = table["workload_key"].to_pylist()
    place = table.column_names.index("workload_name")
    named = table.set_column(place, "workload_name", pa.array([names.get(key) for key in keys], pa.string()))
    return named.filter(pc.is_valid(named["workload_name"]))


def bootstrap_settings(config: DictConfig) -> Bootstrap:
    """The settings of the intervals.

    Raises:
        ConfigError: a value out of range; the message names the key.
    """
    from kernelcast.evaluation.bootstrap import Bootstrap

    if not 0 < config.confidence < 1:
        raise ConfigError(f"confidence={config.confidence} is no share between 0 and 1; 0.95 is usual")
    if config.bootstrap_samples < 1:
        raise ConfigError(f"bootstrap_samples={config.bootstrap_samples} must be at least 1; 1000 is usual")
    return Bootstrap(config.bootstrap_samples, config.confidence, config.seed)


def model_names(models: Path) -> list[str]:
    """Names of the models that are there for any split.

    Raises:
        MissingInputError: there is none.
    """
    names = sorted({path.name for path in models.glob("*/*") if path.is_dir() and not path.name.startswith(".")})
    if not names:
        raise MissingInputError(f"there is no trained model in {models}; run `dvc repro train` first")
    return names


def score_split(
    split: str,
    programs: Programs,
    models: Path,
    names: list[str],
    graphs: Path,
    labels: PairedLabels,
    bootstrap: Bootstrap,
) -> Scored:
    """Scores the models `names` on the test programs of one split, the noise ceiling among them."""
    from kernelcast.evaluation.bootstrap import Resampling
    from kernelcast.evaluation.predictions import prediction_table
    from kernelcast.evaluation.results import MissingModel, SplitResult
    from kernelcast.evaluation.scoring import ceiling
    from kernelcast.evaluation.summary import summarise
    from kernelcast.graphs.splits import read_split, read_split_hash

    rows = read_split(graphs, split)
    test = programs.select(rows.test)
    if not len(test):
        raise MalformedDataError(
            f"the split {split} in {graphs} has no test programs; measure more programs or hold out a larger share"
        )
    known = set(test.workload.tolist()) <= set(programs.workload[rows.train].tolist())
    resampling = Resampling.PROGRAMS if known else Resampling.WORKLOADS_AND_PROGRAMS
    again = ceiling(programs, rows.test, labels, resampling, bootstrap)
    if again is None:
        logger.warning("no noise ceiling on the %s split: no program of its workloads was measured twice", split)
    found: list[ModelResult] = [] if again is None else [again]
    predictions, missing = [], []
    split_hash = read_split_hash(graphs, split)
    for name in names:
        directory = models / split / name
        try:
            result, predicted = score_model(directory, split, name, split_hash, test, resampling, bootstrap)
        except KernelcastError as error:
            logger.warning("%s on the %s split is left out: %s", name, split, error)
            missing.append(MissingModel(split, name, str(error)))
            continue
        found.append(result)
        predictions.append(prediction_table(split, name, test, predicted))
    found.sort(key=lambda result: -result.metrics["kendall_tau"].value if "kendall_tau" in result.metrics else 2.0)
    scores = summarise(test, test.log_seconds, "log_seconds")
    return Scored(
        SplitResult(
            split=split,
            known_workloads=known,
            train_programs=len(rows.train),
            test_programs=len(test),
            test_workloads=tuple(entry.workload for entry in scores.per_workload),
            unranked=scores.unranked,
            resampling=resampling.value,
            models=tuple(found),
        ),
        predictions,
        missing,
    )


def score_model(
    directory: Path, split: str, name: str, split_hash: str, test: Programs, resampling: Any, bootstrap: Bootstrap
) -> tuple[ModelResult, Any]:
    """Loads one model and scores its predictions for `test`.

    Raises:
        KernelcastError: it is missing, torn, of another version or split, or predicts what is no number.
    """
    from kernelcast.evaluation.results import ModelResult, Role
    from kernelcast.evaluation.scoring import checked, score, timed
    from kernelcast.models.saved import load_model

    training = read_training(directory, split, split_hash)
    model = load_model(directory / "model")
    predicted, microseconds = timed(lambda: model.predict(test), len(test))
    predicted = checked(predicted, len(test), name)
    metrics, per_workload = score(test, predicted, model.kind, resampling, bootstrap)
    learned = bool(training["learned"])
    result = ModelResult(
        model=name,
        role=Role.LEARNED if learned else Role.BASELINE,
        kind=str(model.kind),
        loss=str(training["loss"]) if learned else "",
        programs=len(test),
        metrics=metrics,
        per_workload=per_workload,
        train_seconds=float(training["seconds"]) if learned else None,
        predict_microseconds=microseconds,
    )
    return result, predicted


def read_training(directory: Path, split: str, split_hash: str) -> dict[str, Any]:
    """How a model was trained.

    Raises:
        MissingInputError: it was not, or training did not finish.
        MalformedDataError: a field is missing, or it was trained on another split, on other graphs or on a split of
            this name that was made otherwise, so that it may have learned from the programs that it would be tested on.
    """
    path = directory / "training.json"
    training = read_json(path, "train")
    for field in ("split", "split_hash", "loss", "seconds", "learned"):
        if not isinstance(training, dict) or field not in training:
            raise MalformedDataError(f"{path} has no field {field}; run `dvc repro -f train`")
    if training["split"] != split:
        raise MalformedDataError(f"{path} is of the split {training['split']}, not {split}; run `dvc repro -f train`")
    if training["split_hash"] != split_hash:
        raise MalformedDataError(
            f"{path} is of other graphs or of a split made otherwise ({training['split_hash']}, now {split_hash}), the "
            "model may have learned from what are test programs now; run `dvc repro train`"
        )
    return training


def log_results(run: TrackedRun, directory: Path, results: Results) -> None:
    """Records metrics, tables and plots with the run."""
    from kernelcast.evaluation.table import nested_metrics

    for split, of_model in nested_metrics(results).items():
        for model, values in of_model.items():
            run.metrics({f"{split}/{model}/{name}": value for name, value in values.items()})
    if results.noise is not None:
        run.metrics(noise_metrics(results.noise))
    run.artifact(directory / "plots", "plots")
    for name in ("table.csv", "leaderboard.csv", "per_workload.csv", "results.json"):
        run.artifact(directory / name)


def noise_metrics(noise: Noise) -> dict[str, float]:
    """The distance between two measurements of a program as metrics."""
    values = {
        f"noise/{noise.source}/programs": float(noise.programs),
        f"noise/{noise.source}/ratio_median": noise.ratio_median.value,
        f"noise/{noise.source}/ratio_p90": noise.ratio_p90.value,
    }
    if noise.kendall_tau is not None:
        values[f"noise/{noise.source}/kendall_tau"] = noise.kendall_tau.value
    return values


def print_tables(results: Results) -> None:
    """Prints the results; to a file or pipe in lines long enough for the table."""
    from rich.console import Console

    from kernelcast.evaluation.table import noise_sentence, terminal_tables

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for entry in terminal_tables(results):
        console.print(entry)
        console.print()
    console.print(noise_sentence(results))
