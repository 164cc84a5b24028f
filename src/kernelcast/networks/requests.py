"""What is to be turned into workloads: plain data that goes to the extracting process as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from kernelcast.errors import ConfigError

UNFUSED = "/unfused"
"""Ends the name, in `Workload.networks`, of a network whose operators are not fused."""


@dataclass(frozen=True)
class Request:
    """One network, or one program of the user's.

    Attributes:
        name: of the entry in the configuration; the names of its workloads begin with it.
        source: what makes it: `architecture` (one of `kernelcast.networks.architectures`), `module` (a network of the
            user's), `function` (a tensor program of the user's) or `script` (the only one in a file of TVMScript).
        arguments: of the source, as JSON has them.
        network: what `Workload.networks` calls it; empty for a single program.
        fused: whether operators are fused into kernels.
    """

    name: str
    source: str
    arguments: dict[str, Any] = field(default_factory=dict)
    network: str = ""
    fused: bool = True

    @property
    def label(self) -> str:
        """The key in `Workload.networks`."""
        return self.network if self.fused else self.network + UNFUSED

    def as_json(self) -> dict[str, Any]:
        """Itself as JSON has it."""
        return asdict(self)


def network_request(name: str, source: str, arguments: dict[str, Any], network: str | None, fused: bool) -> Request:
    """A request for a network, its settings checked.

    Raises:
        ConfigError: `fused` or `network` cannot work.
    """
    if not isinstance(fused, bool):
        raise ConfigError(f"workload.{name}.fused must be true or false, got {fused!r}")
    if network is not None and (not isinstance(network, str) or not network.strip() or network.endswith(UNFUSED)):
        raise ConfigError(f"workload.{name}.network must be a name, or left out to take the entry's, got {network!r}")
    return Request(name, source, plain(name, arguments), network or name, fused)


def plain(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as JSON has them.

    Raises:
        ConfigError: they hold what JSON has not.
    """
    try:
        copy: dict[str, Any] = json.loads(json.dumps(arguments, default=_container))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"workload.{name}: only numbers, texts, lists and mappings can be given ({error})") from error
    return copy


def _container(value: Any) -> Any:
    # lists and mappings of OmegaConf, which this layer does not know
    return dict(value) if hasattr(value, "keys") else list(value)
