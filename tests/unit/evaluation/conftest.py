from collections.abc import Callable, Sequence

import numpy as np
import pytest

from kernelcast.graphs.programs import AstGraphs, FlatFeatures, Machine, Programs


def programs_of(log_seconds: Sequence[float], workload: Sequence[int], names: Sequence[str] = ()) -> Programs:
    """Programs whose syntax tree is a single node: scoring looks at labels and workloads only."""
    n = len(log_seconds)
    offsets = np.arange(n + 1, dtype=np.int64)
    trees = AstGraphs(
        node_kind=np.zeros(n, dtype=np.int16),
        node_features=np.zeros((n, 1), dtype=np.float32),
        node_parent=np.full(n, -1, dtype=np.int32),
        node_depth=np.zeros(n, dtype=np.int16),
        node_offset=offsets,
        edge_index=np.zeros((2, 0), dtype=np.int32),
        edge_kind=np.zeros(0, dtype=np.int8),
        edge_offset=np.zeros(n + 1, dtype=np.int64),
    )
    return Programs(
        ast=trees,
        features=FlatFeatures(np.zeros((n, 1), dtype=np.float32), ("flops",)),
        log_seconds=np.asarray(log_seconds, dtype=np.float64),
        workload=np.asarray(workload, dtype=np.int32),
        workload_names=tuple(names) or tuple(f"w{i}" for i in range(max(workload, default=0) + 1)),
        program_key=np.array([f"{i:016x}" for i in range(n)], dtype=object),
        machine=Machine(2, 8, 1e11, 1e10, 1 << 20),
        feature_version="1",
    )


@pytest.fixture
def make_programs() -> Callable[..., Programs]:
    return programs_of
