"""The extracting process: `python -m kernelcast.networks.extract REQUESTS REPLY`, two JSON files.

It alone loads torch, and runs what the user wrote. It ends when whoever started it is gone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from kernelcast.errors import KernelcastError
from kernelcast.networks.requests import Request
from kernelcast.records import Workload


def workloads_of(request: Request) -> tuple[list[Workload], list[str]]:
    """The workloads of one request, and a line for each kernel that was left out.

    Raises:
        ConfigError: there are none.
    """
    from kernelcast.networks.kernels import network_module, network_workloads
    from kernelcast.networks.user_file import own_function_workload, own_network_parts

    if request.source == "function":
        return [own_function_workload(request)], []
    named: dict[str, Any] = {}
    positional: tuple[Any, ...]
    if request.source == "module":
        network, positional, named = own_network_parts(request)
    else:
        from kernelcast.networks.architectures import make_network

        network, positional = make_network(**request.arguments)
    return network_workloads(request, network_module(request.name, network, positional, named, request.fused))


def reply_to(requests: list[Request]) -> dict[str, Any]:
    """What goes back: workloads by request and lines to warn with, or the first error."""
    replies, left_out = [], []
    for request in requests:
        try:
            workloads, lines = workloads_of(request)
        except KernelcastError as error:
            return {"error": str(error)}
        replies.append([dataclasses.asdict(workload) for workload in workloads])
        left_out += lines
    return {"workloads": replies, "left_out": left_out}


def main() -> None:
    """Entry point."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings.simplefilter("ignore")
    requests = [Request(**entry) for entry in json.loads(Path(sys.argv[1]).read_text())]
    Path(sys.argv[2]).write_text(json.dumps(reply_to(requests)))


def _end_with_parent() -> None:
    # the other end of this pipe closes with the process that holds it
    # (not by `sys.stdin`, whose lock would be held at the end)
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
