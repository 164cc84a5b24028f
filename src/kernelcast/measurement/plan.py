"""What a campaign is to measure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError
from kernelcast.measurement.devices import Runner
from kernelcast.measurement.settings import RunnerSettings, require_positive_integer, require_share
from kernelcast.records import Origin, Workload


@dataclass(frozen=True)
class Plan:
    """What to measure, where and how.

    Attributes:
        directory: the folder of the campaign.
        workloads: what to compute; names and keys are distinct.
        target: the complete TVM target.
        runner: where programs run.
        settings: limits and timing.
        samples_per_workload: distinct programs a workload.
        evolved_share: share of them, 0 to 1, that evolve from the measured random ones, as in a tuner's search.
        max_failure_share: share of failures, 0 to 1, above which the whole campaign counts as failed.
        seed: of the sampling and of the random inputs.

    Raises:
        ConfigError: a value that cannot work.
    """

    directory: Path
    workloads: Sequence[Workload]
    target: dict[str, Any]
    runner: Runner
    settings: RunnerSettings
    samples_per_workload: int
    evolved_share: float
    max_failure_share: float
    seed: int

    def __post_init__(self) -> None:
        require_positive_integer("samples_per_workload", self.samples_per_workload)
        require_share("evolved_share", self.evolved_share)
        require_share("max_failure_share", self.max_failure_share)
        if not self.wanted[Origin.RANDOM]:
            raise ConfigError(
                f"evolved_share: {self.evolved_share:g} of {self.samples_per_workload} programs (samples_per_workload) "
                "leaves no random ones that the others could evolve from; lower it"
            )
        if not self.workloads:
            raise ConfigError("workload: there is none to measure; choose a file of conf/workload")
        names: dict[str, str] = {}
        for workload in self.workloads:
            if workload.key in names:
                raise ConfigError(f"workload: {names[workload.key]} and {workload.name} compute the same; remove one")
            names[workload.key] = workload.name
        self.runner.check(self.target)

    @property
    def wanted(self) -> dict[Origin, int]:
        """Programs a workload by where they come from."""
        evolved = math.floor(self.samples_per_workload * self.evolved_share)
        return {Origin.RANDOM: self.samples_per_workload - evolved, Origin.EVOLVED: evolved}

    def is_checked(self, workload: Workload, position: int) -> bool:
        """Whether the program at this position of a workload is compared with the unscheduled module."""
        share = self.settings.check_share
        # a workload's first always, so that a workload that goes wrong as a whole is found out
        return share > 0 and (position == 0 or is_picked(workload, position, share, "check"))

    def is_measured_again(self, workload: Workload, position: int) -> bool:
        """Whether the program at this position of a workload is measured again."""
        return is_picked(workload, position, self.settings.remeasure_share, "again")


def is_picked(workload: Workload, position: int, share: float, purpose: str) -> bool:
    """Picks `share` of the positions, evenly spread, beginning anywhere: the same ones however many there are."""
    digest = hashlib.sha256(f"{purpose} {workload.key}".encode()).digest()
    start = int.from_bytes(digest[:4], "big") / 2**32
    return math.floor((position + 1) * share + start) > math.floor(position * share + start)
