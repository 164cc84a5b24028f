"""What an epoch of training costs beside PyTorch Geometric, in one run on one core.

    python scripts/benchmarks/train.py [--quick]

The same graph convolutional network with the same weights on the same graphs, in turns: our batches, convolution and
readout beside DataLoader, `GCNConv` and its poolings. The last line is one JSON object with the figures. Little else
should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
from pathlib import Path

import torch
from graph_suite import GraphSuite
from train_epochs import epoch_figures


def main() -> None:
    """Trains and prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few programs and passes: 50 seconds")
    parser.add_argument("--output", type=Path, help="folder for the store; a temporary one by default")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    # the ratios are those of one core, and no thread may wander
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="kernelcast-benchmark-") as temporary:
        suite = GraphSuite(options.output or Path(temporary), options.quick)
        if options.quick:
            # most of the time goes into drawing programs and their graphs
            suite.workloads = suite.workloads[::2]
        print(json.dumps({"quick": options.quick, **epoch_figures(suite)}))


if __name__ == "__main__":
    main()
