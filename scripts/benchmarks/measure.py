"""How fast and how exact measuring is, beside TVM's own way, in one run on this machine.

    python scripts/benchmarks/measure.py [--quick] [--output FOLDER]

Parts: (1) the same candidates through kernelcast and through TVM's LocalBuilder and LocalRunner, in turns; (2) wall
time of a campaign over the work in it; (3) every program measured twice, batches apart, by both ways, in turns;
(4) memory over a long campaign. The last line is one JSON object with the figures; the machine's states are drawn into
the output folder. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from pathlib import Path

from campaigns import Suite
from memory import memory_growth
from noise import noise_figures
from speed import speed_figures, work_figures


def main() -> None:
    """Runs the parts and prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few programs and bounds instead of figures: 50 seconds")
    parser.add_argument("--output", type=Path, help="folder for the campaigns and the plot; a temporary one by default")
    parser.add_argument("--parts", nargs="+", default=["speed", "work", "noise", "memory"], help="only these parts")
    parser.add_argument("--programs", type=int, default=512, help="programs of the parts work and noise")
    parser.add_argument("--memory-programs", type=int, default=2000, help="programs of the part memory")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    figures: dict[str, object] = {"quick": options.quick}
    with tempfile.TemporaryDirectory(prefix="kernelcast-benchmark-") as temporary:
        output = options.output or Path(temporary)
        output.mkdir(parents=True, exist_ok=True)
        suite = Suite(output, "tiny" if options.quick else "default")
        if "speed" in options.parts:
            figures |= speed_figures(suite, options.quick)
        if "work" in options.parts and not options.quick:
            figures |= work_figures(suite, options.programs)
        if "noise" in options.parts:
            figures |= noise_figures(suite, options.programs, options.quick)
        if "memory" in options.parts and not options.quick:
            figures |= memory_growth(suite, options.memory_programs)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
