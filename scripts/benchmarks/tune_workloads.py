"""Which workloads the benchmarks of tuning are about: the heaviest ones of networks that no model has learned from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.graphs.dataset.labels import Labelling, labels_of
from kernelcast.records import Measurements, Workload
from kernelcast.stages.config_nodes import project_root

DATA_SET = Path(project_root()) / "data" / "datasets" / "zen4_1core"
"""The data set that ships: what is replayed, and where the full run takes its workloads from."""

LEAST_PROGRAMS = 16
"""A workload of fewer measured programs has nothing to search."""


def heaviest(measurements: Measurements, networks: Sequence[str], per_network: int) -> list[Workload]:
    """Of each network the workloads that it spends the most time in: best time measured, times how often it runs them.

    First the heaviest one of every kind of operator, for those of one kind are much alike; then the others. One that
    several of these networks run is taken once.

    Raises:
        ConfigError: no workload of a network was measured often enough.
    """
    labels = labels_of(measurements.table, Labelling()).log_seconds
    keys = np.asarray(measurements.table["workload_key"].to_pylist(), dtype=object)
    best = {}
    for key in measurements.workloads:
        times = labels[keys == key]
        times = times[np.isfinite(times)]
        if len(times) >= LEAST_PROGRAMS:
            best[key] = float(np.exp(times.min()))
    chosen: dict[str, Workload] = {}
    for network in networks:
        run = [measurements.workloads[key] for key in best if network in measurements.workloads[key].networks]
        if not run:
            raise ConfigError(
                f"--networks {network}: no workload of it was measured {LEAST_PROGRAMS} times; choose from "
                f"{', '.join(sorted({name for key in best for name in measurements.workloads[key].networks}))}"
            )
        run = [workload for workload in run if workload.key not in chosen]
        run.sort(key=lambda workload: -best[workload.key] * workload.networks[network])
        kinds = [workload.kind for workload in run]
        first = {kinds.index(kind) for kind in kinds}
        order = sorted(range(len(run)), key=lambda place: (place not in first, place))
        chosen |= {run[place].key: run[place] for place in order[:per_network]}
    return list(chosen.values())
