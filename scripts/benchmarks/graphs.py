"""What views of programs cost beside TVM's features, and how batches and stores grow, in one run on one core.

    python scripts/benchmarks/graphs.py [--quick] [--parts costs code batches scale] [--sizes 1000 10000 100000]

Parts: (1) the trees and our rows, and the traces, beside TVM's C++ `PerStoreFeature.extract_from` on the same scheduled
programs, in turns; (2) reading the machine code of programs beside building them; (3) batches a second beside PyTorch
Geometric's DataLoader on the same graphs and batch size, in turns; (4) building, opening, memory and batches at growing
sizes. The last line is one JSON object with the figures.
Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
from pathlib import Path

from graph_batches import batch_figures
from graph_code import code_figures
from graph_costs import cost_figures
from graph_scale import scale_figures
from graph_suite import GraphSuite

SIZES = (1000, 10_000, 100_000)


def main() -> None:
    """Runs the parts and prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few programs and passes: 50 seconds")
    parser.add_argument("--output", type=Path, help="folder for the stores; a temporary one by default")
    parser.add_argument("--parts", nargs="+", default=["costs", "code", "batches", "scale"], help="only these parts")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="programs of the stores of the part scale")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    # the ratios are those of one core, and no thread may wander
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    figures: dict[str, object] = {"quick": options.quick}
    with tempfile.TemporaryDirectory(prefix="kernelcast-benchmark-") as temporary:
        suite = GraphSuite(options.output or Path(temporary), options.quick)
        if "costs" in options.parts:
            figures |= cost_figures(suite)
        if "code" in options.parts:
            figures |= code_figures(suite)
        if "batches" in options.parts:
            figures |= batch_figures(suite)
        if "scale" in options.parts and not options.quick:
            figures |= scale_figures(suite, options.sizes)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
