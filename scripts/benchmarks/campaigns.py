"""Campaigns for the benchmarks: the shipped suite and settings, with the candidates drawn beforehand."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from kernelcast.measurement.campaign import Result, new_campaign, run_campaign
from kernelcast.measurement.journal import Journal, Try
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Campaign, Workload, write_campaign
from kernelcast.stages.config import register_schemas
from kernelcast.stages.config_nodes import project_root
from kernelcast.stages.measure import make_runner
from kernelcast.tvm_compat import resolve_target

SEED = 0


@dataclass(frozen=True)
class Measured:
    """A finished campaign.

    Attributes:
        result: its tries.
        wall_seconds: from its start to its table, workers' start included, candidates drawn beforehand.
    """

    result: Result
    wall_seconds: float


class Suite:
    """The workloads and settings that ship in `conf/`, for this machine's processor."""

    def __init__(self, directory: Path, workload: str) -> None:
        register_schemas()
        with initialize_config_dir(str(Path(project_root()) / "conf"), version_base="1.3"):
            self._configs = {
                name: compose("measure", [f"workload={workload}", f"runner={name}"]) for name in ("default", "in_a_row")
            }
        self.directory = directory
        self._number = 0
        self._campaign: Campaign | None = None
        self._drawn: dict[tuple[int, int], list[Candidate]] = {}
        self.target = resolve_target({"kind": "llvm"})
        nodes = self._configs["default"].workload.items()
        self.workloads: list[Workload] = [instantiate(node, name=name) for name, node in nodes]

    def settings(self, runner: str = "default", **changes: Any) -> RunnerSettings:
        """The settings of `conf/runner/NAME.yaml`, parts replaced by keyword, of the timing as well."""
        _, settings = make_runner(self._configs[runner].runner)
        timing = {key: changes.pop(key) for key in list(changes) if hasattr(settings.timing, key)}
        return replace(settings, timing=replace(settings.timing, **timing), **changes)

    def candidates(self, settings: RunnerSettings, per_workload: int, seed: int = SEED) -> list[Candidate]:
        """Random candidates of every workload; the same ones are drawn once."""
        if (per_workload, seed) not in self._drawn:
            self._drawn[per_workload, seed] = self._draw(settings, per_workload, seed)
        return self._drawn[per_workload, seed]

    def _draw(self, settings: RunnerSettings, per_workload: int, seed: int) -> list[Candidate]:
        with (
            tempfile.TemporaryDirectory(dir=self.directory) as folder,
            LocalRunner().open(self.target, settings, seed, Path(folder)) as runner,
        ):
            return [one for workload in self.workloads for one in runner.sample(workload, per_workload, seed, ())]

    def measure(self, settings: RunnerSettings, candidates: list[Candidate]) -> Measured:
        """Measures candidates in a new folder."""
        return self.run(self.plan(settings, candidates))

    def run(self, plan: Plan) -> Measured:
        """Runs a campaign."""
        started = time.perf_counter()
        result = run_campaign(plan)
        return Measured(result, time.perf_counter() - started)

    def plan(self, settings: RunnerSettings, candidates: list[Candidate]) -> Plan:
        """A plan of a new folder whose journal holds these candidates already."""
        self._number += 1
        used = {candidate.workload_key for candidate in candidates}
        plan = Plan(
            directory=self.directory / f"campaign-{self._number}",
            workloads=[workload for workload in self.workloads if workload.key in used],
            target=self.target,
            runner=LocalRunner(),
            settings=settings,
            samples_per_workload=len(candidates),
            evolved_share=0.0,
            max_failure_share=1.0,
            seed=SEED,
        )
        plan.directory.mkdir(parents=True)
        # the machine is the same for all campaigns, and describing it takes seconds
        self._campaign = new_campaign(plan) if self._campaign is None else self._campaign
        campaign = replace(self._campaign, timing=settings.timing.as_dict())
        write_campaign(plan.directory, campaign, {workload.key: workload for workload in plan.workloads})
        with Journal(plan.directory) as journal:
            journal.plan(candidates)
            for key in used:
                journal.exhaust(key, candidates[0].origin, len(candidates))
        return plan


def timed_seconds(repeats: list[TimedRepeat]) -> float:
    """Time that repeats took, the uncounted call before most included."""
    return sum(repeat.spent_seconds for repeat in repeats)


def work_seconds(tries: list[Try], builders: int) -> float:
    """Builds, `builders` at a time, and repeats, one at a time: what no campaign that shares its cores can go below."""
    built = sum(entry.build_seconds or 0.0 for entry in tries)
    return built / builders + sum(timed_seconds(list(entry.repeats)) for entry in tries)
