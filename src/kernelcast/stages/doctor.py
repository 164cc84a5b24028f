"""Looks for what is wrong with installation, machine and project, and says what to do about it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.files import storage_errors, write_json
from kernelcast.stages.checkup.findings import Finding, Status, count_sentence, findings_json, findings_table

logger = logging.getLogger(__name__)

LONGEST_TIMING_SECONDS = 3600.0


def doctor(config: DictConfig) -> None:
    """Prints what was found as a table, and writes it to `config.output` for machines.

    Raises:
        ConfigError: a length of the timing that cannot be.
        KernelcastError: there is a fault among the findings.
    """
    from rich.console import Console

    seconds = config.timing_seconds
    if not (math.isfinite(seconds) and 0 <= seconds <= LONGEST_TIMING_SECONDS):
        raise ConfigError(f"timing_seconds={seconds}: it must be from 0 (no timing) to {LONGEST_TIMING_SECONDS:g} s")
    findings = list(checkup(config))
    Console().print(findings_table(findings))
    if config.output is not None:
        output = Path(config.output)
        with storage_errors(output):
            output.absolute().parent.mkdir(parents=True, exist_ok=True)
            write_json(output, findings_json(findings))
        logger.info("written to %s", output)
    logger.info("%s", count_sentence(findings))
    faults = [finding.what for finding in findings if finding.status is Status.FAULT]
    if faults:
        raise KernelcastError(f"faults: {', '.join(faults)}; the table says what to do")


def checkup(config: DictConfig) -> Iterator[Finding]:
    """All findings; what a broken installation cannot look at is left out, and said."""
    from kernelcast.stages.checkup.project import project_findings
    from kernelcast.stages.checkup.software import software_findings

    software = list(software_findings(Path(config.paths.root)))
    yield from software
    if any(finding.status is Status.FAULT and finding.what.startswith("TVM") for finding in software):
        yield Finding(
            "machine", "not looked at", "TVM cannot be loaded", Status.WARNING, "repair the installation first"
        )
    else:
        yield from _machine(config)
    yield from project_findings(config.paths, config.tracking)


def _machine(config: DictConfig) -> Iterator[Finding]:
    from kernelcast.stages.checkup.machine import machine_findings, timing_findings
    from kernelcast.stages.instantiation import made

    target = OmegaConf.to_container(config.target)
    devices = made("runner.devices", config.runner.devices)
    of_timing = timing_findings(target, config.timing_seconds) if config.timing_seconds else ()
    yield from chain(machine_findings(target, devices, config.runner.memory_limit_bytes), of_timing)
