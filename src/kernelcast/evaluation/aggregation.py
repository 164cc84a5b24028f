"""From the figures of single workloads to one figure: equal weight, by task weight, per network and over networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float64


class Aggregation(StrEnum):
    """How workloads count in one figure."""

    WORKLOADS = "workloads"
    """Each workload once: it is what a tuner is called for, however often a network runs it."""

    TASK_WEIGHT = "task weight"
    """Each workload as often as the networks of the data set run it; those that no network runs do not count."""

    NETWORKS = "networks"
    """Mean over the networks of their own figures, each network once (an application of Kaufman et al. 2021)."""


class Pooling(StrEnum):
    r"""How the figures x of workloads with weights a and best times b become one."""

    MEAN = "mean"
    r"""$\sum a x / \sum a$."""

    BEST_OVER_CHOSEN = "best over chosen"
    r"""$\sum a b / \sum a (b / x)$ with x the top-k score, so that b / x is the time of the chosen program.

    The time of a network of the best programs over that of the same network of the chosen ones. Source: Zheng et al.,
    TenSet (NeurIPS Datasets and Benchmarks 2021), section 5.
    """

    OF_BEST = "share of the best"
    r"""$\sum a b x / \sum a b$ with x the error relative to the best time. Source: Kaufman et al. 2021, section 5."""


class Weighted(Protocol):
    """A workload that networks run; `StoredWorkload` is one."""

    @property
    def networks(self) -> Mapping[str, int]:
        """How often which network runs it."""


def pooled(
    pooling: Pooling,
    values: Float64[np.ndarray, "*cases workloads"],
    best_log_seconds: Float64[np.ndarray, "*cases workloads"],
    weights: Float64[np.ndarray, "*cases workloads"],
) -> Float64[np.ndarray, "*cases"]:
    """One figure of the figures of several workloads.

    Args:
        pooling: how.
        values: of every workload.
        best_log_seconds: time of the fastest program of every workload; only ratios between workloads matter.
        weights: of every workload, at least one above 0 in each case.
    """
    if pooling is Pooling.MEAN:
        return (weights * values).sum(axis=-1) / weights.sum(axis=-1)
    best = weights * np.exp(best_log_seconds)
    if pooling is Pooling.OF_BEST:
        return (best * values).sum(axis=-1) / best.sum(axis=-1)
    return best.sum(axis=-1) / (best / values).sum(axis=-1)


def network_weights(workloads: Sequence[Weighted]) -> dict[str, Float64[np.ndarray, "workloads"]]:
    """How often every network runs each workload, by name of the network in alphabetical order."""
    names = sorted({name for workload in workloads for name in workload.networks})
    return {
        name: np.array([workload.networks.get(name, 0) for workload in workloads], dtype=np.float64) for name in names
    }


def task_weights(networks: Mapping[str, Float64[np.ndarray, "workloads"]]) -> Float64[np.ndarray, "workloads"] | None:
    """How often all networks together run each workload; None where there is no network."""
    return np.sum(list(networks.values()), axis=0) if networks else None


def of_network(
    weights: Float64[np.ndarray, "workloads"], numbers: np.ndarray
) -> tuple[Bool[np.ndarray, "numbers"], Float64[np.ndarray, "chosen"]]:
    """Which of the workloads `numbers` have a weight, and their weights."""
    of_numbers = weights[numbers]
    return of_numbers > 0, of_numbers[of_numbers > 0]
