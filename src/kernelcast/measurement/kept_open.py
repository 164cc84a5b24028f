"""A runner that is started once for all that a command measures: to start one takes seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelcast.machine import Host
from kernelcast.measurement.devices import OpenRunner, Runner
from kernelcast.measurement.settings import RunnerSettings


@dataclass(frozen=True)
class KeptOpen:
    """A `Runner` that hands out the one it has started; made by `kept_open`.

    Attributes:
        runner: the one that was started.
        opened: what it gave.
        started_for: target, settings and seed that it was started for.
    """

    runner: Runner
    opened: OpenRunner
    started_for: tuple[dict[str, Any], RunnerSettings, int]

    def check(self, target: dict[str, Any]) -> None:
        """See `Runner`."""
        self.runner.check(target)

    def identity(self, target: dict[str, Any]) -> str:
        """See `Runner`."""
        return self.runner.identity(target)

    def host(self, target: dict[str, Any]) -> Host:
        """See `Runner`."""
        return self.runner.host(target)

    def open(
        self, target: dict[str, Any], settings: RunnerSettings, seed: int, folder: Path
    ) -> AbstractContextManager[OpenRunner]:
        """The started one, which stays open after the context; another one for other arguments."""
        if (target, settings, seed) == self.started_for:
            return nullcontext(self.opened)
        return self.runner.open(target, settings, seed, folder)


@contextmanager
def kept_open(runner: Runner, target: dict[str, Any], settings: RunnerSettings, seed: int = 0) -> Iterator[KeptOpen]:
    """Starts `runner` for all who open it within the context with the same arguments, one after the other.

    Args:
        runner: where programs run.
        target: complete.
        settings: limits and timing.
        seed: of the random inputs.

    Raises:
        ConfigError: programs of the target cannot be timed there.
    """
    runner.check(target)
    with (
        tempfile.TemporaryDirectory(prefix="kernelcast-") as folder,
        runner.open(target, settings, seed, Path(folder)) as opened,
    ):
        yield KeptOpen(runner, opened, (target, settings, seed))
