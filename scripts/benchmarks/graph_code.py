"""Reading the machine code of programs beside building them, which the view `machine_code` needs."""

from __future__ import annotations

import logging
import time
from statistics import median

from graph_suite import GraphSuite

from kernelcast.graphs.machine_code.instructions import parse
from kernelcast.graphs.machine_code.rows import machine_code_row
from kernelcast.tvm_compat import assembly, runnable_module, scheduled_module

logger = logging.getLogger(__name__)


def code_figures(suite: GraphSuite) -> dict[str, object]:
    """Median seconds of a build, and of reading its lines for the first time as a share of that."""
    building, reading = [], []
    for workload in suite.workloads:
        for candidate in suite.draw(workload, 1 if suite.quick else 8).candidates:
            module = runnable_module(scheduled_module(workload, candidate.trace))
            started = time.perf_counter()
            text = assembly(module, suite.target)
            built = time.perf_counter()
            parse.cache_clear()
            machine_code_row(text)
            reading.append(time.perf_counter() - built)
            building.append(built - started)
    logger.info("machine code: %.0f ms to build, %.1f ms to read", 1e3 * median(building), 1e3 * median(reading))
    return {
        "machine_code_building_seconds": median(building),
        "machine_code_reading_over_building": sum(reading) / sum(building),
    }
