"""What a campaign needs of whatever runs programs: this machine, or devices behind an RPC tracker."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kernelcast.errors import MeasurementError
from kernelcast.machine import Host
from kernelcast.measurement.messages import Failed, Repeated
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.records import Workload


class DeviceLost(MeasurementError):  # noqa: N818, what happened to the device, not to the program
    """A device is gone or does not answer; the programs that it held have to be measured on another one."""


class LoadedProgram(Protocol):
    """A program that has run once and waits for its repeats."""

    def repeat(self, calls: int) -> Repeated | Failed:
        """Times one repeat of `calls` calls. After a `Failed` the program is closed.

        Raises:
            DeviceLost: it is not the program's fault that there is no answer.
        """

    def close(self) -> None:
        """Frees everything; may be called again."""


@dataclass(frozen=True)
class Loading:
    """How the loading of one program ended.

    Attributes:
        program: the loaded program, or why there is none.
        build_seconds: time of the build; None where it did not end.
        call_seconds: a rough time of one call; 0 without a program.
        checked: whether its results were compared with those of the unscheduled workload.
    """

    program: LoadedProgram | Failed
    build_seconds: float | None = None
    call_seconds: float = 0.0
    checked: bool = False


class Device(Protocol):
    """Runs programs, one at a time, always on the same cores or the same board.

    Attributes:
        name: distinct among the devices of a campaign.
        overlaps: whether programs can be built without disturbing the one that is being timed.
    """

    name: str
    overlaps: bool

    def load(self, workload: Workload, candidate: Candidate, expected: Path | None) -> Loading:
        """Builds a program, runs it once and checks its results. Called by several threads at a time.

        Args:
            workload: what it computes.
            candidate: the schedule.
            expected: file with the results of the unscheduled workload on the same inputs, where they are compared.

        Raises:
            DeviceLost: the device is gone.
        """

    def reference_seconds(self) -> float:
        """Times the reference kernel: the state of the machine, now.

        Raises:
            DeviceLost: the device is gone.
        """


class Runner(Protocol):
    """Where programs run: a configuration's `runner.devices`."""

    def check(self, target: dict[str, Any]) -> None:
        """Makes sure, before any work, that programs of `target` can be timed here.

        Raises:
            ConfigError: they cannot; names the key.
        """

    def identity(self, target: dict[str, Any]) -> str:
        """What decides run times, in one line; a resumed campaign must find the same."""

    def host(self, target: dict[str, Any]) -> Host:
        """Describes what runs the programs, best speeds included."""

    def open(
        self, target: dict[str, Any], settings: RunnerSettings, seed: int, folder: Path
    ) -> AbstractContextManager[OpenRunner]:
        """Starts everything that programs need; no process of it is left after the context.

        Args:
            target: the complete TVM target.
            settings: limits and timing.
            seed: of the random inputs.
            folder: for files that nobody needs after the context.
        """


class OpenRunner(Protocol):
    """A started runner.

    Attributes:
        devices: at least one.
    """

    devices: list[Device]

    def sample(
        self, workload: Workload, count: int, seed: int, measured: tuple[tuple[str, float], ...]
    ) -> Generator[Candidate, None, None]:
        """Draws candidates in a worker, so that nothing that happens there harms the campaign.

        Raises:
            MeasurementError: the workload cannot be scheduled; names it.
        """

    def expected(self, workload: Workload) -> Path | None:
        """The file with the results of the unscheduled workload; None where it cannot be run. Remembered."""

    def read_code(self, workload: Workload, candidate: Candidate, limit_seconds: float) -> str | Failed:
        """Builds a program without running it and reads its assembly, or says why there is none.

        A device that can may go on with what was built when it is to load the same program. Called by several threads
        at a time.

        Args:
            workload: what it computes.
            candidate: the schedule.
            limit_seconds: of the build, where this is less than the limit of all builds.
        """

    def has_built(self, candidate: Candidate) -> bool:
        """Whether what `read_code` built waits, so that a device need not build it again."""

    def forget_built(self) -> None:
        """Frees what `read_code` has built and no device has loaded."""

    def replace(self, device: Device) -> Device | None:
        """Another device, or the same one started anew, for one that was lost; None when there is none right now."""
