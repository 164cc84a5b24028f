"""The stage `measure`: samples schedules of every workload, builds and times them, and records every try."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelcast.records import MEASUREMENTS_FILE, Outcome, Workload, read_measurements
from kernelcast.stages.instantiation import made

if TYPE_CHECKING:
    from kernelcast.measurement.devices import Runner
    from kernelcast.measurement.journal import Try
    from kernelcast.measurement.settings import RunnerSettings

logger = logging.getLogger(__name__)


def measure(config: DictConfig) -> None:
    """Measures what `config` (schema `MeasureConfig`) asks for into `paths.measurements`."""
    from kernelcast.measurement.campaign import run_campaign
    from kernelcast.measurement.failures import examples
    from kernelcast.measurement.plan import Plan
    from kernelcast.measurement.probe import probe
    from kernelcast.stages.lineage import note_measurements
    from kernelcast.stages.tracking import tracked_run
    from kernelcast.stages.workloads import make_workloads
    from kernelcast.tvm_compat import resolve_target

    runner, settings = make_runner(config.runner)
    target = resolve_target(_plain(config.target))
    logger.info("target: %s", target)
    plan = Plan(
        directory=Path(config.paths.measurements),
        workloads=make_workloads(config.workload),
        target=target,
        runner=runner,
        settings=settings,
        samples_per_workload=config.samples_per_workload,
        evolved_share=config.evolved_share,
        max_failure_share=config.max_failure_share,
        seed=config.seed,
    )
    if config.probe:
        probe(plan)
        return
    with tracked_run(config, "measure", "measure") as run:
        tries = run_campaign(plan).tries
        outcomes = Counter(entry.outcome.value for entry in tries if entry.outcome is not None)
        metrics: dict[str, float] = {f"measure/{outcome}": count for outcome, count in outcomes.items()}
        ratios = visit_ratios(plan.directory)
        if len(ratios):
            metrics["measure/repeat_ratio_median"] = float(np.median(ratios))
            metrics["measure/repeat_ratio_p90"] = float(np.quantile(ratios, 0.9))
        run.metrics(metrics, step=0)
        note_measurements(run, plan.directory, "output", rows=len(tries))
    Console().print(outcome_table(plan.workloads, tries))
    for example in examples(plan, tries).values():
        logger.warning("%s", example)
    if len(ratios):
        logger.info(
            "%d programs measured again: the two times differ by a factor of %.3f (median), %.3f (90th percentile)",
            len(ratios),
            metrics["measure/repeat_ratio_median"],
            metrics["measure/repeat_ratio_p90"],
        )
    logger.info("measurements: %s", plan.directory / MEASUREMENTS_FILE)


def visit_ratios(directory: Path) -> Float64[np.ndarray, " programs"]:
    """Of the programs that were measured again: the larger over the smaller of both minima."""
    from kernelcast.evaluation.noise import Source, paired_labels
    from kernelcast.graphs.dataset.labels import Labelling

    pairs = paired_labels(read_measurements(directory).measured, Labelling())
    return pairs.ratios if pairs.source is Source.VISITS else np.empty(0)


def make_runner(node: Any) -> tuple[Runner, RunnerSettings]:
    """Where programs run, and how they are built, checked and timed.

    Raises:
        ConfigError: a value that cannot work; names its key.
    """
    from kernelcast.measurement.settings import RunnerSettings, TimingSettings

    values = {str(key): value for key, value in node.items() if key not in ("devices", "timing")}
    runner: Runner = made("runner.devices", node.devices)
    return runner, RunnerSettings(timing=TimingSettings(**_plain(node.timing)), **values)


def outcome_table(workloads: Sequence[Workload], tries: Sequence[Try]) -> Table:
    """Counts by workload and outcome, with the fastest time."""
    counts = {workload.key: Counter[Outcome]() for workload in workloads}
    best: dict[str, float] = {}
    for entry in tries:
        key = entry.workload_key
        assert entry.outcome is not None, "a finished campaign has an outcome a try"
        counts[key][entry.outcome] += 1
        for repeat in entry.repeats:
            best[key] = min(repeat.run_seconds, best.get(key, repeat.run_seconds))
    seen = [outcome for outcome in Outcome if any(counted[outcome] for counted in counts.values())]
    table = Table(title="programs by outcome")
    table.add_column("workload")
    for outcome in seen:
        table.add_column(outcome.value, justify="right")
    table.add_column("fastest, ms", justify="right")
    for workload in workloads:
        numbers = [str(counts[workload.key][outcome]) for outcome in seen]
        fastest = f"{1e3 * best[workload.key]:.4g}" if workload.key in best else "-"
        table.add_row(Text(workload.name), *numbers, fastest)
    table.add_section()
    table.add_row("all", *(str(sum(counted[outcome] for counted in counts.values())) for outcome in seen), "")
    return table


def _plain(node: Any) -> Any:
    return OmegaConf.to_container(node) if OmegaConf.is_config(node) else node
