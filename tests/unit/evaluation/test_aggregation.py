from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.evaluation.aggregation import Pooling, network_weights, pooled, task_weights
from kernelcast.evaluation.bootstrap import Bootstrap, Resampled, Resampling
from kernelcast.evaluation.scoring import score

SETTINGS = Bootstrap(samples=100, confidence=0.95, seed=0)


@dataclass(frozen=True)
class Task:
    networks: dict[str, int]


TASKS = (Task({"a": 2}), Task({"a": 1, "b": 3}), Task({}))


def test_a_workload_weighs_as_often_as_networks_run_it() -> None:
    networks = network_weights(TASKS)
    assert {name: weights.tolist() for name, weights in networks.items()} == {"a": [2, 1, 0], "b": [0, 3, 0]}
    assert task_weights(networks).tolist() == [2, 4, 0]
    assert task_weights(network_weights(TASKS[2:])) is None


shares = st.floats(0.05, 1.0)
rows = st.lists(st.tuples(shares, st.floats(-14, -3), st.integers(1, 5)), min_size=1, max_size=6)


@settings(deadline=None)
@given(rows, st.sampled_from(list(Pooling)))
def test_a_pooled_figure_lies_among_those_of_the_workloads(data: list[tuple], pooling: Pooling) -> None:
    values, best, weights = np.array(data).T
    figure = pooled(pooling, values, best, weights)
    assert values.min() - 1e-12 <= figure <= values.max() + 1e-12
    # neither the unit of time nor that of the weights matters
    assert pooled(pooling, values, best + 2, 3 * weights) == pytest.approx(figure)


@settings(deadline=None)
@given(rows)
def test_pooled_top_k_and_tile_size_ape_are_ratios_of_sums_of_times(data: list[tuple]) -> None:
    values, best, weights = np.array(data).T
    fastest = np.exp(best)
    chosen = fastest / values
    expected = (weights * fastest).sum() / (weights * chosen).sum()
    assert pooled(Pooling.BEST_OVER_CHOSEN, values, best, weights) == pytest.approx(expected)
    errors = chosen / fastest - 1
    lost = (weights * np.abs(chosen - fastest)).sum() / (weights * fastest).sum()
    assert pooled(Pooling.OF_BEST, errors, best, weights) == pytest.approx(lost)


def test_networks_weigh_their_own_workloads_and_count_once_each(make_programs) -> None:
    truth = np.log([1.0, 2.0, 100.0, 150.0, 10.0, 90.0])
    programs = make_programs(truth, [0, 0, 1, 1, 2, 2])
    # the slower one first on the first and second workload
    predicted = np.array([[2.0, 1.0, 2.0, 1.0, 1.0, 2.0]])
    resampled = Resampled.of(programs, Resampling.WORKLOADS_AND_PROGRAMS, SETTINGS)
    scores = score(programs, predicted, "rank", "model", resampled, network_weights(TASKS))
    by_network = {entry.network: entry for entry in scores.per_network}
    assert [(name, entry.workloads, entry.programs) for name, entry in by_network.items()] == [("a", 2, 4), ("b", 1, 2)]
    top = {name: entry.metrics["top_1"].value for name, entry in by_network.items()}
    assert top == pytest.approx({"a": (2 * 1 + 100) / (2 * 2 + 150), "b": 100 / 150})
    assert scores.by_task_weight["top_1"].value == pytest.approx((2 * 1 + 4 * 100) / (2 * 2 + 4 * 150))
    assert scores.over_networks["top_1"].value == pytest.approx(np.mean(list(top.values())))
    assert scores.by_task_weight["kendall_tau"].value == -1.0
    assert scores.metrics["kendall_tau"].value == pytest.approx(-1 / 3)
    assert scores.metrics["tile_size_ape"].value == pytest.approx((1 + 50 + 0) / (1 + 100 + 10))
    for estimates in (scores.metrics, scores.by_task_weight, scores.over_networks, by_network["a"].metrics):
        for estimate in estimates.values():
            assert estimate.low <= estimate.value + 1e-9
            assert estimate.value <= estimate.high + 1e-9


def test_without_networks_there_is_nothing_to_weigh_by(make_programs) -> None:
    programs = make_programs([0.0, 1.0], [0, 0])
    resampled = Resampled.of(programs, Resampling.PROGRAMS, SETTINGS)
    scores = score(programs, np.array([[0.0, 1.0]]), "rank", "model", resampled, {})
    assert (scores.by_task_weight, scores.over_networks, scores.per_network) == ({}, {}, ())
    # a network whose workloads are not tested has no figures either
    elsewhere = score(programs, np.array([[0.0, 1.0]]), "rank", "model", resampled, {"a": np.array([0.0])})
    assert (elsewhere.by_task_weight, elsewhere.over_networks, elsewhere.per_network) == ({}, {}, ())
