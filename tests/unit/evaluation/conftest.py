from collections.abc import Callable, Sequence

import numpy as np
import pytest

from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.comparisons import Comparison
from kernelcast.evaluation.noise import Noise, WorkloadNoise
from kernelcast.evaluation.results import (
    RESULTS_VERSION,
    MissingModel,
    ModelResult,
    NetworkScores,
    Results,
    Role,
    SplitResult,
)
from kernelcast.evaluation.summary import WorkloadScores
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import FlatFeatures


def programs_of(log_seconds: Sequence[float], workload: Sequence[int], names: Sequence[str] = ()) -> Programs:
    """Programs with hardly a view: scoring looks at labels and workloads only."""
    n = len(log_seconds)
    return Programs.in_memory(
        {"features": FlatFeatures(("flops",), np.zeros((n, 1), dtype=np.float32))},
        log_seconds=np.asarray(log_seconds, dtype=np.float64),
        workload=np.asarray(workload, dtype=np.int32),
        workload_names=tuple(names) or tuple(f"w{i}" for i in range(max(workload, default=0) + 1)),
        program_key=np.array([f"{i:016x}" for i in range(n)], dtype=object),
        machines=(Machine(2, 8, 1e11, 1e10, 1 << 20),),
        feature_version="1",
    )


@pytest.fixture
def make_programs() -> Callable[..., Programs]:
    return programs_of


def result_of(model: str, role: Role, tau: float, **metrics: float) -> ModelResult:
    values = {"kendall_tau": tau, "pairwise_accuracy": (tau + 1) / 2, **metrics}
    seeds = () if role == Role.CEILING else (0, 1) if model == "gcn" else (0,)
    spread = 0.04 if len(seeds) > 1 else None
    estimates = {name: Estimate(value, value - 0.2, value + 0.1, spread) for name, value in values.items()}
    return ModelResult(
        model=model,
        role=role,
        kind="log_seconds" if "mape" in metrics else "rank",
        loss="rank" if role == Role.LEARNED else "",
        programs=12,
        metrics=estimates,
        per_workload=(
            WorkloadScores("matmul", 6, values),
            WorkloadScores("softmax", 6, {"kendall_tau": 0.5}),
            WorkloadScores("lonely", 1, {}),
        ),
        train_seconds=1.5 if role == Role.LEARNED else None,
        predict_microseconds=None if role == Role.CEILING else 4.25,
        seeds=seeds,
        folders=tuple(f"{model}@{seed}" if len(seeds) > 1 else model for seed in seeds),
        train_seconds_deviation=None if spread is None else 0.5,
        by_task_weight={"kendall_tau": Estimate(tau / 2, tau / 2 - 0.2, tau / 2 + 0.1, spread)},
        over_networks={"kendall_tau": Estimate(tau / 4, tau / 4 - 0.2, tau / 4 + 0.1, spread)},
        per_network=() if role == Role.CEILING else (NetworkScores("resnet18", 2, 12, estimates),),
    )


@pytest.fixture
def results() -> Results:
    """Two splits with a learned model, a baseline and the noise ceiling; one model is missing."""
    models = (
        result_of("measured again", Role.CEILING, 0.95, mape=0.02, log_rmse=0.03),
        result_of("gcn", Role.LEARNED, 0.5),
        result_of("xgboost", Role.LEARNED, 0.1, mape=0.4, log_rmse=0.5),
        result_of("random", Role.BASELINE, -0.05),
    )
    comparisons = (
        Comparison("gcn", "xgboost", "kendall_tau", 0.4, 0.1, 0.6, 12, 0.01, 0.02),
        Comparison("gcn", "random", "kendall_tau", 0.55, -0.1, 0.9, 12, 0.0001, 0.0003),
        Comparison("xgboost", "random", "kendall_tau", 0.15, -0.1, 0.4, 12, 0.3, 0.3),
    )
    workloads, unranked = ("matmul", "softmax", "lonely"), ("lonely",)
    return Results(
        version=RESULTS_VERSION,
        confidence=0.95,
        bootstrap_samples=100,
        label="minimum",
        reference_correction="none",
        spread_limit=0.5,
        noise=Noise(
            source="visits",
            programs=5,
            unpaired=36,
            ratio_median=Estimate(1.02, 1.01, 1.03),
            ratio_p90=Estimate(1.07, 1.05, 1.2),
            kendall_tau=Estimate(0.9, 0.7, 1.0),
            comparisons=4,
            workloads=(WorkloadNoise("matmul", 3, 1.01, 1.02, 1.0), WorkloadNoise("softmax", 1, 1.3, 1.3, None)),
        ),
        splits=(
            SplitResult("random", True, 30, 13, workloads, unranked, "programs", models, comparisons),
            SplitResult("workload", False, 28, 13, workloads, unranked, "workloads and programs", models[:2]),
        ),
        missing=(MissingModel("workload", "xgboost", "model.json does not exist; run `dvc repro train` first"),),
    )
