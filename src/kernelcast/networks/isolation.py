"""Runs the extraction in a process of its own: torch breaks forks and costs memory, and users' code may crash."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.files import atomic_directory
from kernelcast.networks.own_process import run_apart
from kernelcast.networks.requests import Request
from kernelcast.networks.saved import NETWORK_FILE, SavedNetwork, read_network
from kernelcast.records import Workload

logger = logging.getLogger(__name__)


def extract_workloads(requests: Sequence[Request]) -> list[list[Workload]]:
    """The workloads of each request; kernels that cannot be measured are left out with a warning.

    One process serves all requests: loading torch takes longer than most networks.

    Raises:
        ConfigError: a request that cannot work.
        MeasurementError: the process ended without an answer.
    """
    if not requests:
        return []
    reply = _extracted(requests)
    extracted = [[Workload(**entry) for entry in workloads] for workloads in reply["workloads"]]
    for request, workloads in zip(requests, extracted, strict=True):
        if request.network:
            _say(request, workloads)
    return extracted


def save_network(request: Request, folder: Path) -> SavedNetwork:
    """Writes a network as everything that compiling it later needs; the folder is written whole or not at all.

    Its workloads are those of `extract_workloads`.

    Args:
        request: for a network.
        folder: an earlier network there is replaced.

    Raises:
        ConfigError: a request that cannot work, or one for a single program.
        MeasurementError: the process ended without an answer.
        StorageError: something else is in the folder.
    """
    if not request.network:
        raise ConfigError(
            f"workload.{request.name} is a single program, not a network; tune it as a workload, or ask for a network "
            "by kernelcast.networks.catalogue or kernelcast.networks.own.own_network"
        )
    with atomic_directory(folder, marker=NETWORK_FILE) as temporary:
        _extracted([request], str(temporary))
    saved = read_network(folder)
    _say(request, saved.workloads)
    return saved


def _extracted(requests: Sequence[Request], *folder: str) -> dict[str, Any]:
    names = ", ".join(request.name for request in requests)
    logger.info("extracting the kernels of %s", names)
    doing = f"extracts the kernels of {names}"
    with tempfile.TemporaryDirectory(prefix="kernelcast-") as work:
        asked, answered = Path(work, "requests.json"), Path(work, "reply.json")
        asked.write_text(json.dumps([request.as_json() for request in requests]))
        run_apart("kernelcast.networks.extract", [str(asked), str(answered), *folder], doing, "try each of them alone.")
        if not answered.exists():
            raise MeasurementError(f"the process that {doing} ended without an answer; try each of them alone.")
        reply: dict[str, Any] = json.loads(answered.read_text())
    if "error" in reply:
        raise ConfigError(reply["error"])
    for line in reply["left_out"]:
        logger.warning("%s", line)
    return reply


def _say(request: Request, workloads: Sequence[Workload]) -> None:
    calls = sum(workload.networks[request.label] for workload in workloads)
    logger.info("%s: %d kernels, run %d times in all", request.label, len(workloads), calls)
