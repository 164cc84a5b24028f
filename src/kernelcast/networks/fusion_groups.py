"""Reads which operators of a saved network TVM fuses: `python -m kernelcast.networks.fusion_groups FOLDER REPLY`."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.networks.fusing import FusionGroup, fusion_groups
from kernelcast.networks.kernels import legalised, network_workloads
from kernelcast.networks.own_process import end_with_parent, run_apart
from kernelcast.networks.saved import SavedNetwork, read_network
from kernelcast.records import Workload

APART = "{}_apart"
"""Begins the names of the kernels of a network whose operators are not fused."""


@dataclass(frozen=True)
class FusionSpace:
    """What can be fused in a network, or not.

    Attributes:
        groups: what TVM's rule fuses.
        workloads: those of the operators on their own, with how often the network would run each were nothing fused.
    """

    groups: tuple[FusionGroup, ...]
    workloads: tuple[Workload, ...]


def read_fusion_space(saved: SavedNetwork) -> FusionSpace:
    """Reads it in a process of its own.

    Raises:
        ConfigError: the network was extracted unfused, or none of its operators can be tuned.
        MeasurementError: the process ended without an answer.
    """
    if not saved.request.fused:
        raise ConfigError(
            f"network {saved.name} was extracted with fused=false: there is nothing to decide; set it to true"
        )
    with tempfile.TemporaryDirectory(prefix="kernelcast-") as work:
        reply = Path(work, "reply.json")
        run_apart(
            "kernelcast.networks.fusion_groups",
            [str(saved.folder), str(reply)],
            f"reads what is fused in {saved.name}",
            "tune it without a look at fusion.",
        )
        answer = json.loads(reply.read_text())
    if "error" in answer:
        raise ConfigError(answer["error"])
    groups = tuple(FusionGroup(one["fused"], tuple(one["members"]), one["count"]) for one in answer["groups"])
    return FusionSpace(groups, tuple(Workload(**entry) for entry in answer["workloads"]))


def fusion_space(saved: SavedNetwork) -> FusionSpace:
    """The same, in this process."""
    module = legalised(saved.request.name, saved.module())
    request = dataclasses.replace(saved.request, fused=False, name=APART.format(saved.request.name))
    workloads, _ = network_workloads(request, module)
    return FusionSpace(tuple(fusion_groups(module)), tuple(workloads))


def main() -> None:
    """Entry point."""
    end_with_parent()
    try:
        space = fusion_space(read_network(Path(sys.argv[1])))
        answer = dataclasses.asdict(space)
    except KernelcastError as error:
        answer = {"error": str(error)}
    Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
