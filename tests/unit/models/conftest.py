"""Made-up programs that can be learned: fast stand-ins where a test is about the model and not about the graphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hydra.utils import instantiate

from kernelcast.graphs.dataflow import EDGE_KINDS as DATAFLOW_EDGE_KINDS
from kernelcast.graphs.dataflow import OPCODES
from kernelcast.graphs.dataset.store import feature_version
from kernelcast.graphs.flat_columns import STATEMENT_FEATURES
from kernelcast.graphs.machine_code.columns import COLUMN_NAMES as CODE_NAMES
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.per_store import COLUMN_NAMES as STORE_NAMES
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.trace_columns import BLOCK_BUCKETS, PRIMITIVES
from kernelcast.graphs.trace_columns import COLUMN_NAMES as TRACE_NAMES
from kernelcast.graphs.views import AstGraphs, DataflowGraphs, FlatFeatures, StatementRows, TraceTokens
from kernelcast.graphs.vocabulary import NODE_FEATURES, NODE_KINDS
from kernelcast.models.protocol import PredictionKind
from kernelcast.models.saved import load_model, save_model
from kernelcast.models.validation import mean_kendall_tau

CONF = Path(__file__).resolve().parents[3] / "conf"
COUNTED = ("flops", "moved_bytes", "unique_bytes", "vector_share", "parallel_share", "parallel_extent")
FLAT_NAMES = (*COUNTED, "mean_level")


class RecordedMetrics:
    """A MetricLog that keeps what it gets."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def metrics(self, values: Any, step: int) -> None:
        self.rows.append((step, dict(values)))


def make_programs(
    workloads: int = 4, per_workload: int = 24, nodes: tuple[int, int] = (6, 30), seed: int = 0
) -> Programs:
    """Random trees; the time grows with a feature of the nodes and falls with the share of vectorised loops."""
    # one for what depends on no number of columns, so that a further column changes neither trees nor times
    random, of_columns = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    count = workloads * per_workload
    sizes = random.integers(nodes[0], nodes[1] + 1, size=count)
    offset = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    parents, depths, kinds, features, edges, edge_kinds = [], [], [], [], [], []
    labels, flat = [], []
    workload = np.repeat(np.arange(workloads), per_workload)
    scale = random.uniform(0, 6, size=workloads)
    vectorized = NODE_KINDS.index("loop_vectorized")
    for program, size in enumerate(sizes):
        parent, depth = random_tree(random, int(size))
        # loops of several kinds more often than the rest
        kind = np.where(
            random.random(size) < 0.5, random.integers(1, 5, size), random.integers(6, len(NODE_KINDS), size)
        )
        level = random.normal()
        feature = of_columns.normal(size=(size, len(NODE_FEATURES))) + level
        feature[:, 0] = random.normal(size=size) + level
        feature[:, 1] = scale[workload[program]]
        mean = feature[:, 0].mean()
        share = float(np.mean(kind == vectorized))
        labels.append(-9 + scale[workload[program]] + 0.7 * mean - 2.0 * share + 0.02 * random.normal())
        flat.append([20 + scale[workload[program]], 18, 17, np.log1p(share), np.log1p(1.0), np.log1p(4.0), mean])
        parents.append(parent)
        depths.append(depth)
        kinds.append(kind)
        features.append(feature)
        children = np.arange(1, size)
        edges.append(np.stack([np.r_[parent[1:], children], np.r_[children, parent[1:]]]))
        edge_kinds.append(np.r_[np.zeros(size - 1), np.ones(size - 1)])
    trees = AstGraphs(
        feature_names=tuple(feature.name for feature in NODE_FEATURES),
        kernel_names=("log_flops",),
        node_kind=np.concatenate(kinds).astype(np.int16),
        node_features=np.concatenate(features).astype(np.float32),
        node_parent=np.concatenate(parents).astype(np.int32),
        node_depth=np.concatenate(depths).astype(np.int16),
        node_offset=offset,
        edge_source=np.concatenate(edges, axis=1)[0].astype(np.int32),
        edge_target=np.concatenate(edges, axis=1)[1].astype(np.int32),
        edge_kind=np.concatenate(edge_kinds).astype(np.int8),
        edge_offset=np.concatenate([[0], np.cumsum(2 * (sizes - 1))]).astype(np.int64),
        kernel_features=np.array(flat, dtype=np.float32)[:, :1],
    )
    flat_values = np.array(flat, dtype=np.float32)
    views = {
        "ast": trees,
        "dataflow": as_dataflow(trees),
        "features": FlatFeatures(FLAT_NAMES, flat_values),
        "statements": made_up_rows(
            np.random.default_rng([seed, 2]), flat_values, tuple(feature.name for feature in STATEMENT_FEATURES)
        ),
        "per_store": made_up_rows(np.random.default_rng([seed, 3]), flat_values, STORE_NAMES),
        "trace": made_up_trace(np.random.default_rng([seed, 4]), flat_values),
        "machine_code": FlatFeatures(CODE_NAMES, made_up_code(np.random.default_rng([seed, 5]), flat_values)),
    }
    return Programs.in_memory(
        views,
        log_seconds=np.array(labels, dtype=np.float64),
        workload=workload.astype(np.int32),
        workload_names=tuple(f"workload_{index}" for index in range(workloads)),
        program_key=np.array([f"{seed:04x}{program:012x}" for program in range(count)]),
        machines=(Machine(2, 8, peak_flops_per_second=1e11, bytes_per_second=1e10, cache_bytes=2**20),),
        feature_version=feature_version(ViewOptions(), {name: view.columns() for name, view in views.items()}),
    )


def made_up_code(random: np.random.Generator, flat: np.ndarray) -> np.ndarray:
    """Counts of any size; the program's own features stand in the first columns."""
    values = random.uniform(0, 20, size=(len(flat), len(CODE_NAMES)))
    values[:, : flat.shape[1]] = flat
    return values.astype(np.float32)


def as_dataflow(trees: AstGraphs) -> DataflowGraphs:
    """The same graphs, their kinds taken for opcodes and kinds of edges of the dataflow view."""
    return DataflowGraphs(
        feature_names=trees.feature_names,
        kernel_names=trees.kernel_names,
        node_offset=trees.node_offset,
        edge_offset=trees.edge_offset,
        node_opcode=trees.node_kind % len(OPCODES),
        node_features=trees.node_features,
        edge_source=trees.edge_source,
        edge_target=trees.edge_target,
        edge_kind=trees.edge_kind % len(DATAFLOW_EDGE_KINDS),
        kernel_features=trees.kernel_features,
    )


def made_up_rows(random: np.random.Generator, flat: np.ndarray, names: tuple[str, ...]) -> StatementRows:
    """One to four statements a program; the program's own features stand in the first columns of each, a little off."""
    counts = random.integers(1, 5, size=len(flat))
    values = random.normal(size=(counts.sum(), len(names)))
    values[:, : flat.shape[1]] = np.repeat(flat, counts, axis=0) + 0.05 * values[:, : flat.shape[1]]
    return StatementRows(names, _offset(counts), values.astype(np.float32))


def made_up_trace(random: np.random.Generator, flat: np.ndarray) -> TraceTokens:
    """Three to nine steps a program; the program's own features stand among the numbers of each step, a little off."""
    counts = random.integers(3, 10, size=len(flat))
    values = random.normal(size=(counts.sum(), len(TRACE_NAMES)))
    values[:, -flat.shape[1] :] = np.repeat(flat, counts, axis=0) + 0.05 * values[:, -flat.shape[1] :]
    for code in ("word", "block"):
        values[:, TRACE_NAMES.index(code)] = random.integers(1 + BLOCK_BUCKETS, size=counts.sum())
    primitive = random.integers(len(PRIMITIVES), size=counts.sum()).astype(np.int16)
    return TraceTokens(TRACE_NAMES, _offset(counts), primitive, values.astype(np.float32))


def _offset(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def random_tree(random: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Parents and depths of a random tree in depth-first order."""
    parent, depth = np.full(size, -1), np.zeros(size, dtype=np.int64)
    path = [0]
    for node in range(1, size):
        del path[int(random.integers(1, len(path) + 1)) :]
        parent[node], depth[node] = path[-1], len(path)
        path.append(node)
    return parent, depth


def merged(entries: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Both, the second where both have an entry, as Hydra composes them."""
    both = {
        key: merged(entries[key], value) if isinstance(value, dict) and isinstance(entries.get(key), dict) else value
        for key, value in over.items()
    }
    return {**entries, **both}


def configured(group: str, name: str, **changes: Any) -> dict[str, Any]:
    """The file conf/GROUP/NAME.yaml, with the files of the group that it takes in, with some entries changed."""
    entries = yaml.safe_load((CONF / group / f"{name}.yaml").read_text())
    for taken in entries.pop("defaults", []):
        if taken != "_self_":
            source, _, place = taken.partition("@")
            into, member = place.split(".")
            entries[into][member] = merged(configured(group, source), entries[into][member])
    return {**entries, **changes}


# TVM's network has epochs of its own, and so few programs would make one batch
OWN_SETTINGS = {"tvm_mlp": {"batch_size": 16, "epochs": 20, "learning_rate": 0.002}}


def make_model(
    name: str, loss: str = "rank", seed: int = 0, changes: dict[str, Any] | None = None, **trainer: Any
) -> Any:
    """The model of conf/model/NAME.yaml, with `changes`, as the train stage makes it; the others change the trainer."""
    settings = {"max_epochs": 30, "patience": 30, "batch_elements": 600, "learning_rate": 0.005, **trainer}
    entries = merged(configured("model", name), changes or {})
    if name in OWN_SETTINGS:
        entries["settings"].update(OWN_SETTINGS[name])
    return instantiate(
        entries,
        loss=instantiate(configured("loss", loss)),
        trainer=instantiate(configured("trainer", "default", **settings)),
        seed=seed,
    )


@pytest.fixture
def programs() -> Programs:
    return make_programs()


@pytest.fixture(scope="session")
def programs_of() -> Callable[..., Programs]:
    return make_programs


@pytest.fixture(scope="session")
def model_of() -> Callable[..., Any]:
    return make_model


@pytest.fixture(scope="session")
def conf_of() -> Callable[..., dict[str, Any]]:
    return configured


@pytest.fixture
def metric_log() -> RecordedMetrics:
    return RecordedMetrics()


@pytest.fixture
def trees_correct(metric_log: RecordedMetrics, tmp_path: Path) -> Callable[..., None]:
    """Checks of trees that begin with an estimate: what they learn of one half of the programs holds for the other."""

    def check(name: str, loss: str, flag: str, programs: Programs) -> None:
        halves = [programs.select(np.arange(first, len(programs), 2)) for first in (0, 1)]
        model = make_model(name, loss, changes={flag: True})
        model.fit(*halves, metric_log)
        valid = halves[1]
        predicted = model.predict(valid)
        if model.kind is PredictionKind.LOG_SECONDS:
            assert np.abs(predicted - valid.log_seconds).max() < 0.2
        # few programs of other columns: without the estimate the order of 75 programs cannot be learned as well
        assert mean_kendall_tau(predicted, valid.log_seconds, valid.workload) > 0.9
        save_model(model, tmp_path / "model")
        np.testing.assert_allclose(load_model(tmp_path / "model").predict(valid), predicted, atol=1e-6)

    return check


@pytest.fixture
def split(programs: Programs) -> tuple[Programs, Programs]:
    """Three quarters to train on, a quarter to validate."""
    rows = np.random.default_rng(1).permutation(len(programs))
    cut = len(rows) * 3 // 4
    return programs.select(np.sort(rows[:cut])), programs.select(np.sort(rows[cut:]))
