"""Checks of a model's settings; every message names the key."""

from __future__ import annotations

import math
from typing import Any

from kernelcast.errors import ConfigError

PREFIX = "model.settings"


def require_count(key: str, value: object, least: int = 1) -> None:
    """Makes sure that a setting is a whole number of at least `least`.

    Raises:
        ConfigError: it is not; the message names `key`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{key}={value}: it must be a whole number of at least {least}")


def require_counts(settings: Any, *names: str, least: int = 1) -> None:
    """Makes sure that the settings of these names are whole numbers of at least `least`.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        require_count(f"{PREFIX}.{name}", getattr(settings, name), least)


def require_numbers(settings: Any, *names: str) -> None:
    """Makes sure that the settings of these names are finite numbers of at least 0.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        value = getattr(settings, name)
        if not _is_number(value) or value < 0:
            raise ConfigError(f"{PREFIX}.{name}={value}: it must be a finite number of at least 0")


def require_shares(settings: Any, *names: str) -> None:
    """Makes sure that the settings of these names are above 0 and at most 1.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        value = getattr(settings, name)
        if not _is_number(value) or not 0 < value <= 1:
            raise ConfigError(f"{PREFIX}.{name}={value}: it must be above 0 and at most 1")


def require_flag(key: str, value: object) -> None:
    """Makes sure that a setting is true or false; Hydra leaves `no` and `maybe` as words, and every word is true.

    Raises:
        ConfigError: it is not; the message names `key`.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{key}={value}: it must be true or false")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
