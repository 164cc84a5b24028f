"""From Hydra's sweep expressions to Optuna's distributions, and from what a study drew back to overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, QuotedString, RangeSweep
from omegaconf import DictConfig, OmegaConf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from kernelcast.errors import ConfigError

OTHER_MEANING = ("true", "false", "null", "nan", "inf")
"""Words that Hydra reads as something else than a text."""


@dataclass(frozen=True)
class Space:
    """What a sweep tries.

    Attributes:
        fixed: overrides that all trials have.
        distributions: what the study chooses, by key.
    """

    fixed: list[str]
    distributions: dict[str, BaseDistribution]

    def overrides(self, params: Mapping[str, Any]) -> list[str]:
        """The command line of a trial with `params`."""
        return [*self.fixed, *(override_of(key, value) for key, value in params.items())]


def space_of(loader: ConfigLoader, configured: Mapping[str, str], typed: list[str]) -> Space:
    """What is fixed and what the study chooses; what is typed wins over the configured space.

    Args:
        loader: Hydra's.
        configured: `hydra.sweeper.space`.
        typed: overrides from the command line.

    Raises:
        ConfigError: an expression that no study can sample, nothing to choose.
    """
    parser = OverridesParser.create(config_loader=loader)
    distributions: dict[str, BaseDistribution] = {}
    fixed = []
    for override in parser.parse_overrides([*(f"{key}={sweep}" for key, sweep in configured.items()), *typed]):
        key = override.get_key_element()
        distributions.pop(key, None)
        if override.is_sweep_override():
            distributions[key] = distribution_of(override)
        elif override.input_line is not None:
            fixed.append(override.input_line)
    if not distributions:
        raise ConfigError(
            "a study has to choose something: name a file with hparams_search=NAME, or type a range, as "
            "'trainer.learning_rate=tag(log,interval(0.0001,0.01))'"
        )
    return Space(fixed, distributions)


def check_keys(space: Space, config: DictConfig) -> None:
    """Makes sure, before any trial, that each of them would not fail for a key that is not there.

    Args:
        space: what the study chooses.
        config: the configuration of a trial without what the study chooses.

    Raises:
        ConfigError: it names the key.
    """
    for key in space.distributions:
        # a key with + is new
        if key[0] not in "+~" and key not in config.hydra.runtime.choices and not _exists(config, key):
            raise ConfigError(
                f"the study would choose {key}, which the configuration does not have: take the hparams_search file of "
                "the model that is trained, or mend hydra.sweeper.space"
            )


def distribution_of(override: Override) -> BaseDistribution:
    """Optuna's distribution for a Hydra sweep expression.

    Raises:
        ConfigError: the expression is none that a study can sample; the message names the key.
    """
    try:
        found = _distribution(override)
    except ValueError as error:
        raise ConfigError(f"{override.input_line}: {error}") from error
    if found is None:
        raise ConfigError(
            f"{override.input_line}: a study takes choice(...) of single values, interval(...), range(...) of integers"
        )
    return found


def _distribution(override: Override) -> BaseDistribution | None:
    sweep = override.value()
    log = isinstance(sweep, IntervalSweep | RangeSweep) and "log" in sweep.tags
    if isinstance(sweep, ChoiceSweep):
        drawn = [value.text if isinstance(value, QuotedString) else value for value in override.sweep_iterator()]
        # lists and mappings have no place in a study
        single = [value for value in drawn if value is None or isinstance(value, str | int | float)]
        return CategoricalDistribution(single) if len(single) == len(drawn) else None
    if isinstance(sweep, IntervalSweep):
        start, end = sweep.start, sweep.end
        assert start is not None
        assert end is not None
        if isinstance(start, int) and isinstance(end, int):
            return IntDistribution(start, end, log=log)
        return FloatDistribution(float(start), float(end), log=log)
    if isinstance(sweep, RangeSweep) and isinstance(sweep.start, int) and isinstance(sweep.stop, int):
        step = int(sweep.step)
        last = sweep.start + (sweep.stop - 1 - sweep.start) // step * step
        return IntDistribution(sweep.start, last, log=log, step=step)
    return None


def override_of(key: str, value: Any) -> str:
    """How a value is typed so that Hydra reads it as what it is."""
    if value is None:
        return f"{key}=null"
    if isinstance(value, bool):
        return f"{key}={str(value).lower()}"
    if isinstance(value, str) and (not re.fullmatch(r"[A-Za-z_][\w./-]*", value) or value.lower() in OTHER_MEANING):
        escaped = re.sub(r"(\\+)(?='|$)", r"\1\1", value).replace("'", "\\'")
        return f"{key}='{escaped}'"
    return f"{key}={value}"


def _exists(config: DictConfig, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent, default=None) if parent else config
    return isinstance(node, DictConfig) and name in node
