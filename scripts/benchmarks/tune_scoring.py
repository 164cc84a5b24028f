"""What scoring the candidates of a search costs, features included, beside TVM's XGBModel on the same candidates.

    python scripts/benchmarks/tune_scoring.py [--quick] [--model FOLDER] [--workload NAME]

Both get candidates of one workload as TVM's evolutionary search gives them, and all cores, in turns. Without a model an
ensemble as in `conf/model/ensemble.yaml` is trained for one epoch: what it predicts does not matter here. The last line
is one JSON object with the figures. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from graph_suite import SEED, GraphSuite
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from kernelcast.graphs.dataset.store import read_description, read_programs
from kernelcast.machine import Host
from kernelcast.measurement.sampling import tune_context
from kernelcast.models.trained_on import TrainedOn
from kernelcast.records import Workload
from kernelcast.stages.config_nodes import project_root
from kernelcast.tuning import tvm_cost_model
from kernelcast.tuning.peers import tvm_xgb_model
from kernelcast.tuning.trained import TrainedModel
from kernelcast.tvm_compat import available_cores, make_target, parse_module, structural_key

logger = logging.getLogger(__name__)

CANDIDATES, QUICK_CANDIDATES = 2048, 256
PASSES, QUICK_PASSES = 5, 3
DRAW_SIZE = 64
TRAINED = 128
"""Programs that XGBModel learns from first: with fewer than 100 its scores are random, and cost nothing."""

HOST = Host("a processor", 4, 2**30, "Linux", 1e11, 1e10, vector_lanes=16, cache_bytes=2**20)
"""What the made-up times are of."""


class NoLog:
    """A MetricLog that keeps nothing."""

    def metrics(self, values: Any, step: int) -> None:
        """Nothing."""


def main() -> None:
    """Draws candidates, scores them and prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few candidates and passes")
    parser.add_argument("--model", type=Path, help="a folder that train.py wrote")
    parser.add_argument("--workload", default="conv2d_bias_relu_56", help="of conf/workload/default.yaml")
    parser.add_argument("--candidates", type=int, help="how many; 2,048 by default")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    count = options.candidates or (QUICK_CANDIDATES if options.quick else CANDIDATES)
    with tempfile.TemporaryDirectory(prefix="kernelcast-benchmark-") as temporary:
        suite = GraphSuite(Path(temporary), True)
        suite.host = HOST
        workload = {each.name: each for each in suite.workloads}[options.workload]
        judge = trained_model(suite) if options.model is None else TrainedModel.load(options.model, any_target=True)
    candidates = draw(workload, suite.target, count)
    print(json.dumps({"quick": options.quick, **figures(workload, suite.target, judge, candidates, options.quick)}))


def trained_model(suite: GraphSuite) -> TrainedModel:
    """An ensemble of real size, trained for one epoch on few programs."""
    suite.workloads = suite.workloads[:2]
    suite.build(suite.measured, suite.directory / "store")
    programs = read_programs(suite.directory / "store")
    with initialize_config_dir(str(Path(project_root()) / "conf"), version_base="1.3"):
        config = compose("train", ["model=ensemble", "loss=rank", "trainer.max_epochs=1"])
    parts = {"loss": instantiate(config.loss), "trainer": instantiate(config.trainer)}
    model = instantiate(config.model, **parts, seed=SEED)
    model.fit(programs, programs, NoLog())
    return TrainedModel(model, TrainedOn.of(model, programs, read_description(suite.directory / "store")))


def draw(workload: Workload, target: dict[str, Any], count: int) -> list[Any]:
    """Distinct random candidates, as TVM makes them; fewer where the space is small."""
    context = tune_context(workload, target, SEED, "replay-trace")
    context.pre_tuning(
        max_trials=4 * count, num_trials_per_iter=DRAW_SIZE, design_spaces=context.generate_design_space()
    )
    found: dict[str, Any] = {}
    while len(found) < count and (drawn := context.generate_measure_candidates()):
        found |= {structural_key(candidate.sch.mod): candidate for candidate in drawn}
        context.notify_runner_results(drawn, [])
        logger.info("%d of %d candidates", len(found), count)
    return list(found.values())[:count]


def figures(
    workload: Workload, target: dict[str, Any], judge: TrainedModel, candidates: list[Any], quick: bool
) -> dict[str, Any]:
    """Seconds of both for all candidates, medians over the passes."""
    from tvm.s_tir.meta_schedule import TuneContext
    from tvm.s_tir.meta_schedule.runner import RunnerResult

    cores = available_cores()
    context = TuneContext(mod=parse_module(workload.module), target=make_target(target), num_threads=cores)
    xgb = tvm_xgb_model(SEED, cores)
    learned = candidates[:TRAINED]
    xgb.update(context, learned, [RunnerResult([1e-5 * (1 + place)], None) for place in range(len(learned))])
    ways: dict[str, Callable[[], np.ndarray]] = {
        # a new one each time: it remembers what it has seen
        "ours_seconds": lambda: tvm_cost_model(judge).predict(context, candidates),
        "xgb_seconds": lambda: xgb.predict(context, candidates),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(1 + (QUICK_PASSES if quick else PASSES)):
        for name, way in ways.items():
            started = time.perf_counter()
            scores = way()
            if number:  # the first pass loads and compiles
                seconds[name].append(time.perf_counter() - started)
            if len(np.unique(scores)) < 2:
                raise SystemExit(f"{name}: all candidates have one score")
    middle = {name: median(values) for name, values in seconds.items()}
    ratios = [our / their for our, their in zip(seconds["ours_seconds"], seconds["xgb_seconds"], strict=True)]
    return {
        "scoring_over_xgb": median(ratios),
        **middle,
        "candidates": len(candidates),
        "workload": workload.name,
        "cores": cores,
    }


if __name__ == "__main__":
    main()
