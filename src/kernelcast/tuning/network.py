"""A whole network: what is tuned of it, and how fast it is beside others."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from kernelcast.networks.fusing import is_view
from kernelcast.networks.saved import SavedNetwork
from kernelcast.tuning.deployment import Deployment, deploy, deploy_stock
from kernelcast.tuning.latency import Latency, LatencySettings, deployed_contender, time_networks, torch_contenders
from kernelcast.tuning.tasks import Task
from kernelcast.tvm_compat import parse_module

STOCK = "TVM, tvm.compile alone"
"""What a user gets who asks TVM for nothing more: no operator is fused, none is scheduled."""

FUSED = "TVM, fused, not tuned"
"""The kernels that are tuned, without their schedules: what tuning alone brings is seen beside it."""


def network_tasks(saved: SavedNetwork) -> list[Task]:
    """The kernels of a network with how often it runs each, in the order in which it first does.

    Those that only give a tensor another shape are left out: the compiled network has a view in their place.
    """
    return [
        Task(workload, workload.networks[saved.name])
        for workload in saved.workloads
        if not is_view(parse_module(workload.module)["main"])
    ]


def network_latencies(
    saved: SavedNetwork,
    deployments: Mapping[str, Deployment],
    target: dict[str, Any],
    settings: LatencySettings,
) -> list[Latency]:
    """The network's latency as deployed, with untuned TVM and with torch, all timed in turns; see `time_networks`.

    Args:
        saved: the network.
        deployments: by the name in the table.
        target: that of all deployments.
        settings: how long.

    Raises:
        MeasurementError: untuned TVM does not compute what torch does.
    """
    limit = settings.start_timeout_seconds
    with tempfile.TemporaryDirectory(prefix="kernelcast-") as work:
        untuned = {
            FUSED: deploy(saved, {}, target, Path(work, "fused"), timeout_seconds=limit),
            STOCK: deploy_stock(saved, target, Path(work, "stock"), timeout_seconds=limit),
        }
        libraries = [deployed_contender(name, made) for name, made in {**deployments, **untuned}.items()]
        return time_networks([*libraries, *torch_contenders(saved, target)], target, settings)


def latencies_json(latencies: Sequence[Latency]) -> list[dict[str, Any]]:
    """The rows for a file, raw repeats included; seconds."""
    return [
        {
            "contender": row.contender,
            "minimum_seconds": row.minimum_seconds,
            "median_seconds": row.median_seconds,
            "run_seconds": list(row.run_seconds),
            "threads": row.threads,
            "version": row.version,
            "note": row.note,
        }
        for row in latencies
    ]


def latency_table(network: str, latencies: Sequence[Latency]) -> Table:
    """The rows for the terminal; the last column of numbers is each minimum over that of the first row."""
    table = Table(title=f"{network}: latency", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("with")
    for head in ("minimum ms", "median ms", "to the first", "rounds", "threads"):
        table.add_column(head, justify="right")
    table.add_column("note", overflow="fold")
    first = latencies[0].minimum_seconds if latencies else None
    for row in latencies:
        ratio = None if first is None or row.minimum_seconds is None else row.minimum_seconds / first
        table.add_row(
            Text(row.contender),
            _milliseconds(row.minimum_seconds),
            _milliseconds(row.median_seconds),
            "" if ratio is None else f"{ratio:.2f}",
            str(len(row.run_seconds)),
            str(row.threads or ""),
            Text(row.note),
        )
    return table


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3g}"
