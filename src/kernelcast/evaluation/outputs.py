"""Writes everything that `evaluate` leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from kernelcast.evaluation import plots
from kernelcast.evaluation.machine import MachineState
from kernelcast.evaluation.machine_plots import machine_figure
from kernelcast.evaluation.predictions import predictions_of, write_predictions
from kernelcast.evaluation.results import RESULTS_FILE, Results, write_results
from kernelcast.evaluation.table import (
    COMPARISON_COLUMNS,
    NETWORK_COLUMNS,
    comparison_rows,
    long_rows,
    nested_metrics,
    per_network_rows,
    per_workload_rows,
    wide_rows,
    write_csv,
)
from kernelcast.files import atomic_directory, write_json

METRICS_FILE = "metrics.json"
LEARNING_COLUMNS = ("split", "model", "metric", "step", "value")
DOTS_PER_INCH = 120


def write_outputs(
    directory: Path, results: Results, predictions: pa.Table, models: Path, states: list[MachineState]
) -> None:
    """Writes results, tables, learning curves, predictions and plots.

    `results.json` and `metrics.json` are removed first and written last: where they are, all files belong together.

    Args:
        directory: where to.
        results: the numbers.
        predictions: columns of `PREDICTION_SCHEMA`.
        models: folder of the trained models, for their learning curves.
        states: of the machine, by device.
    """
    for name in (RESULTS_FILE, METRICS_FILE):
        (directory / name).unlink(missing_ok=True)
    write_predictions(directory, predictions)
    write_csv(directory / "table.csv", wide_rows(results))
    write_csv(directory / "leaderboard.csv", long_rows(results))
    write_csv(directory / "per_workload.csv", per_workload_rows(results))
    write_csv(directory / "per_network.csv", per_network_rows(results), NETWORK_COLUMNS)
    write_csv(directory / "comparisons.csv", comparison_rows(results), COMPARISON_COLUMNS)
    write_csv(directory / "learning.csv", learning_rows(results, models), LEARNING_COLUMNS)
    write_plots(directory / "plots", results, predictions, states)
    write_metric_files(directory / "metrics", results)
    write_results(directory, results)
    write_json(directory / METRICS_FILE, nested_metrics(results))


def write_metric_files(directory: Path, results: Results) -> None:
    """Writes one small file a split and model, which `dvc metrics show` lists as one row each."""
    with atomic_directory(directory) as temporary:
        for split, of_model in nested_metrics(results).items():
            for model, values in of_model.items():
                write_json(temporary / split / f"{model.replace(' ', '_')}.json", values)


def learning_rows(results: Results, models: Path) -> list[dict[str, Any]]:
    """The learning curves of all models, one row a step and metric; `model` is the folder, which has the seed."""
    return [
        {"split": result.split, "model": folder, "metric": metric, "step": step, "value": value}
        for result in results.splits
        for model in result.models
        for folder in model.folders
        for history in [models / result.split / folder / "history.csv"]
        if history.is_file()
        for metric, points in plots.read_history(history).items()
        for step, value in points
    ]


def write_plots(directory: Path, results: Results, predictions: pa.Table, states: list[MachineState]) -> None:
    """Draws the leaderboard, every split's tau by workload, every model's predictions and the machine's state.

    Of a model with several seeds the predictions of the first.
    """
    with atomic_directory(directory) as temporary:
        if states:
            machine_figure(states).savefig(temporary / "machine_state.png", dpi=DOTS_PER_INCH)
        plots.leaderboard_figure(results.splits).savefig(temporary / "leaderboard.png", dpi=DOTS_PER_INCH)
        for result in results.splits:
            plots.tau_figure(result).savefig(temporary / f"{result.split}_tau_by_workload.png", dpi=DOTS_PER_INCH)
            for model in result.models:
                if not model.seeds:
                    continue  # the noise ceiling predicts nothing
                rows = predictions_of(predictions, result.split, model.model, model.seeds[0])
                figure = plots.predictions_figure(rows, model.kind, f"{model.model}, {result.split} split")
                figure.savefig(temporary / f"{result.split}_{model.model}.png", dpi=DOTS_PER_INCH)
