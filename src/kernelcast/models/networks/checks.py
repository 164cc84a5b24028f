"""Settings of networks, checked before any data is read."""

from __future__ import annotations

from kernelcast.errors import ConfigError


def require_size(key: str, value: object) -> None:
    """Makes sure that a width or a number of layers is a whole number of at least 1.

    Raises:
        ConfigError: it is not; the message names `key`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{key}={value}: it must be a whole number of at least 1")


def require_share(key: str, value: object) -> None:
    """Makes sure that a share of values left out is a number from 0 to below 1.

    Raises:
        ConfigError: it is not; the message names `key`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ConfigError(f"{key}={value}: it must be a number from 0 to below 1")
