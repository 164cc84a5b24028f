"""Objects from the `_target_` nodes of the configuration, with errors that name the key."""

from __future__ import annotations

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from kernelcast.errors import ConfigError, KernelcastError


def made(key: str, node: Any, **arguments: Any) -> Any:
    """What the `_target_` of the configuration node `key` makes.

    Raises:
        ConfigError: it has no `_target_`, or one that does not take these arguments.
    """
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{key}: expected a `_target_` and its arguments, as the files in conf/ have them")
    try:
        return instantiate(node, **arguments)
    except InstantiationException as error:
        # Hydra wraps what the target raised
        if isinstance(error.__cause__, KernelcastError):
            raise error.__cause__ from None
        reason = " ".join(str(error.__cause__ or error).split())
        raise ConfigError(f"{key}: {node['_target_']} cannot be made: {reason}") from error
