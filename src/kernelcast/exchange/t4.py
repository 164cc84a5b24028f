"""Measurements in T4, the JSON format in which the auto-tuning community exchanges results.

The rules are those of the schema that the projects autotuning_methodology (version 1.1.0) and Kernel Tuner (1.0.0)
publish; one document holds the results of one search space, here a workload on a target. Times are milliseconds, which
is what the readers of both projects take them for.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import re
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.exchange.configuration import configuration_of
from kernelcast.exchange.times import Times, usable_repeats
from kernelcast.files import write_json
from kernelcast.records import Campaign, Measurements, Outcome

RESULTS_VERSION = "1.1.0"
METADATA_VERSION = "1.0.0"
RESULTS_SUFFIX = "-results.json"
METADATA_FILE = "metadata.json"
MILLISECONDS = 1e3

INVALIDITY = {
    Outcome.MEASURED: "correct",
    Outcome.BUILD_ERROR: "compile",
    Outcome.BUILD_TIMEOUT: "timeout",
    Outcome.RUN_ERROR: "runtime",
    Outcome.RUN_TIMEOUT: "timeout",
    Outcome.CRASH: "runtime",
    Outcome.OUT_OF_MEMORY: "runtime",
    Outcome.WRONG_RESULT: "correctness",
}
"""How each outcome is called in T4."""

COMPILATION_FAILED, RUNTIME_FAILED = "CompilationFailedConfig", "RuntimeFailedConfig"
"""What stands for the objective of a program that has none; readers know these words."""

COMPUTE_INTERFACES = {"cuda": "CUDA", "opencl": "OpenCL", "vulkan": "Vulkan"}
"""The ones that the schema allows, by TVM's kind of target; a processor has none."""


def write_t4(measurements: Measurements, directory: Path, times: Times) -> dict[str, int]:
    """Writes `WORKLOAD-results.json` for every workload, and `metadata.json`, into an existing folder.

    Returns:
        Programs by file.

    Raises:
        MalformedDataError: a row has no schedule trace.
    """
    spaces: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in measurements.table.to_pylist():
        spaces[row["workload_key"], row["target"]].append(row)
    taken: set[str] = set()
    counts = {}
    for (_, target), rows in spaces.items():
        name = _free_name(rows[0]["workload_name"], taken)
        results = [_result(row, times) for row in rows]
        document = {
            "schema_version": RESULTS_VERSION,
            "metadata": _context(measurements.campaign, rows, json.loads(target)),
            "results": results,
        }
        write_json(directory / name, document)
        counts[name] = len(results)
    write_json(directory / METADATA_FILE, _metadata(measurements.campaign))
    return counts


def _result(row: dict[str, Any], times: Times) -> dict[str, Any]:
    repeats = usable_repeats(row)
    outcome = Outcome(row["outcome"])
    if outcome is Outcome.MEASURED and not repeats:
        outcome = Outcome.RUN_ERROR
    try:
        configuration = configuration_of(row["trace"])
    except MalformedDataError as error:
        raise MalformedDataError(f"program {row['program_key']}: {error}; run `dvc repro measure`") from error
    if repeats:
        objective: float | str = MILLISECONDS * times.label(repeats)
    else:
        objective = COMPILATION_FAILED if outcome.value.startswith("build") else RUNTIME_FAILED
    build = {}
    if row["build_seconds"] is not None:
        # the schema and its readers call it differently
        build = dict.fromkeys(("compilation_time", "compilation"), MILLISECONDS * row["build_seconds"])
    ended = _ended(row)
    return {
        **({"timestamp": _iso(ended)} if ended is not None else {}),
        "configuration": configuration,
        "times": {**build, "runtimes": [MILLISECONDS * seconds for seconds in repeats]},
        "invalidity": INVALIDITY[outcome],
        "correctness": int(outcome is Outcome.MEASURED),
        "measurements": [
            {"name": "time", "value": objective, "unit": "ms"},
            {"name": "program", "value": row["program_key"], "unit": ""},
            {"name": "compared_with_reference", "value": int(row["checked"]), "unit": ""},
            *([{"name": "message", "value": row["message"], "unit": ""}] if row["message"] else []),
        ],
        "objectives": ["time"],
    }


def _context(campaign: Campaign, rows: list[dict[str, Any]], target: dict[str, Any]) -> dict[str, Any]:
    kind = str(target.get("kind"))
    ends = [ended for row in rows if (ended := _ended(row)) is not None]
    return {
        **({"compute_api": COMPUTE_INTERFACES[kind]} if kind in COMPUTE_INTERFACES else {}),
        "platform": f"TVM {campaign.tvm.get('apache-tvm', 'of an unknown version')}",
        "device": campaign.host.cpu if campaign.host else "unknown",
        "autotuner": "kernelcast",
        "autotuner_version": importlib.metadata.version("kernelcast"),
        **({"timestamp": _iso(min(ends))} if ends else {}),
        "timeunit": "milliseconds",
        "target": target,
        "workload": rows[0]["workload_name"],
    }


def _metadata(campaign: Campaign) -> dict[str, Any]:
    host = campaign.host
    hardware = {"hardware_description": [dataclasses.asdict(host)], "operating_system": host.system} if host else {}
    requirements = [f"{name}=={version}" for name, version in campaign.tvm.items()]
    return {
        "schema_version": METADATA_VERSION,
        "metadata": {"hardware": hardware, "environment": {"device_query": {}, "requirements": requirements}},
    }


def _ended(row: dict[str, Any]) -> float | None:
    """When the first visit of a program was over; None where nobody knows."""
    ends = [
        ended
        for ended, visit in zip(row["ended_at"], row["visit"], strict=True)
        if visit == 0 and ended is not None and math.isfinite(ended)
    ]
    if ends:
        return max(ends)
    return float(row["finished_at"]) if row["finished_at"] is not None else None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _free_name(workload: str, taken: set[str]) -> str:
    """A name of a file that every system takes, and that is not taken yet."""
    plain = re.sub(r"[^\w.-]+", "_", workload) or "workload"
    name, number = plain, 1
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name.lower())
    return name + RESULTS_SUFFIX
