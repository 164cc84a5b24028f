"""The workloads of a configuration: single operators, whole networks and the user's own."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from kernelcast.errors import ConfigError
from kernelcast.networks.isolation import extract_workloads
from kernelcast.networks.requests import Request
from kernelcast.records import Workload
from kernelcast.stages.instantiation import made

logger = logging.getLogger(__name__)


def make_workloads(node: DictConfig) -> list[Workload]:
    """The workloads of the entries of `workload`, in their order.

    The `_target_` of an entry makes one workload, several, or a request for the kernels of a network or of a user's
    file. Kernels that several networks share become one workload that counts for each.

    Raises:
        ConfigError: an entry that cannot work, or two entries that ask for the same.
        MeasurementError: the process that extracts kernels ended without an answer.
    """
    entries = {str(name): _made(str(name), entry) for name, entry in node.items()}
    requests = [value for value in entries.values() if isinstance(value, Request)]
    _refuse_equal_networks(requests)
    extracted = dict(zip([request.name for request in requests], extract_workloads(requests), strict=True))
    workloads = [
        workload
        for name, value in entries.items()
        for workload in (extracted[name] if isinstance(value, Request) else value)
    ]
    return merged(workloads)


def merged(workloads: Sequence[Workload]) -> list[Workload]:
    """The workloads with distinct keys: those of networks join the earlier one that computes the same.

    Raises:
        ConfigError: two single operators compute the same, or two workloads have one name.
    """
    kept: dict[str, Workload] = {}
    for workload in workloads:
        earlier = kept.get(workload.key)
        if earlier is None:
            kept[workload.key] = workload
        elif not workload.networks and not earlier.networks:
            raise ConfigError(f"workload: {earlier.name} and {workload.name} compute the same; remove one")
        else:
            kept[workload.key] = dataclasses.replace(earlier, networks=_joined(earlier.networks, workload.networks))
    names: set[str] = set()
    for workload in kept.values():
        if workload.name in names:
            raise ConfigError(f"workload: two workloads have the name {workload.name}; rename an entry")
        names.add(workload.name)
    if len(kept) < len(workloads):
        logger.info(
            "%d workloads: %d of the %d asked for compute the same as an earlier one and were merged into it",
            len(kept),
            len(workloads) - len(kept),
            len(workloads),
        )
    return list(kept.values())


def _joined(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {network: first.get(network, 0) + second.get(network, 0) for network in {**first, **second}}


def request_of(key: str, name: str, node: Any) -> Request:
    """The request for a network that the configuration node `key` makes.

    Raises:
        ConfigError: it makes something else.
    """
    value = made(key, node, name=name)
    if not isinstance(value, Request):
        raise ConfigError(f"{key}: {node['_target_']} asks for no network; tune it with workload=")
    return _with_absolute_file(value)


def _made(name: str, node: Any) -> list[Workload] | Request:
    value = made(f"workload.{name}", node, name=name)
    if isinstance(value, Request):
        return _with_absolute_file(value)
    workloads = list(value) if isinstance(value, list | tuple) else [value]
    for workload in workloads:
        if not isinstance(workload, Workload):
            raise ConfigError(f"workload.{name}: {node['_target_']} makes no workload but a {type(workload).__name__}")
    return workloads


def _with_absolute_file(request: Request) -> Request:
    """The same request; a relative file begins at the folder where the user typed the command."""
    if "file" not in request.arguments:
        return request
    typed_in = Path(HydraConfig.get().runtime.cwd) if HydraConfig.initialized() else Path.cwd()
    file = typed_in / Path(request.arguments["file"]).expanduser()
    return dataclasses.replace(request, arguments={**request.arguments, "file": str(file)})


def _refuse_equal_networks(requests: Sequence[Request]) -> None:
    names: dict[str, str] = {}
    for request in requests:
        if request.network and request.label in names:
            raise ConfigError(
                f"workload: {names[request.label]} and {request.name} are both the network {request.label}; give one "
                f"another name: workload.{request.name}.network=NAME"
            )
        names[request.label] = request.name
