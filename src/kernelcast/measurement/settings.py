"""How a campaign builds, checks and times."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kernelcast.errors import ConfigError

LONGEST_SECONDS = 86_400
"""A day. The clocks of the system overflow at some higher number."""

LARGEST = 2**50
"""More than any machine has of anything, and small enough for sums of it in 64 bits."""


class Way(StrEnum):
    """How the repeats of a batch are ordered. OmegaConf knows the members by their names."""

    rounds = "rounds"
    in_a_row = "in_a_row"


class Cache(StrEnum):
    """What the caches hold when a call is timed. OmegaConf knows the members by their names."""

    warm = "warm"
    cold = "cold"


@dataclass(frozen=True)
class TimingSettings:
    """What recorded times depend on; runs that share a folder must agree in all of it.

    Attributes:
        way: `rounds`: every program of a batch has its turn in every round, its repeats are spread over the batch;
            `in_a_row`: all repeats of a program one after the other, as TVM does, for comparison.
        cache: `warm`: the same data again and again; `cold`: caches are flushed before every call, one call a repeat.
        batch_size: programs that are loaded and timed together.
        least_rounds: repeats that every program has, unless it is cut short.
        most_rounds: repeats that no program exceeds.
        uncertainty: a program is done when its three fastest repeats lie within this share of each other and the
            machine was calm at one of them.
        budget_seconds: time that the repeats of one program may take; then it is done, with three repeats at least.
        repeat_seconds: how long one repeat lasts at least; a program that takes longer is called once a repeat.

    Raises:
        ConfigError: a value that cannot work.
    """

    way: Way
    cache: Cache
    batch_size: int
    least_rounds: int
    most_rounds: int
    uncertainty: float
    budget_seconds: float
    repeat_seconds: float

    def __post_init__(self) -> None:
        require_choice("runner.timing.way", self.way, Way)
        require_choice("runner.timing.cache", self.cache, Cache)
        for name in ("batch_size", "least_rounds", "most_rounds"):
            require_positive_integer(f"runner.timing.{name}", getattr(self, name))
        for name in ("budget_seconds", "repeat_seconds"):
            require_seconds(f"runner.timing.{name}", getattr(self, name))
        if self.least_rounds > self.most_rounds:
            raise ConfigError(
                f"runner.timing.least_rounds ({self.least_rounds}) must not exceed runner.timing.most_rounds "
                f"({self.most_rounds})"
            )
        require_share("runner.timing.uncertainty", self.uncertainty)

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain values, for the campaign's record."""
        return {**asdict(self), "way": self.way.value, "cache": self.cache.value}


@dataclass(frozen=True)
class RunnerSettings:
    """Limits of one campaign, which may differ between runs that share a folder, and its timing, which may not.

    Attributes:
        builders: programs built at the same time; None for one a core.
        build_timeout_seconds: limit of one build.
        run_timeout_seconds: limit of one repeat, and of the first run.
        memory_limit_bytes: memory that a worker may take for one program.
        check_share: share of the programs, 0 to 1, whose results are compared with those of the unscheduled workload.
        remeasure_share: share of the measured programs, 0 to 1, that are built and measured a second time at the end.
        timing: what the recorded times depend on.

    Raises:
        ConfigError: a value that is not positive, too large for the system, or not a whole number where one is needed;
            or a repeat that would always run into its limit.
    """

    builders: int | None
    build_timeout_seconds: float
    run_timeout_seconds: float
    memory_limit_bytes: int
    check_share: float
    remeasure_share: float
    timing: TimingSettings

    def __post_init__(self) -> None:
        if self.builders is not None:
            require_positive_integer("runner.builders", self.builders)
        require_positive_integer("runner.memory_limit_bytes", self.memory_limit_bytes)
        for name in ("build_timeout_seconds", "run_timeout_seconds"):
            require_seconds(f"runner.{name}", getattr(self, name))
        for name in ("check_share", "remeasure_share"):
            require_share(f"runner.{name}", getattr(self, name))
        if self.timing.repeat_seconds >= self.run_timeout_seconds:
            raise ConfigError(
                f"runner.timing.repeat_seconds ({self.timing.repeat_seconds:g}) must be shorter than "
                f"runner.run_timeout_seconds ({self.run_timeout_seconds:g}), the limit of one repeat"
            )

    @property
    def builder_count(self) -> int:
        """Programs built at the same time."""
        from kernelcast.tvm_compat import available_cores

        return self.builders or available_cores()


def require_positive_integer(key: str, value: Any) -> None:
    """Raises a `ConfigError` that names `key` unless `value` is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise ConfigError(f"{key} must be a positive integer, {LARGEST} at most, got {value!r}")


def require_seconds(key: str, value: Any) -> None:
    """Raises a `ConfigError` that names `key` unless `value` is a positive time of a day at most."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_SECONDS:
        raise ConfigError(f"{key} must be a positive number of seconds, {LONGEST_SECONDS} at most, got {value!r}")


def require_share(key: str, value: Any) -> None:
    """Raises a `ConfigError` that names `key` unless `value` is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"{key} must be between 0 and 1, got {value!r}")


def require_choice(key: str, value: Any, kind: type[StrEnum]) -> None:
    """Raises a `ConfigError` that names `key` unless `value` is a member of `kind`."""
    if not isinstance(value, kind):
        raise ConfigError(f"{key} must be one of {', '.join(kind)}, got {value!r}")
