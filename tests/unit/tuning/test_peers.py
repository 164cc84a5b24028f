"""TVM's own cost models, given the candidates and results of a search."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelcast.measurement.sampling import sample_candidates, tune_context
from kernelcast.measurement.workloads import softmax
from kernelcast.records import Workload
from kernelcast.tuning.peers import random_model, tvm_mlp_model, tvm_xgb_model
from kernelcast.tvm_compat import replayed_schedule, resolve_target

PEERS: dict[str, Callable[[int], Any]] = {
    "random": random_model,
    "tvm_xgb": lambda seed: tvm_xgb_model(seed, 1),
    "tvm_mlp": lambda seed: tvm_mlp_model(seed, 1),
}


@pytest.fixture(scope="module")
def workload() -> Workload:
    return softmax("softmax", rows=32, columns=64)


@pytest.fixture(scope="module")
def context(workload: Workload) -> Any:
    return tune_context(workload, resolve_target({"kind": "llvm", "num-cores": 2}), 0, "replay-trace")


@pytest.fixture(scope="module")
def candidates(workload: Workload) -> list[Any]:
    from tvm.s_tir.meta_schedule import MeasureCandidate

    drawn = sample_candidates(workload, resolve_target({"kind": "llvm", "num-cores": 2}), 128, seed=0)
    assert len(drawn) >= 110
    return [MeasureCandidate(replayed_schedule(workload, each.trace), []) for each in drawn]


def results_of(candidates: list[Any]) -> list[Any]:
    """A machine on which explicit unrolling makes a program ten times as fast; the first program fails."""
    from tvm.s_tir.meta_schedule.runner import RunnerResult

    seconds = [1e-4 if "pragma_unroll_explicit" in each.sch.mod.script() else 1e-3 for each in candidates]
    return [RunnerResult(None, "failed"), *(RunnerResult([each], None) for each in seconds[1:])]


@pytest.mark.parametrize("name", PEERS)
def test_equal_seeds_give_equal_scores_whatever_else_draws(name: str, context: Any, candidates: list[Any]) -> None:
    first, second, third = (PEERS[name](seed) for seed in (1, 1, 2))
    np.random.seed(7)  # noqa: NPY002
    state = np.random.get_state()[1]  # noqa: NPY002
    scores = first.predict(context, candidates[:8])
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    np.random.rand(3)  # noqa: NPY002
    random.random()
    np.testing.assert_array_equal(second.predict(context, candidates[:8]), scores)
    assert not np.array_equal(third.predict(context, candidates[:8]), scores)


@pytest.mark.parametrize("name", ["tvm_xgb", "tvm_mlp"])
def test_tvm_17_they_learn_with_the_installed_libraries(name: str, context: Any, candidates: list[Any]) -> None:
    results = results_of(candidates)
    fast = np.array([result.run_secs is not None and float(result.run_secs[0]) < 5e-4 for result in results])
    assert 0.1 < fast.mean() < 0.9
    model = PEERS[name](0)
    for start in range(0, 104, 52):
        model.predict(context, candidates)
        model.update(context, candidates[start : start + 52], results[start : start + 52])
    scores = model.predict(context, candidates)
    assert scores[fast].mean() > scores[~fast].mean() + scores.std() / 2
    # one program alone, and again
    np.testing.assert_array_equal(model.predict(context, candidates[:1]), model.predict(context, candidates[:1]))
