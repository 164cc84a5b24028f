"""Small real workloads, schedules drawn for them, and a table of measurements over both."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelcast.graphs.table import ROLES, Buffers, ProgramTable
from kernelcast.graphs.views import AstGraphs
from kernelcast.graphs.vocabulary import DTYPES, NODE_FEATURES, NODE_KIND_INDEX
from kernelcast.machine import Host
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Measurements, Workload, measurement_table
from kernelcast.tvm_compat import load_tvm, resolve_target, scheduled_module, tvm_versions

Expression = int | tuple[Any, ...]
"""An integer, `("loop", number)`, or an operation with its operands: `("floordiv", ("loop", 0), 4)`."""


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
def modules(suite: dict[str, Workload], candidates: dict[str, list[Candidate]]) -> dict[str, list[Any]]:
    """Scheduled modules, by workload."""
    return {
        name: [scheduled_module(suite[name], candidate.trace) for candidate in drawn]
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


@pytest.fixture(scope="session")
def nest() -> Callable[..., ProgramTable]:
    """Makes the table of a perfect nest of serial loops around one store of a constant."""

    def make(extents: list[int], indices: list[Expression], shape: tuple[int, ...] = ()) -> ProgramTable:
        rows: list[tuple[str, int, str, int, int, float]] = [("function", -1, "statement", 0, -1, 0.0)]
        rows += [("loop_serial", n, "statement", extent, n, 0.0) for n, extent in enumerate(extents)]

        def add(expression: Expression, parent: int, role: str) -> None:
            if isinstance(expression, int):
                rows.append(("constant", parent, role, 0, -1, float(expression)))
            elif expression[0] == "loop":
                rows.append(("variable", parent, role, 0, expression[1], 0.0))
            else:
                row = len(rows)
                rows.append((expression[0], parent, role, 0, -1, 0.0))
                for operand in expression[1:]:
                    add(operand, row, "value")

        store = len(rows)
        rows.append(("store", store - 1, "statement", 0, -1, 0.0))
        for index in indices:
            add(index, store, "index")
        rows.append(("constant", store, "value", 0, -1, 0.0))
        kinds, parents, roles, extent, variables, values = zip(*rows, strict=True)
        depth, end = [0] * len(rows), list(range(1, len(rows) + 1))
        for row in range(1, len(rows)):
            depth[row] = depth[parents[row]] + 1
        for row in range(len(rows) - 1, 0, -1):
            end[parents[row]] = max(end[parents[row]], end[row])
        shape = shape or (10**6,) * len(indices)
        return ProgramTable(
            kind=np.array([NODE_KIND_INDEX[kind] for kind in kinds], dtype=np.int16),
            parent=np.array(parents, dtype=np.int32),
            depth=np.array(depth, dtype=np.int16),
            end=np.array(end, dtype=np.int32),
            role=np.array([ROLES.index(role) for role in roles], dtype=np.int8),
            extent=np.array(extent, dtype=np.int64),
            variable=np.array(variables, dtype=np.int32),
            unroll_limit=np.full(len(rows), -1, dtype=np.int64),
            buffer=np.where(np.arange(len(rows)) == store, 0, -1).astype(np.int32),
            dtype=np.zeros(len(rows), dtype=np.int8),
            dtype_bytes=np.zeros(len(rows), dtype=np.int32),
            value=np.array(values, dtype=np.float64),
            buffers=Buffers(
                names=("A",),
                shape=np.array(shape, dtype=np.int64),
                shape_offset=np.array([0, len(shape)], dtype=np.int32),
                dtype=np.array([DTYPES.index("float32")], dtype=np.int8),
                dtype_bytes=np.array([4], dtype=np.int32),
                temporary=np.array([False]),
            ),
            block_names={},
        )

    return make


@pytest.fixture
def hand_made() -> AstGraphs:
    """A tree of four nodes, a single node, and a tree whose last two nodes have no edge."""
    width = len(NODE_FEATURES)
    return AstGraphs(
        feature_names=tuple(feature.name for feature in NODE_FEATURES),
        kernel_names=("flops",),
        node_offset=np.array([0, 4, 5, 8]),
        edge_offset=np.array([0, 6, 6, 6]),
        node_kind=np.array([0, 1, 12, 13, 0, 0, 1, 2], dtype=np.int16),
        node_features=np.arange(8 * width, dtype=np.float32).reshape(8, width),
        node_parent=np.array([-1, 0, 1, 2, -1, -1, 0, 0], dtype=np.int32),
        node_depth=np.array([0, 1, 2, 3, 0, 0, 1, 1], dtype=np.int16),
        edge_source=np.array([0, 1, 2, 1, 2, 3], dtype=np.int32),
        edge_target=np.array([1, 2, 3, 0, 1, 2], dtype=np.int32),
        edge_kind=np.array([0, 0, 0, 1, 1, 1], dtype=np.int8),
        kernel_features=np.array([[1.0], [2.0], [3.0]], dtype=np.float32),
    )
