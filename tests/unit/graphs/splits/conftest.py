"""Rows to split, without views: workloads of some kinds and networks, measured on some targets."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kernelcast.graphs.splits import Rows, SplitWorkload

Maker = Callable[..., Rows]
TARGETS = ({"kind": "llvm", "mcpu": "znver4"}, {"kind": "cuda", "arch": "sm_80"}, {"kind": "llvm", "mcpu": "core-avx2"})


def make_rows(
    counts: Sequence[int],
    kinds: Sequence[str] | None = None,
    networks: Sequence[Sequence[str]] | None = None,
    targets: int = 1,
    names: Sequence[int] | None = None,
    **workload: Sequence[Any],
) -> Rows:
    """`counts[i]` programs of workload i, each measured on all targets; keys come from `names`."""
    names = names or range(len(counts))
    workloads = tuple(
        SplitWorkload(
            key=f"{name:016x}",
            name=f"w{name}",
            kind=kinds[number] if kinds else "k",
            arguments=workload["arguments"][number] if "arguments" in workload else {"size": name},
            networks=dict.fromkeys(networks[number], 1) if networks else {},
            anchor=workload["anchors"][number] if "anchors" in workload else "",
        )
        for number, name in enumerate(names)
    )
    entries = [
        (number, target, f"{names[number]:08x}{program:08x}")
        for number, count in enumerate(counts)
        for target in range(targets)
        for program in range(count)
    ]
    columns = list(zip(*entries, strict=True))
    return Rows(
        np.array(columns[0], dtype=np.int64),
        np.array(columns[1], dtype=np.int64),
        np.array(columns[2]),
        workloads,
        TARGETS[:targets],
    )


@pytest.fixture(scope="session")
def rows_of() -> Maker:
    return make_rows


@pytest.fixture(scope="session")
def varied() -> Rows:
    """Programs that every splitter can split: 3 networks that share a workload, 4 kinds, 2 targets."""
    networks = [
        ["resnet18"],
        ["resnet18", "mobilenet"],
        ["bert"],
        ["mobilenet"],
        ["mobilenet"],
        ["vit"],
        ["resnet18/unfused"],
        [],
        [],
    ]
    kinds = ["conv2d", "conv2d", "matmul", "depthwise", "conv2d", "softmax", "conv2d", "matmul", "softmax"]
    return make_rows([6] * 9, kinds, networks, targets=2)
