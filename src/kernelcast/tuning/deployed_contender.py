"""A deployed network: `python -m kernelcast.tuning.deployed_contender SOCKET CORES FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kernelcast.networks.saved import EXAMPLE_FILE, read_example
from kernelcast.networks.turns import keep_to, serve_turns
from kernelcast.tuning.compiling import LIBRARY_FILE
from kernelcast.tuning.deployment import read_deployment
from kernelcast.tvm_compat import device_of, load_tvm, tvm_versions


def load_library(folder: Path) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What runs a deployed network once on its example."""
    tvm = load_tvm()
    deployment = read_deployment(folder)
    device = device_of(deployment.target)
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(folder / LIBRARY_FILE)), device)
    arrays, _ = read_example(folder / EXAMPLE_FILE, deployment.inputs, deployment.outputs)
    inputs = [tvm.runtime.tensor(array, device=device) for array in arrays]
    main = machine["main"]

    def call() -> None:
        main(*inputs)
        device.sync()

    return call, {"threads": deployment.target.get("num-cores", 1), "version": tvm_versions()["apache-tvm"]}


def main() -> None:
    """Entry point."""
    number, cores, folder = sys.argv[1:]
    keep_to([int(core) for core in cores.split(",") if core])
    serve_turns(int(number), partial(load_library, Path(folder)))


if __name__ == "__main__":
    main()
