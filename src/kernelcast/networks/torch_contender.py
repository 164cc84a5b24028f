"""A network as torch runs it: `python -m kernelcast.networks.torch_contender SOCKET CORES THREADS FOLDER WAY`.

`FOLDER` is a saved network, `WAY` is `eager` or `compile` (TorchInductor).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kernelcast.networks.turns import keep_to, serve_turns

EAGER = "eager"
COMPILE = "compile"


def load_torch_network(folder: Path, way: str, threads: int) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What runs the network once on its example; it has run before, so that nothing is left to compile."""
    import torch

    from kernelcast.networks.extract import network_parts
    from kernelcast.networks.saved import read_network

    torch.set_num_threads(threads)
    network, positional, named = network_parts(read_network(folder).request)
    network = network.eval()
    if way == COMPILE:
        network = torch.compile(network)
    call = torch.inference_mode()(partial(network, *positional, **named))
    call()
    return call, {"threads": torch.get_num_threads(), "version": str(torch.__version__)}


def main() -> None:
    """Entry point."""
    number, cores, threads, folder, way = sys.argv[1:]
    keep_to([int(core) for core in cores.split(",") if core])
    warnings.simplefilter("ignore")
    serve_turns(int(number), partial(load_torch_network, Path(folder), way, int(threads)))


if __name__ == "__main__":
    main()
