"""What is tuned: a workload, and how much of the whole it is."""

from __future__ import annotations

from dataclasses import dataclass

from kernelcast.errors import ConfigError
from kernelcast.records import Workload


@dataclass(frozen=True)
class Task:
    """One workload to find a fast schedule for.

    Attributes:
        workload: what is computed.
        weight: how often the network runs it; 1 for a workload alone.

    Raises:
        ConfigError: the weight is not a positive whole number.
    """

    workload: Workload
    weight: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.weight, bool) or not isinstance(self.weight, int) or self.weight < 1:
            raise ConfigError(f"task {self.workload.name}: its weight must be a positive whole number: {self.weight!r}")
