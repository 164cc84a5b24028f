"""Our views beside TVM's features of every store, on the same scheduled programs, in turns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from graph_suite import Drawn, GraphSuite

from kernelcast.graphs.extraction import extract
from kernelcast.graphs.per_store import per_store_rows
from kernelcast.graphs.trace import trace_view
from kernelcast.tvm_compat import runnable_module, scheduled_module

logger = logging.getLogger(__name__)

KINDS = ("matmul", "batch_matmul", "conv2d", "conv2d_bias_relu")
"""What the ratios are about: products and convolutions."""

CACHE_BYTES = 512 * 1024


@dataclass(frozen=True)
class Costs:
    """Seconds of one chunk of programs by each way; medians over the passes."""

    tvm: float
    ast_features: float
    all_views: float
    trace: float


def cost_figures(suite: GraphSuite) -> dict[str, object]:
    """Ratios of seconds over all programs, and by workload."""
    per_workload, passes = (8, 3) if suite.quick else (32, 7)
    costs: dict[str, Costs] = {}
    for workload in suite.workloads:
        if workload.kind in KINDS:
            costs[workload.name] = _costs(suite, suite.draw(workload, per_workload), passes)
    whole = Costs(*(sum(getattr(one, name) for one in costs.values()) for name in Costs.__dataclass_fields__))
    for name, one in (*costs.items(), ("all", whole)):
        logger.info(
            "%s: ast + features %.3f, all views %.3f, trace %.4f of TVM's %.2f ms a program",
            name, one.ast_features / one.tvm, one.all_views / one.tvm, one.trace / one.tvm,
            one.tvm * 1e3 / per_workload / (len(costs) if one is whole else 1),
        )  # fmt: skip
    return {
        "ast_features_over_tvm": whole.ast_features / whole.tvm,
        "all_views_over_tvm": whole.all_views / whole.tvm,
        "trace_over_tvm": whole.trace / whole.tvm,
        "ast_features_over_tvm_worst_workload": max(one.ast_features / one.tvm for one in costs.values()),
        "trace_over_tvm_worst_workload": max(one.trace / one.tvm for one in costs.values()),
    }


def _costs(suite: GraphSuite, drawn: Drawn, passes: int) -> Costs:
    """Everything begins with scheduled modules, or with traces as text, and ends with arrays."""
    modules = [scheduled_module(drawn.workload, candidate.trace) for candidate in drawn.candidates]
    traces = [candidate.trace for candidate in drawn.candidates]
    three = replace(suite.options, views=("ast", "features", "statements"))
    everything = replace(suite.options, views=("ast", "dataflow", "features", "statements"))
    ways: dict[str, Callable[[], Any]] = {
        "tvm": lambda: per_store_rows(modules, suite.target),
        "ast_features": lambda: extract(map(runnable_module, modules), three, CACHE_BYTES),
        "all_views": lambda: extract(map(runnable_module, modules), everything, CACHE_BYTES),
        "trace": lambda: trace_view(traces),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(passes + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            if number:  # the first pass loads and compiles
                seconds[name].append(time.perf_counter() - started)
    return Costs(**{name: median(values) for name, values in seconds.items()})
