"""What tracking costs, and whether a page with many runs stays usable, in one run on a fresh SQLite database.

    python scripts/benchmarks/tracking.py [--quick]

The last line is one JSON object with the figures: ratios of two things in one run, and for the case that names it, the
seconds of one search. Little else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from kernelcast.stages.tracking import open_experiment, tracked_run

PASSES = 5


def main() -> None:
    """Fills a database and prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 runs and 2,000 steps instead of 500 and 20,000")
    options = parser.parse_args()
    runs, steps = (100, 2_000) if options.quick else (500, 20_000)
    with tempfile.TemporaryDirectory(prefix="kernelcast-benchmark-") as folder:
        print(json.dumps({"quick": options.quick, **figures(Path(folder), runs, steps)}))


def figures(root: Path, runs: int, steps: int) -> dict[str, float]:
    """Searches among `runs` beside a tenth of them, and curves of `steps` beside those that are not thinned."""
    few, many = (config_of(root, name) for name in ("few", "many"))
    fill(few, runs // 10)
    fill(many, runs)
    search_few, search_many = median_seconds(lambda: search(few)), median_seconds(lambda: search(many))
    with tracked_run(many, "long", "train") as run:
        started = time.perf_counter()
        for step in range(steps):
            run.metrics({"train/loss": 1.0 / (step + 1)}, step)
        thinned_seconds = time.perf_counter() - started
        client, run_id = run.client, run.run_id
        started = time.perf_counter()
        for step in range(steps // 10):
            client.log_metric(run_id, "every step", 1.0 / (step + 1), step=step)
        whole_seconds = 10 * (time.perf_counter() - started)
    return {
        "runs": runs,
        "search_seconds": search_many,
        "search_of_all_beside_a_tenth": search_many / search_few,
        "steps": steps,
        "points_kept": len(client.get_metric_history(run_id, "train/loss")),
        "curve_thinned_beside_whole": thinned_seconds / whole_seconds,
    }


def config_of(root: Path, experiment: str) -> DictConfig:
    """A configuration with what tracking needs."""
    tracking = {"uri": f"sqlite:///{root}/mlflow.db", "experiment": experiment, "artifacts": f"{root}/artifacts"}
    config = OmegaConf.create({"tracking": tracking, "paths": {"root": str(root), "runs": str(root)}})
    assert isinstance(config, DictConfig)
    return config


def fill(config: DictConfig, count: int) -> None:
    """Short runs, as a study makes them."""
    from mlflow.entities import Metric, Param, RunTag

    client, experiment_id = open_experiment(config)
    for number in range(count):
        run = client.create_run(experiment_id, run_name=f"trial {number}")
        client.log_batch(
            run.info.run_id,
            [Metric(f"valid/metric_{name}", number / count, step, step) for name in range(10) for step in range(5)],
            [Param(f"model.settings.{name}", str(number)) for name in range(30)],
            [RunTag("kernelcast.stage", "train")],
        )
        client.set_terminated(run.info.run_id)


def search(config: DictConfig) -> int:
    """All runs, page by page, the best first, as a table of them is drawn."""
    client, experiment_id = open_experiment(config)
    found, token = 0, None
    while True:
        page = client.search_runs(
            [experiment_id], order_by=["metrics.`valid/metric_0` DESC"], page_token=token, max_results=100
        )
        found, token = found + len(page), page.token
        if not token:
            return found


def median_seconds(work: Callable[[], Any]) -> float:
    """Of a few passes."""
    seconds = []
    for _ in range(PASSES):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
