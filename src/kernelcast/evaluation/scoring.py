"""From predictions to a model's result on one split, and the noise ceiling as one more row."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation.aggregation import task_weights
from kernelcast.evaluation.bootstrap import Bootstrap, Estimate, Replicates, Resampled, Resampling
from kernelcast.evaluation.comparisons import Standing
from kernelcast.evaluation.noise import PairedLabels, Source
from kernelcast.evaluation.pooling import pooled_order
from kernelcast.evaluation.results import CEILINGS, ModelResult, NetworkScores, Role
from kernelcast.evaluation.summary import (
    METRIC_BY_NAME,
    METRICS,
    WorkloadScores,
    pooling_over_workloads,
)
from kernelcast.models.protocol import PredictionKind

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs

TIMED_CALLS = 3
"""Calls of `predict` that are timed, after one that is not."""

TIMED_PROGRAMS = 512
"""At most so many programs are predicted in a timed call: about what a tuner asks for at once."""

NetworkWeights = Mapping[str, Float64[np.ndarray, "workloads"]]
"""How often each network runs each workload of the data set; see `aggregation.network_weights`."""


@dataclass(frozen=True)
class Scores:
    """All figures of one model's predictions.

    Attributes:
        metrics: estimate by metric name, workloads with equal weight.
        by_task_weight: with each workload as often as all networks run it.
        over_networks: mean over the networks.
        per_workload: mean over the seeds, without intervals.
        per_network: by network.
        standings: by metric, for comparisons with other models.
    """

    metrics: dict[str, Estimate]
    by_task_weight: dict[str, Estimate]
    over_networks: dict[str, Estimate]
    per_workload: tuple[WorkloadScores, ...]
    per_network: tuple[NetworkScores, ...]
    standings: dict[str, Standing]


def score(
    programs: Programs,
    predicted: Float64[np.ndarray, "seeds programs"],
    kind: PredictionKind | str,
    name: str,
    resampled: Resampled,
    networks: NetworkWeights,
) -> Scores:
    """Every metric, over workloads, networks and seeds.

    Args:
        programs: what was predicted.
        predicted: the predictions, one row a seed.
        kind: what they mean.
        name: of the model.
        resampled: draws of `programs`.
        networks: how often each network runs each workload of the data set.
    """
    replicates = resampled.replicates(predicted, kind)
    replicates = {metric.name: replicates[metric.name] for metric in METRICS if metric.name in replicates}
    metrics, standings = {}, {}
    for metric, found in replicates.items():
        pooling = pooling_over_workloads(METRIC_BY_NAME[metric])
        value, drawn = resampled.pooled(found, pooling, np.ones(len(found.workloads)))
        metrics[metric], means = resampled.over_seeds(value, drawn, name)
        standings[metric] = Standing(metrics[metric].value, means, found.values.mean(axis=0))
    weights = task_weights(networks)
    by_task_weight = {} if weights is None else _weighted(replicates, weights, name, resampled, 1)
    per_network, over_networks = _over_networks(programs, replicates, networks, name, resampled)
    return Scores(
        metrics, by_task_weight, over_networks, _per_workload(programs, replicates, resampled), per_network, standings
    )


def _per_workload(
    programs: Programs, replicates: Mapping[str, Replicates], resampled: Resampled
) -> tuple[WorkloadScores, ...]:
    of_workload: list[dict[str, float]] = [{} for _ in resampled.workloads]
    for metric, found in replicates.items():
        for place, value in zip(found.workloads.tolist(), found.values.mean(axis=0).tolist(), strict=True):
            of_workload[place][metric] = value
    return tuple(
        WorkloadScores(programs.workload_names[number], len(drawn.rows), values)
        for number, drawn, values in zip(resampled.workloads.tolist(), resampled.programs, of_workload, strict=True)
    )


def _weighted(
    replicates: Mapping[str, Replicates],
    weights: Float64[np.ndarray, "workloads"],
    name: str,
    resampled: Resampled,
    stream: int,
) -> dict[str, Estimate]:
    """Estimates with weights over all workloads of the data set; a metric that no weighted workload has is absent."""
    estimates = {}
    for metric, found in replicates.items():
        of_found = weights[resampled.workloads[found.workloads]]
        if of_found.any():
            value, drawn = resampled.pooled(found, METRIC_BY_NAME[metric].pooling, of_found, stream)
            estimates[metric], _ = resampled.over_seeds(value, drawn, name)
    return estimates


def _over_networks(
    programs: Programs,
    replicates: Mapping[str, Replicates],
    networks: NetworkWeights,
    name: str,
    resampled: Resampled,
) -> tuple[tuple[NetworkScores, ...], dict[str, Estimate]]:
    """Every network's own figures, and their mean."""
    estimates: dict[str, dict[str, Estimate]] = {network: {} for network in networks}
    over = {}
    for metric, found in replicates.items():
        values, draws = [], []
        for stream, (network, weights) in enumerate(networks.items(), 2):
            of_found = weights[resampled.workloads[found.workloads]]
            if of_found.any():
                value, drawn = resampled.pooled(found, METRIC_BY_NAME[metric].pooling, of_found, stream)
                estimates[network][metric], _ = resampled.over_seeds(value, drawn, name)
                values.append(value)
                draws.append(drawn)
        if values:
            over[metric], _ = resampled.over_seeds(np.mean(values, axis=0), np.mean(draws, axis=0), name)
    sizes = {number: len(drawn.rows) for number, drawn in zip(resampled.workloads, resampled.programs, strict=True)}
    per_network = []
    for network, weights in networks.items():
        tested = [size for number, size in sizes.items() if weights[number] > 0]
        if tested:
            per_network.append(NetworkScores(network, len(tested), sum(tested), estimates[network]))
    return tuple(per_network), over


def ceiling(
    programs: Programs,
    test: Int64[np.ndarray, "test"],
    labels: PairedLabels,
    resampling: Resampling,
    bootstrap: Bootstrap,
    networks: NetworkWeights | None = None,
    noise_ratio: float | None = None,
) -> ModelResult | None:
    """The noise ceiling beside models that are scored on `test`: one measurement as a prediction of the other.

    Of programs that were measured again there are few, and whether a model has seen them does not matter here: those of
    all workloads in `test` are taken, and the order is pooled over the workloads, one figure however workloads count;
    a network's own few give none. Top-k scores and the tile-size APE are left out where they are fewer than the test
    programs: to choose the best of few is another task. Halves are there for every program, and are scored on the test
    programs as models are.

    Args:
        programs: all of them.
        test: rows of the test programs.
        labels: both measurements.
        resampling: what the intervals draw again.
        bootstrap: how they are made.
        networks: how often each network runs each workload of the data set.
        noise_ratio: times that differ by this factor or less may be noise; None where it is unknown.

    Returns:
        None where no program has two measurements.
    """
    rows = test
    if labels.source == Source.VISITS:
        rows = np.flatnonzero(np.isin(programs.workload, programs.workload[test]))
    chosen = programs.select(rows)
    found, pairs = labels.rows_of(chosen)
    if not len(found):
        return None
    again = dataclasses.replace(chosen.select(found), log_seconds=labels.first_log_seconds[pairs])
    predicted = labels.second_log_seconds[pairs]
    kind, name = PredictionKind.LOG_SECONDS, CEILINGS[labels.source]
    resampled = Resampled.of(again, resampling, bootstrap, noise_ratio)
    scores = score(again, predicted[None], kind, name, resampled, networks or {})
    figures = [scores.metrics, scores.by_task_weight, scores.over_networks]
    per_network = scores.per_network
    if labels.source == Source.VISITS:
        per_network = ()
        order = pooled_order(again.log_seconds, predicted, again.workload, resampling, bootstrap, noise_ratio)
        pooled: dict[str, Estimate] = {}
        if order:
            pooled = {"kendall_tau": order.kendall_tau, "pairwise_accuracy": order.pairwise_accuracy}
            if order.clear_pairwise_accuracy:
                pooled["clear_pairwise_accuracy"] = order.clear_pairwise_accuracy
        choices = ("top_1", "top_5", "tile_size_ape") if len(found) < len(test) else ()
        figures = [
            {metric: pooled.get(metric, estimate) for metric, estimate in of.items() if metric not in choices}
            for of in figures
        ]
    return ModelResult(
        name, Role.CEILING, kind.value, "", len(found), figures[0], scores.per_workload, None, None,
        by_task_weight=figures[1], over_networks=figures[2], per_network=per_network,
    )  # fmt: skip


def checked(predicted: np.ndarray, programs: int, model: str) -> Float64[np.ndarray, "programs"]:
    """`predicted` as float64.

    Raises:
        MalformedDataError: the model predicts another number of values, or a NaN or infinity.
    """
    values = np.asarray(predicted, dtype=np.float64)
    if values.shape != (programs,):
        raise MalformedDataError(
            f"the model {model} predicts an array of shape {values.shape} for {programs} programs; train it again"
        )
    broken = int(np.count_nonzero(~np.isfinite(values)))
    if broken:
        raise MalformedDataError(
            f"the model {model} predicts NaN or infinity for {broken} of {programs} programs; "
            "train it again with a lower learning rate"
        )
    return values


def predict_microseconds(predict: Callable[[Programs], np.ndarray], programs: Programs) -> float:
    """Microseconds per program of one call of `predict` (median of several) for up to `TIMED_PROGRAMS` programs."""
    some = programs.select(np.unique(np.linspace(0, len(programs) - 1, TIMED_PROGRAMS).astype(np.int64)))
    predict(some)
    seconds = []
    for _ in range(TIMED_CALLS):
        started = time.perf_counter()
        predict(some)
        seconds.append(time.perf_counter() - started)
    return 1e6 * median(seconds) / max(len(some), 1)
