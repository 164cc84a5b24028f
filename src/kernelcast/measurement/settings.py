"""How a campaign builds and times."""

from dataclasses import dataclass
from typing import Any

from kernelcast.errors import ConfigError

LONGEST_SECONDS = 86_400
"""A day. The clocks of the system overflow at some higher number."""

LARGEST = 2**50
"""More than any machine has of anything, and small enough for sums of it in 64 bits."""


@dataclass(frozen=True)
class RunnerSettings:
    """Limits and timing of one campaign.

    Attributes:
        builders: programs built at the same time.
        build_timeout_seconds: limit of one build.
        run_timeout_seconds: limit of one repeat, and of the first run.
        batch_size: programs that are loaded and timed together, in turns.
        rounds: repeats of each program, one a round.
        repeat_seconds: how long one repeat lasts at least; a program that takes longer is called once a repeat.
        memory_limit_bytes: memory that a worker may take for one program.

    Raises:
        ConfigError: a value that is not positive, too large for the system, or not a whole number where one is needed;
            or a repeat that would always run into its limit.
    """

    builders: int
    build_timeout_seconds: float
    run_timeout_seconds: float
    batch_size: int
    rounds: int
    repeat_seconds: float
    memory_limit_bytes: int

    def __post_init__(self) -> None:
        for name in ("builders", "batch_size", "rounds", "memory_limit_bytes"):
            require_positive_integer(f"runner.{name}", getattr(self, name))
        for name in ("build_timeout_seconds", "run_timeout_seconds", "repeat_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_SECONDS:
                raise ConfigError(
                    f"runner.{name} must be a positive number of seconds, {LONGEST_SECONDS} at most, got {value!r}"
                )
        if self.repeat_seconds >= self.run_timeout_seconds:
            raise ConfigError(
                f"runner.repeat_seconds ({self.repeat_seconds:g}) must be shorter than runner.run_timeout_seconds "
                f"({self.run_timeout_seconds:g}), the limit of one repeat"
            )

    @property
    def timing(self) -> dict[str, Any]:
        """What the recorded times depend on; limits may differ between runs that share a folder."""
        return {"rounds": self.rounds, "repeat_seconds": self.repeat_seconds, "batch_size": self.batch_size}


def require_positive_integer(key: str, value: Any) -> None:
    """Raises a `ConfigError` that names `key` unless `value` is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise ConfigError(f"{key} must be a positive integer, {LARGEST} at most, got {value!r}")
