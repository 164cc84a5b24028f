"""Runs the extraction in a process of its own: torch breaks forks and costs memory, and users' code may crash."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.networks.requests import Request
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
    logger.info("extracting the kernels of %s", ", ".join(request.name for request in requests))
    with tempfile.TemporaryDirectory(prefix="kernelcast-") as folder:
        asked, answered = Path(folder, "requests.json"), Path(folder, "reply.json")
        asked.write_text(json.dumps([request.as_json() for request in requests]))
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "kernelcast.networks.extract", str(asked), str(answered)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(),
            )
            try:
                code = process.wait()
            finally:
                process.kill()
                process.wait()
                assert process.stdin is not None, "a pipe was asked for"
                process.stdin.close()
            log.seek(0)
            said = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        if code != 0 or not answered.exists():
            raise MeasurementError(_ended(requests, code, said))
        reply = json.loads(answered.read_text())
    if "error" in reply:
        raise ConfigError(reply["error"])
    for line in reply["left_out"]:
        logger.warning("%s", line)
    extracted = [[Workload(**entry) for entry in workloads] for workloads in reply["workloads"]]
    for request, workloads in zip(requests, extracted, strict=True):
        if request.network:
            calls = sum(workload.networks[request.label] for workload in workloads)
            logger.info("%s: %d kernels, run %d times in all", request.label, len(workloads), calls)
    return extracted


def _environment() -> dict[str, str]:
    # `transformers` would look for newer files of models that are made here
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONUNBUFFERED": "1"}


def _ended(requests: Sequence[Request], code: int, said: list[str]) -> str:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    names = ", ".join(request.name for request in requests)
    step = "is there enough memory?" if code == -signal.SIGKILL else "try each of them alone."
    return (
        f"the process that extracts the kernels of {names} {how}; {step} Its last words: {said[-1] if said else 'none'}"
    )
