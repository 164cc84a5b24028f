"""Predicting kernels of a network by a trained model, to decide on fusion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelcast.errors import ConfigError
from kernelcast.graphs.dataset.store import StoredTarget, feature_version
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.models.analytical import AnalyticalModel
from kernelcast.models.random_model import RandomModel
from kernelcast.models.trained_on import TrainedOn
from kernelcast.records import Workload
from kernelcast.tuning.candidates import Reading, read_candidates
from kernelcast.tuning.fusion import chosen_traces, model_predictor
from kernelcast.tuning.schedules import ChosenSchedule
from kernelcast.tuning.trained import TrainedModel
from kernelcast.tvm_compat import replayed_schedule, resolve_target

OPTIONS = ViewOptions(views=("features", "statements"))
MACHINE = Machine(1, 8, 1e11, 1e10, 2**20)


class Silent:
    """A MetricLog that keeps nothing."""

    def metrics(self, values: Any, step: int) -> None:
        pass


@pytest.fixture(scope="module")
def target() -> dict[str, Any]:
    return resolve_target({"kind": "llvm", "num-cores": 1})


@pytest.fixture(scope="module")
def small() -> Workload:
    return workloads.matmul("small", rows=16, columns=16, depth=16)


@pytest.fixture(scope="module")
def programs(small: Workload, target: dict[str, Any]) -> Programs:
    """Two programs, as a model that learns nothing needs them to know the version of the features."""
    drawn = sample_candidates(small, target, 2, seed=0)
    read = read_candidates(
        [replayed_schedule(small, one.trace) for one in drawn],
        Reading(OPTIONS.views, OPTIONS, MACHINE.cache_bytes, target),
    )
    columns = {name: view.columns() for name, view in read.views.items()}
    return Programs.in_memory(
        read.views,
        log_seconds=np.zeros(2),
        workload=np.zeros(2, dtype=np.int32),
        workload_names=("small",),
        program_key=np.array([one.program_key for one in drawn]),
        machines=(MACHINE,),
        feature_version=feature_version(OPTIONS, columns),
    )


def trained(model: Any, programs: Programs, target: dict[str, Any]) -> TrainedModel:
    model.fit(programs, programs, Silent())
    columns = {name: programs.columns(name) for name in programs.sources}
    known = (StoredTarget(target, "", MACHINE, ""),)
    return TrainedModel(
        model, TrainedOn(OPTIONS.views, OPTIONS, columns, programs.feature_version, known, slope=1.0, residual=0.1)
    )


def test_a_larger_kernel_is_predicted_to_take_longer(
    small: Workload, programs: Programs, target: dict[str, Any]
) -> None:
    predict = model_predictor(trained(AnalyticalModel(None, None, 0), programs, target), target)
    large = workloads.matmul("large", rows=256, columns=256, depth=256)
    schedules = {
        workload.key: ChosenSchedule(workload, sample_candidates(workload, target, 1, seed=0)[0].trace, 1e-3)
        for workload in (small, large)
    }
    traces = chosen_traces(schedules)
    fast, slow = (predict(workload, traces[workload.key]) for workload in (small, large))
    assert fast.shape == slow.shape == (1,)
    assert fast[0] < slow[0] - np.log(10)
    assert predict(small, traces[small.key] * 2).tolist() == [fast[0], fast[0]]


def test_a_model_that_only_ranks_is_refused(programs: Programs, target: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"only ranks the programs of one; choose a model that predicts ln\(seconds\)"
    ):
        model_predictor(trained(RandomModel(None, None, 0), programs, target), target)


def test_a_model_of_another_target_is_refused(programs: Programs, target: dict[str, Any]) -> None:
    model = trained(AnalyticalModel(None, None, 0), programs, target)
    with pytest.raises(ConfigError, match="the model was trained for"):
        model_predictor(model, {**target, "num-cores": 2})
