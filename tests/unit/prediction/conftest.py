"""Measurements, graphs and models of real programs of two small workloads; only the times are made up."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.utils import instantiate

from kernelcast.graphs.dataset.builders import Processes
from kernelcast.graphs.dataset.building import built_store
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.selection import Choice, Folder
from kernelcast.graphs.dataset.store import read_description, read_programs
from kernelcast.graphs.options import ViewOptions
from kernelcast.machine import Host
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.models.saved import load_model, save_model
from kernelcast.models.trained_on import TrainedOn
from kernelcast.prediction import Predictor
from kernelcast.records import (
    MEASUREMENTS_VERSION,
    Campaign,
    Measurements,
    Workload,
    measurement_table,
    write_campaign,
    write_measurements,
)
from kernelcast.tuning.trained import TrainedModel
from kernelcast.tvm_compat import resolve_target, tvm_versions

CONF = Path(__file__).resolve().parents[3] / "conf"
HOST = Host("cpu", 4, 2**30, "Linux", 1e11, 1e10, vector_lanes=16, cache_bytes=2**20)
PROGRAMS = 12
MODELS = ("lightgbm", "trees_of_rank", "lightgbm_trace")


class Silent:
    """A MetricLog that keeps nothing."""

    def metrics(self, values: Any, step: int) -> None:
        pass


@dataclass(frozen=True)
class Trained:
    """What the stages leave behind."""

    root: Path
    target: dict[str, Any]
    suite: tuple[Workload, ...]
    candidates: tuple[Candidate, ...]

    @property
    def measurements(self) -> Path:
        return self.root / "data/measurements"

    @property
    def graphs(self) -> Path:
        return self.root / "data/graphs"

    def folder(self, name: str) -> Path:
        return self.root / "data/models/workload" / name

    def predictor(self, name: str, any_target: bool = False) -> Predictor:
        return Predictor(TrainedModel.load(self.folder(name), any_target), name)

    def offline(self, name: str) -> dict[str, float]:
        """What the model predicts of the graphs, by program, as `evaluate` has it."""
        programs = read_programs(self.graphs)
        predicted = load_model(self.folder(name) / "model").predict(programs)
        return dict(zip(programs.program_key.tolist(), predicted.tolist(), strict=True))

    def workload_of(self, candidate: Candidate) -> Workload:
        return next(one for one in self.suite if one.key == candidate.workload_key)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Made once; nothing writes into it."""
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    suite = (
        workloads.matmul("matmul", rows=64, columns=32, depth=48),
        workloads.softmax("softmax", rows=32, columns=64),
    )
    candidates = tuple(one for workload in suite for one in sample_candidates(workload, target, PROGRAMS, seed=3))
    made = Trained(tmp_path_factory.mktemp("prediction"), target, suite, candidates)
    campaign = Campaign(MEASUREMENTS_VERSION, target, HOST, tvm_versions(), {}, 0)
    by_key = {workload.key: workload for workload in suite}
    measured = Measurements(
        campaign, by_key, measurement_table(_row(made, number) for number in range(len(candidates)))
    )
    made.measurements.mkdir(parents=True)
    write_campaign(made.measurements, campaign, by_key)
    write_measurements(made.measurements, measured.table)
    choice, silent = Choice(Labelling("minimum", "none", None, False)), lambda done, total: None
    with built_store(made.graphs, [Folder(measured, "0" * 16)], choice, ViewOptions(), Processes(1), 64, silent):
        pass
    programs, description = read_programs(made.graphs), read_description(made.graphs)
    for name in MODELS:
        model = _model(name)
        model.fit(programs, programs, Silent())
        made.folder(name).mkdir(parents=True)
        save_model(model, made.folder(name) / "model", TrainedOn.of(model, programs, description))
    return made


def _row(made: Trained, number: int) -> dict[str, Any]:
    candidate = made.candidates[number]
    workload = made.workload_of(candidate)
    row = {
        "workload_key": workload.key,
        "workload_name": workload.name,
        "workload_kind": workload.kind,
        "program_key": candidate.program_key,
        "trace": candidate.trace,
        "target": json.dumps(made.target),
    }
    if number == 0:
        return {**row, "outcome": "crash", "message": "signal 11"}
    return {**row, "outcome": "measured", "run_seconds": [made_up_seconds(candidate), 1.0]}


def made_up_seconds(candidate: Candidate) -> float:
    return 1e-5 * (1 + int(candidate.program_key, 16) % 97)


def _model(name: str) -> Any:
    """Boosted trees of the flat features that predict times or ranks, or of the trace."""
    changes: dict[str, Any] = {"view": "trace"} if name == "lightgbm_trace" else {}
    loss = "rank" if name == "trees_of_rank" else "log_mse"
    settings = {**yaml.safe_load((CONF / "model/lightgbm.yaml").read_text()), **changes}
    # so few programs tell something apart
    settings["settings"] |= {"rounds": 40, "min_child_samples": 1}
    parts = [yaml.safe_load((CONF / path).read_text()) for path in (f"loss/{loss}.yaml", "trainer/tiny.yaml")]
    return instantiate(settings, loss=instantiate(parts[0]), trainer=instantiate(parts[1]), seed=0)
