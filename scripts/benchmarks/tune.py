"""What a learned model saves a tuner: trials and wall time to what TVM's XGBModel reaches at the end of its budget.

    python scripts/benchmarks/tune.py --quick
    python scripts/benchmarks/tune.py --replay [--seeds 5] [--per-network 8]
    python scripts/benchmarks/tune.py --model data/models/network/ensemble-rank [--trials 64] [--output FOLDER]

Without `--quick` or `--replay` programs are built and timed, which takes hours; the same command goes on where it was
stopped. `--replay` searches among the programs that the shipped data set has measured, with no hardware, and so does
`--quick`, with a model that has learned from few programs. Such a space has some dozens of programs, so the budget is
half of it, and rounds and the start of TVM's training keep the proportions that they have with 256 trials: the figures
named `..._xgb_256` are then about `xgb_trials` trials.

Each part also asks how long scoring candidates takes beside TVM's XGBModel. The last line is one JSON object with the
figures; null stands for a median that is not reached. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from graph_suite import GraphSuite
from rich.console import Console
from tune_hardware import METHODS, tuned
from tune_replay import replayed
from tune_scoring import CANDIDATES, TRAINED, draw
from tune_scoring import figures as scoring_figures

from kernelcast.evaluation.bootstrap import Bootstrap
from kernelcast.evaluation.tuning_comparison import TuningComparison, compare_tunings
from kernelcast.evaluation.tuning_curves import Tunings
from kernelcast.evaluation.tuning_table import comparison_table, write_comparison
from kernelcast.trials import TRIALS_FILE, write_trials
from kernelcast.tuning.trained import TrainedModel

BOOTSTRAP = Bootstrap(samples=1000, confidence=0.95, seed=0)

NOISE = 0.02
"""A measured time counts as reached within so much: two measurements of a program differ by as much."""

SCORED = "conv2d_bias_relu_56"
"""A workload of the default suite whose candidates are scored."""


def main() -> None:
    """Tunes or replays, compares and prints the figures."""
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    seeds = range(options.seeds)
    with tempfile.TemporaryDirectory(prefix="kernelcast-benchmark-") as temporary:
        if options.quick or options.replay:
            found = replayed(Path(temporary), options.networks, options.per_network, seeds, options.quick)
            trials, ours, model, about, within = found.trials, found.ours, found.model, found.about, 0.0
        else:
            methods = [METHODS[name](options.model) for name in options.methods]
            trials, names = tuned(
                options.output,
                options.networks,
                options.per_network,
                methods,
                seeds,
                options.trials,
                options.xgb_trials,
                options.cores,
            )
            ours, about, within = methods[0].label, {"workloads": names}, NOISE
            model = TrainedModel.load(options.model, any_target=True)
        scoring = scored(model, Path(temporary), options.quick)
    figures = compared(trials, ours, within, options.output)
    about |= {"networks": options.networks, "seeds": options.seeds, "replay": options.quick or options.replay}
    print(json.dumps({"quick": options.quick, **figures, **scoring, **about}))


def scored(model: TrainedModel, directory: Path, quick: bool) -> dict[str, Any]:
    """What scoring candidates costs beside TVM's XGBModel; see `tune_scoring`."""
    suite = GraphSuite(directory, True)
    workload = next(one for one in suite.workloads if one.name == SCORED)
    candidates = draw(workload, suite.target, TRAINED if quick else CANDIDATES)
    found = scoring_figures(workload, suite.target, model, candidates, quick)
    return {"scoring_over_xgb": found.pop("scoring_over_xgb"), "scoring": found}


def compared(trials: pa.Table, ours: str, within: float, output: Path | None) -> dict[str, Any]:
    """The figures of a table of trials; shows the table, and writes it where `output` is given."""
    tunings = Tunings.of(trials)
    comparison = compare_tunings(tunings, BOOTSTRAP, within=within)
    Console().print(comparison_table(comparison))
    if output is not None:
        write_trials(output / TRIALS_FILE, trials)
        write_comparison(output, tunings, comparison)
    return {
        "ours": ours,
        **{f"{name}_xgb_256": value for name, value in _reach(comparison, ours).items()},
        "xgb_trials": comparison.reference_trials,
        "methods": {
            result.method: {
                **_reach(comparison, result.method),
                "area_under_curve": result.area.value,
                "final_speed": result.final_speed.value,
                "wall_seconds": result.seconds,
                "model_share": result.model_share,
            }
            for result in comparison.methods
        },
    }


def _reach(comparison: TuningComparison, method: str) -> dict[str, float | None]:
    """Medians until the reference's end is reached, and how many tunings reach it at all."""
    reach = comparison.of_method(method).reach
    assert reach is not None, "TVM's XGBModel is among the methods"
    figures = {"trials_to_reach": reach.trials, "wall_ratio_to_reach": reach.ratio, "share_to_reach": reach.share}
    return {name: value if math.isfinite(value := estimate.value) else None for name, estimate in figures.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="replay, learn from few programs: 50 seconds")
    parser.add_argument("--replay", action="store_true", help="replay on all programs of the shipped data set")
    parser.add_argument("--model", default="data/models/network/ensemble-rank", help="folder of the trained model")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), help="ours first")
    parser.add_argument("--networks", nargs="+", default=["resnet18", "bert"], help="that the model has not seen")
    parser.add_argument("--per-network", type=int, default=3, help="workloads of each network")
    parser.add_argument("--seeds", type=int, help="searches of each workload and method; 5, with --quick 3")
    parser.add_argument("--trials", type=int, default=64, help="programs that a tuning measures")
    parser.add_argument("--xgb-trials", type=int, default=256, help="the same by TVM's XGBModel, which sets the target")
    parser.add_argument("--cores", type=int, default=1, help="that a program uses")
    parser.add_argument("--output", type=Path, help="folder of tunings and tables; data/tuning/benchmark by default")
    options = parser.parse_args()
    replay = options.quick or options.replay
    if "tvm_xgb" not in options.methods:
        parser.error("--methods: tvm_xgb has to be among them, for what it reaches is the target of the others")
    options.seeds = options.seeds or (3 if options.quick else 5)
    if options.output is None and not replay:
        options.output = Path("data/tuning/benchmark")
    return options


if __name__ == "__main__":
    main()
