"""The extracting process: `python -m kernelcast.networks.extract REQUESTS REPLY [FOLDER]`, two JSON files.

With a folder, the one network that is asked for is also written there, to be compiled later. Only such processes load
torch, and run what the user wrote. It ends when whoever started it is gone.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from kernelcast.errors import KernelcastError
from kernelcast.networks.own_process import end_with_parent
from kernelcast.networks.requests import Request
from kernelcast.records import Workload


def workloads_of(request: Request) -> tuple[list[Workload], list[str]]:
    """The workloads of one request, and a line for each kernel that was left out.

    Raises:
        ConfigError: there are none.
    """
    from kernelcast.networks.kernels import network_module, network_workloads
    from kernelcast.networks.user_file import own_function_workload, own_script_workload

    if request.source == "function":
        return [own_function_workload(request)], []
    if request.source == "script":
        return [own_script_workload(request)], []
    return network_workloads(request, network_module(request.name, *network_parts(request), request.fused))


def network_parts(request: Request) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The network of a request with its positional and its named inputs.

    Raises:
        ConfigError: the user's file cannot work.
    """
    if request.source == "module":
        from kernelcast.networks.user_file import own_network_parts

        return own_network_parts(request)
    from kernelcast.networks.architectures import make_network

    return *make_network(**request.arguments), {}


def reply_to(requests: list[Request], folder: Path | None = None) -> dict[str, Any]:
    """What goes back: workloads by request and lines to warn with, or the first error.

    Args:
        requests: what is wanted.
        folder: an existing folder where the one network is written too.
    """
    from kernelcast.networks.saving import save_network_files

    replies, left_out = [], []
    for request in requests:
        try:
            workloads, lines = workloads_of(request) if folder is None else save_network_files(request, folder)
        except KernelcastError as error:
            return {"error": str(error)}
        replies.append([dataclasses.asdict(workload) for workload in workloads])
        left_out += lines
    return {"workloads": replies, "left_out": left_out}


def main() -> None:
    """Entry point."""
    end_with_parent()
    warnings.simplefilter("ignore")
    requests = [Request(**entry) for entry in json.loads(Path(sys.argv[1]).read_text())]
    folder = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    Path(sys.argv[2]).write_text(json.dumps(reply_to(requests, folder)))


if __name__ == "__main__":
    main()
