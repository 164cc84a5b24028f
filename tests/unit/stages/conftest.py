import csv
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from kernelcast.files import write_json
from kernelcast.graphs.dataset.store import Description, StoredTarget, StoredWorkload, feature_version, write_programs
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.splits import (
    RandomSplit,
    Rows,
    SplitWorkload,
    WorkloadSplit,
    make_split,
    read_split,
    read_split_hash,
    write_split,
)
from kernelcast.graphs.views import AstGraphs, FlatFeatures
from kernelcast.graphs.vocabulary import NODE_FEATURES
from kernelcast.machine import Host
from kernelcast.models.saved import save_model
from kernelcast.records import (
    MEASUREMENTS_VERSION,
    Campaign,
    Workload,
    measurement_table,
    write_campaign,
    write_measurements,
)
from kernelcast.stages.tracking import open_experiment

CONF = Path(__file__).resolve().parents[3] / "conf"
WORKLOADS = ("matmul", "conv2d", "softmax", "layer_norm")
PROGRAMS_PER_WORKLOAD = 40
TARGET = {"kind": "llvm", "num-cores": 2}
MACHINE = Machine(2, 8, 1e11, 1e10, 1 << 20)
OPTIONS = ViewOptions(views=("ast", "features"))
TARGET_MEASURED = StoredTarget(TARGET, "a processor", MACHINE, "0" * 16)


class KeptMetrics:
    """A `MetricLog` that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, float]] = {}

    def metrics(self, values: dict[str, float], step: int) -> None:
        self.rows.setdefault(step, {}).update(values)


@dataclass(frozen=True)
class PipelineFolder:
    """A folder as `measure`, `graphs` and `train` leave it, with a time that depends on one feature."""

    root: Path

    @property
    def config(self) -> DictConfig:
        folders = ("measurements", "graphs", "models", "evaluation", "tuning", "report")
        return OmegaConf.create(
            {
                "seed": 0,
                "measurements": [str(self.root / "data/measurements")],
                "bootstrap_samples": 100,
                "confidence": 0.95,
                "paths": {
                    "root": str(self.root),
                    **{name: str(self.root / "data" / name) for name in folders},
                    "runs": str(self.root / "runs"),
                },
                "tracking": {
                    "uri": f"sqlite:///{self.root}/runs/mlflow.db",
                    "experiment": "kernelcast",
                    "artifacts": str(self.root / "runs/artifacts"),
                },
            }
        )

    def copy(self, root: Path) -> "PipelineFolder":
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return PipelineFolder(root)


@pytest.fixture(scope="session")
def fresh_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database as the first run finds it: made once, which takes seconds, to be copied."""
    folder = PipelineFolder(tmp_path_factory.mktemp("database"))
    open_experiment(folder.config)
    return folder.root / "runs/mlflow.db"


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory: pytest.TempPathFactory, fresh_database: Path) -> PipelineFolder:
    """Made once; a test that runs a stage takes a copy."""
    folder = PipelineFolder(tmp_path_factory.mktemp("trained"))
    (folder.root / "runs").mkdir()
    shutil.copy2(fresh_database, folder.root / "runs")
    data = folder.root / "data"
    programs = made_programs()
    write_measured(data / "measurements", programs)
    (data / "graphs").mkdir(parents=True)
    description = Description(
        workloads=tuple(StoredWorkload(f"{name}-key", name, name, {}, {}) for name in WORKLOADS),
        targets=(TARGET_MEASURED,),
        label="minimum",
        options=OPTIONS,
    )
    data_hash = write_programs(data / "graphs", programs, description)
    rows = Rows(
        programs.workload.astype(np.int64),
        programs.target.astype(np.int64),
        programs.program_key,
        tuple(SplitWorkload(f"{name}-key", name, name, {}, {}) for name in WORKLOADS),
        (TARGET,),
    )
    for name, splitter in (("random", RandomSplit(0.4, 0.1, 0)), ("workload", WorkloadSplit(0.5, 0.25, 0))):
        write_split(data / "graphs", name, make_split(splitter, rows), rows, data_hash, {"seed": 0})
        for model in ("random", "xgboost"):
            write_trained(data / "models" / name / model, model, name, programs, data / "graphs")
    return folder


def made_programs() -> Programs:
    generator = np.random.default_rng(0)
    count = len(WORKLOADS) * PROGRAMS_PER_WORKLOAD
    values = generator.random((count, 2)).astype(np.float32)
    trees = AstGraphs(
        feature_names=tuple(feature.name for feature in NODE_FEATURES),
        kernel_names=(),
        node_kind=np.zeros(count, dtype=np.int16),
        node_features=np.zeros((count, len(NODE_FEATURES)), dtype=np.float32),
        node_parent=np.full(count, -1, dtype=np.int32),
        node_depth=np.zeros(count, dtype=np.int16),
        node_offset=np.arange(count + 1, dtype=np.int64),
        edge_source=np.zeros(0, dtype=np.int32),
        edge_target=np.zeros(0, dtype=np.int32),
        edge_kind=np.zeros(0, dtype=np.int8),
        edge_offset=np.zeros(count + 1, dtype=np.int64),
        kernel_features=np.zeros((count, 0), dtype=np.float32),
    )
    views = {"ast": trees, "features": FlatFeatures(("unroll_count", "noise_count"), values)}
    return Programs.in_memory(
        views,
        log_seconds=3.0 * values[:, 0].astype(np.float64) - 10.0 + 0.01 * generator.normal(size=count),
        workload=np.repeat(np.arange(len(WORKLOADS), dtype=np.int32), PROGRAMS_PER_WORKLOAD),
        workload_names=WORKLOADS,
        program_key=np.array([f"{number:016x}" for number in range(count)]),
        targets=(TARGET_MEASURED.label,),
        machines=(MACHINE,),
        feature_version=feature_version(OPTIONS, {name: view.columns() for name, view in views.items()}),
    )


def write_measured(directory: Path, programs: Programs) -> None:
    """Four rounds of every program, and of every fifth another four on the next day."""
    generator = np.random.default_rng(1)
    rounds = 4
    rows = [
        {
            "workload_key": f"{WORKLOADS[workload]}-key",
            "workload_name": WORKLOADS[workload],
            "workload_kind": WORKLOADS[workload],
            "program_key": str(key),
            "trace": "[]",
            "target": "{}",
            "outcome": "measured",
            "message": "",
            "build_seconds": 0.2,
            "device": "local",
            "run_seconds": (np.exp(log_seconds) * (1 + 0.02 * generator.random(rounds * visits))).tolist(),
            "visit": np.repeat(range(visits), rounds).tolist(),
            "round_index": list(range(rounds)) * visits,
            "reference_seconds": (1e-3 * (1 + generator.random(rounds * visits))).tolist(),
            "ended_at": [1.7e9 + 86400 * visit + number for visit in range(visits) for number in range(rounds)],
        }
        for row, (workload, key, log_seconds) in enumerate(
            zip(programs.workload, programs.program_key, programs.log_seconds, strict=True)
        )
        for visits in [1 if row % 5 else 2]
    ]
    host = Host("a processor", 2, 1 << 34, "Linux", 1e11, 1e10, 8, 1 << 20)
    campaign = Campaign(MEASUREMENTS_VERSION, TARGET, host, {"apache-tvm": "0.27.0"}, {"rounds": rounds}, 0)
    write_campaign(directory, campaign, {name: Workload(f"{name}-key", name, name, {}, "{}") for name in WORKLOADS})
    write_measurements(directory, measurement_table(rows))


def write_trained(directory: Path, name: str, split_name: str, programs: Programs, graphs: Path) -> None:
    split = read_split(graphs, split_name)
    parts = {
        "loss": instantiate(OmegaConf.load(CONF / "loss/log_mse.yaml")),
        "trainer": instantiate(OmegaConf.load(CONF / "trainer/default.yaml")),
    }
    model = instantiate(OmegaConf.load(CONF / f"model/{name}.yaml"), seed=0, **parts)
    log = KeptMetrics()
    model.fit(programs.select(split.train), programs.select(split.valid), log)
    directory.mkdir(parents=True)
    save_model(model, directory / "model")
    write_json(
        directory / "training.json",
        {
            "model": name,
            "split": split_name,
            "loss": "log_mse",
            "seed": 0,
            "seconds": 1.5,
            "kind": str(model.kind),
            "learned": bool(log.rows),
            "split_hash": read_split_hash(graphs, split_name),
            "mlflow_run_id": "0",
        },
    )
    if log.rows:
        columns = ["step", *sorted({column for row in log.rows.values() for column in row})]
        with (directory / "history.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows({"step": step, **row} for step, row in log.rows.items())
