"""Small real workloads, schedules drawn for them, and a table of measurements over both."""

import json

import numpy as np
import pytest

from kernelcast.graphs.programs import AstGraphs
from kernelcast.graphs.vocabulary import NODE_FEATURES
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Host, Measurements, Workload, measurement_table
from kernelcast.tvm_compat import load_tvm, module_json, resolve_target, scheduled_module, tvm_versions


@pytest.fixture(scope="session")
def suite() -> dict[str, Workload]:
    load_tvm()
    made = [
        workloads.matmul("matmul", rows=64, columns=32, depth=48),
        workloads.softmax("softmax", rows=32, columns=64),
        workloads.conv2d_bias_relu("conv", height=8, width=8, channels=8, filters=16, kernel=3, padding=1),
        workloads.conv2d_transpose(
            "transpose", height=4, width=4, channels=8, filters=4, kernel=4, stride=2, padding=1
        ),
    ]
    return {workload.name: workload for workload in made}


@pytest.fixture(scope="session")
def target() -> dict:
    return resolve_target({"kind": "llvm", "num-cores": 2})


@pytest.fixture(scope="session")
def candidates(suite: dict[str, Workload], target: dict) -> dict[str, list[Candidate]]:
    return {name: sample_candidates(workload, target, count=8, seed=3) for name, workload in suite.items()}


@pytest.fixture(scope="session")
def modules(suite: dict[str, Workload], candidates: dict[str, list[Candidate]]) -> dict[str, list[str]]:
    """Scheduled modules as JSON, by workload."""
    return {
        name: [module_json(scheduled_module(suite[name], candidate.trace)) for candidate in drawn]
        for name, drawn in candidates.items()
    }


@pytest.fixture(scope="session")
def measurements(suite: dict[str, Workload], candidates: dict[str, list[Candidate]], target: dict) -> Measurements:
    """Rows as `measure` writes them; the times only have to be distinct here."""
    rows = [
        {
            "workload_key": suite[name].key,
            "workload_name": name,
            "workload_kind": suite[name].kind,
            "program_key": candidate.program_key,
            "trace": candidate.trace,
            "target": json.dumps(target),
            "outcome": "measured",
            "message": "",
            "build_seconds": 0.25,
            "run_seconds": [3e-5 + number * 1e-6, 1e-5 + number * 1e-6],
            "round_index": [0, 1],
            "reference_seconds": [1e-4, 1e-4],
            "ended_at": [1.0, 2.0],
        }
        for name, drawn in candidates.items()
        for number, candidate in enumerate(drawn)
    ]
    host = Host("cpu", 4, 2**30, "Linux", 1e11, 1e10, vector_lanes=16, cache_bytes=2**20)
    campaign = Campaign(MEASUREMENTS_VERSION, target, host, tvm_versions(), {}, 0)
    return Measurements(campaign, {entry.key: entry for entry in suite.values()}, measurement_table(rows))


@pytest.fixture
def hand_made() -> AstGraphs:
    """A tree of four nodes, a single node, and a tree whose last two nodes have no edge."""
    width = len(NODE_FEATURES)
    return AstGraphs(
        node_kind=np.array([0, 1, 12, 13, 0, 0, 1, 2], dtype=np.int16),
        node_features=np.arange(8 * width, dtype=np.float32).reshape(8, width),
        node_parent=np.array([-1, 0, 1, 2, -1, -1, 0, 0], dtype=np.int32),
        node_depth=np.array([0, 1, 2, 3, 0, 0, 1, 1], dtype=np.int16),
        node_offset=np.array([0, 4, 5, 8]),
        edge_index=np.array([[0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2]], dtype=np.int32),
        edge_kind=np.array([0, 0, 0, 1, 1, 1], dtype=np.int8),
        edge_offset=np.array([0, 6, 6, 6]),
    )
