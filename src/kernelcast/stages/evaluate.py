"""Scores every model on every split with the same metrics."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from omegaconf import DictConfig

from kernelcast.errors import ConfigError, MalformedDataError, MissingInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from kernelcast.evaluation.bootstrap import Bootstrap
    from kernelcast.evaluation.comparisons import Standing
    from kernelcast.evaluation.noise import Noise, PairedLabels
    from kernelcast.evaluation.results import MissingModel, ModelResult, Results, SplitResult
    from kernelcast.evaluation.scoring import NetworkWeights
    from kernelcast.graphs.dataset.store import Description
    from kernelcast.graphs.programs import Programs
    from kernelcast.records import Measurements
    from kernelcast.stages.tracking import TrackedRun

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Basis:
    """What every split and model is scored by.

    Attributes:
        bootstrap: how intervals are made.
        labels: both measurements of the programs that have two.
        noise_ratio: times that differ by this factor or less may be noise; None where nothing was measured twice.
        networks: how often each network runs each workload.
    """

    bootstrap: Bootstrap
    labels: PairedLabels
    noise_ratio: float | None
    networks: NetworkWeights


@dataclass(frozen=True)
class Scored:
    """One split with its models scored.

    Attributes:
        result: the numbers.
        predictions: one table a model and seed, columns of `PREDICTION_SCHEMA`.
        missing: models that could not be scored.
    """

    result: SplitResult
    predictions: list[pa.Table]
    missing: list[MissingModel]


def evaluate(config: DictConfig) -> None:
    """Scores every model in `paths.models` on the test programs of every split in `paths.graphs`.

    Folders NAME and NAME@SEED of a split are seeds of one model. A model or a seed that is missing or cannot be used is
    listed as such, and the others are scored. Prints a table a split and writes to `paths.evaluation`: `results.json`
    (everything), `metrics.json` and `metrics/` (for DVC), `table.csv` (one row a model), `leaderboard.csv` (one row a
    metric and way to count workloads), `per_workload.csv`, `per_network.csv`, `comparisons.csv` (one row a pair of
    models and metric), `learning.csv`, `predictions.parquet` and `plots/`.

    Raises:
        ConfigError: `confidence` or `bootstrap_samples` makes no sense.
        MissingInputError: there are no graphs, no measurements, or no model that can be used.
    """
    import pyarrow as pa

    from kernelcast.evaluation.aggregation import network_weights
    from kernelcast.evaluation.machine import machine_states
    from kernelcast.evaluation.noise import joined, noise_of, paired_labels
    from kernelcast.evaluation.outputs import write_outputs
    from kernelcast.evaluation.results import RESULTS_VERSION, Results
    from kernelcast.graphs.dataset.labels import Labelling
    from kernelcast.graphs.dataset.store import check_store, read_description, read_programs
    from kernelcast.graphs.splits import split_names
    from kernelcast.records import read_measurements
    from kernelcast.stages.lineage import note_graphs, note_measurements, note_splits
    from kernelcast.stages.tracking import tracked_run

    bootstrap = bootstrap_settings(config)
    if not config.measurements:
        raise ConfigError("measurements=[] is empty; name the folders that the graphs were made of")
    graphs, models = Path(config.paths.graphs), Path(config.paths.models)
    # all of it is read here anyway: figures of changed data would be none
    check_store(graphs)
    programs, description = read_programs(graphs), read_description(graphs)
    names = model_folders(models)
    with tracked_run(config, "evaluate", "evaluate") as run:
        note_graphs(run, graphs, "input", rows=len(programs))
        note_splits(run, graphs, split_names(graphs), "input")
        sources = [Path(config.paths.root, folder) for folder in config.measurements]
        folders = [read_measurements(source) for source in sources]
        for source in sources:
            note_measurements(run, source, "input")
        labelling = Labelling(description.label, description.reference_correction)
        labels = joined(
            [paired_labels(named_as_in_graphs(folder, programs, description), labelling) for folder in folders]
        )
        noise = noise_of(programs, labels, bootstrap)
        basis = Basis(
            bootstrap,
            labels,
            None if noise is None else noise.ratio_p90.value,
            network_weights(description.workloads),
        )
        scored = [score_split(split, programs, models, names, graphs, basis) for split in split_names(graphs)]
        results = Results(
            RESULTS_VERSION,
            bootstrap.confidence,
            bootstrap.samples,
            description.label,
            description.reference_correction,
            description.spread_limit,
            noise,
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


def model_folders(models: Path) -> dict[str, list[str]]:
    """The models that are there for any split, by name, with the folders of their seeds.

    Raises:
        MissingInputError: there is none.
    """
    from kernelcast.evaluation.trained import grouped

    folders = [path.name for path in models.glob("*/*") if path.is_dir() and not path.name.startswith(".")]
    if not folders:
        raise MissingInputError(f"there is no trained model in {models}; run `dvc repro train` first")
    return grouped(folders)


def score_split(
    split: str, programs: Programs, models: Path, names: dict[str, list[str]], graphs: Path, basis: Basis
) -> Scored:
    """Scores the models `names` on the test programs of one split, the noise ceiling among them."""
    from kernelcast.evaluation.bootstrap import Resampled, Resampling
    from kernelcast.evaluation.comparisons import compare
    from kernelcast.evaluation.results import SplitResult
    from kernelcast.evaluation.scoring import ceiling
    from kernelcast.evaluation.summary import defined_metrics
    from kernelcast.graphs.splits import read_split, read_split_hash
    from kernelcast.stages.model_scoring import score_model

    rows = read_split(graphs, split)
    test = programs.select(rows.test)
    if not len(test):
        raise MalformedDataError(
            f"the split {split} in {graphs} has no test programs; measure more programs or hold out a larger share"
        )
    known = set(test.workload.tolist()) <= set(programs.workload[rows.train].tolist())
    resampling = Resampling.PROGRAMS if known else Resampling.WORKLOADS_AND_PROGRAMS
    again = ceiling(programs, rows.test, basis.labels, resampling, basis.bootstrap, basis.networks, basis.noise_ratio)
    if again is None:
        logger.warning("no noise ceiling on the %s split: no program of its workloads was measured twice", split)
    found: list[ModelResult] = [] if again is None else [again]
    predictions: list[pa.Table] = []
    missing: list[MissingModel] = []
    standings: dict[str, dict[str, Standing]] = {}
    resampled = Resampled.of(test, resampling, basis.bootstrap, basis.noise_ratio)
    split_hash = read_split_hash(graphs, split)
    for name, folders in names.items():
        # a model that has no folder here is missing once, not once a seed
        here = [folder for folder in folders if (models / split / folder).is_dir()] or [name]
        directories = [models / split / folder for folder in here]
        scored = score_model(directories, split, name, split_hash, test, resampled, basis.networks, missing)
        if scored is not None:
            result, standings[name], tables = scored
            found.append(result)
            predictions += tables
    found.sort(key=lambda result: -result.metrics["kendall_tau"].value if "kendall_tau" in result.metrics else 2.0)
    ranked = {result.model: standings[result.model] for result in found if result.model in standings}
    workloads = [(test.workload_names[number], drawn.truth) for number, drawn in zip(
        resampled.workloads.tolist(), resampled.programs, strict=True
    )]  # fmt: skip
    return Scored(
        SplitResult(
            split=split,
            known_workloads=known,
            train_programs=len(rows.train),
            test_programs=len(test),
            test_workloads=tuple(name for name, _ in workloads),
            unranked=tuple(name for name, truth in workloads if not defined_metrics(truth, "rank")),
            resampling=resampling.value,
            models=tuple(found),
            comparisons=compare(ranked, basis.bootstrap),
        ),
        predictions,
        missing,
    )


def log_results(run: TrackedRun, directory: Path, results: Results) -> None:
    """Records metrics, tables and plots with the run."""
    from kernelcast.evaluation.table import nested_metrics

    for split, of_model in nested_metrics(results).items():
        for model, values in of_model.items():
            run.metrics({f"{split}/{model}/{name}": value for name, value in values.items()})
    if results.noise is not None:
        run.metrics(noise_metrics(results.noise))
    run.artifact(directory / "plots", "plots")
    for name in (
        "table.csv",
        "leaderboard.csv",
        "per_workload.csv",
        "per_network.csv",
        "comparisons.csv",
        "results.json",
    ):
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

    from kernelcast.evaluation.table import noise_sentence
    from kernelcast.evaluation.terminal import comparison_sentence, terminal_tables

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for entry in terminal_tables(results, console.width):
        console.print(entry)
        console.print()
    for result in results.splits:
        console.print(comparison_sentence(result, results.confidence), markup=False)
        console.print()
    console.print(noise_sentence(results))
