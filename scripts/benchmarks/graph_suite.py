"""Scheduled programs for the benchmarks of graphs: the shipped suite, drawn at random."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from kernelcast.graphs.dataset.builders import Processes
from kernelcast.graphs.dataset.building import built_store
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.selection import Choice, Folder
from kernelcast.graphs.options import ViewOptions
from kernelcast.machine import Host
from kernelcast.measurement.sampling import Candidate, sample_candidates
from kernelcast.records import (
    MEASUREMENTS_VERSION,
    Campaign,
    Outcome,
    Workload,
    measurement_table,
    write_campaign,
    write_measurements,
)
from kernelcast.stages.config import register_schemas
from kernelcast.stages.config_nodes import project_root
from kernelcast.tvm_compat import resolve_target, tvm_versions

logger = logging.getLogger(__name__)

SEED = 0


@dataclass(frozen=True)
class Drawn:
    """A workload and programs of it."""

    workload: Workload
    candidates: list[Candidate]


class GraphSuite:
    """The workloads of `conf/workload/default.yaml`, with random programs of each.

    Args:
        directory: for stores.
        quick: only a few programs.
    """

    def __init__(self, directory: Path, quick: bool) -> None:
        self.directory = directory
        self.quick = quick
        self.target: dict[str, Any] = resolve_target({"kind": "llvm"})
        self.host: Host | None = None
        register_schemas()
        with initialize_config_dir(str(Path(project_root()) / "conf"), version_base="1.3"):
            self.config = compose("graphs")
            nodes = compose("measure").workload.items()
        self.workloads: list[Workload] = [instantiate(node, name=name) for name, node in nodes]
        self.options: ViewOptions = instantiate(self.config.features)

    def draw(self, workload: Workload, count: int) -> Drawn:
        """Random programs of one workload."""
        return Drawn(workload, sample_candidates(workload, self.target, count, SEED))

    @cached_property
    def measured(self) -> Path:
        """A folder as `measure` leaves it, of few programs of every workload; their times are made up."""
        folder = self.directory / "measurements"
        self.write(folder, [self.draw(workload, 16 if self.quick else 32) for workload in self.workloads], 1)
        return folder

    def write(self, folder: Path, drawn: list[Drawn], copies: int) -> None:
        """Writes programs as measured ones, each so many times."""
        rows = [
            {
                "workload_key": one.workload.key,
                "workload_name": one.workload.name,
                "workload_kind": one.workload.kind,
                "program_key": candidate.program_key,
                "trace": candidate.trace,
                "target": json.dumps(self.target),
                "outcome": Outcome.MEASURED.value,
                # what a program takes does not matter here, only that times differ
                "run_seconds": [1e-5 * (1 + number)],
            }
            for _ in range(copies)
            for one in drawn
            for number, candidate in enumerate(one.candidates)
        ]
        folder.mkdir(parents=True)
        campaign = Campaign(MEASUREMENTS_VERSION, self.target, self.host, tvm_versions(), {}, SEED)
        write_campaign(folder, campaign, {one.workload.key: one.workload for one in drawn})
        write_measurements(folder, measurement_table(rows))

    def build(self, measured: Path, output: Path, workers: int | None = 1) -> None:
        """Builds the store of a folder."""
        folders, choice = [Folder.read(measured)], Choice(Labelling())
        with built_store(
            output,
            folders,
            choice,
            self.options,
            Processes(workers),
            self.config.shard_programs,
            lambda done, total: None,
        ):
            pass
