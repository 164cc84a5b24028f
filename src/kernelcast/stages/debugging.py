"""Debug runs of a training: few programs, one workload learned by heart, a profile. See conf/debug."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from jaxtyping import Int, Int64
from omegaconf import DictConfig

from kernelcast.errors import ConfigError

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs
    from kernelcast.graphs.splits import Split
    from kernelcast.stages.tracking import TrackedRun

logger = logging.getLogger(__name__)

DEBUG_TAG = "kernelcast.debug"
"""Tag of a run: the file of conf/debug that it was run with; other runs have no such tag."""

OVERFIT_TAG = "kernelcast.overfit"
"""Tag of a debug run: whether the loss went near zero, or at least the order came out right."""

NEAR_ZERO_SHARE = 0.05
"""Of the loss after the first epoch or tree: what is below counts as near zero."""

NEAR_ZERO = 0.01
"""And so does a loss below this, in its own unit: an easy workload is learned within the first epoch."""

RIGHT_ORDER = 0.98
"""Kendall's tau from which the order counts as learned; two programs of nearly equal times may be left."""

PROFILE_FOLDER = "profile"


def check_debug_output(config: DictConfig, output: Path) -> None:
    """Makes sure that a debug run leaves nothing where the pipeline looks for models.

    Args:
        config: the resolved configuration.
        output: folder of the trained model.

    Raises:
        ConfigError: its model would be among those that `evaluate` scores.
    """
    mode = HydraConfig.get().runtime.choices.get("debug")
    if mode is not None and output.absolute().is_relative_to(Path(config.paths.models).absolute()):
        raise ConfigError(
            f"debug={mode} output={config.output}: a model of a debug run has no place in {config.paths.models}, where "
            "`evaluate` would take it for a real one; leave `output` out"
        )


def begin_debug_run(config: DictConfig, learned: bool, run: TrackedRun) -> None:
    """Marks the run of a debug run.

    Args:
        config: the resolved configuration.
        learned: whether the model learns at all.
        run: gets the tag.

    Raises:
        ConfigError: there is nothing to learn by heart.
    """
    mode = HydraConfig.get().runtime.choices.get("debug")
    if mode is None:
        return
    run.tags({DEBUG_TAG: str(mode)})
    if config.debug.overfit and not learned:
        raise ConfigError(f"debug={mode}: this model learns nothing, so it cannot learn by heart; take another model")


def debug_split(split: Split, programs: Programs, debug: Mapping[str, Any] | None) -> Split:
    """The split that a debug run trains and tests on; the same one where it is no debug run, or does not say.

    Args:
        split: of all programs.
        programs: all of them.
        debug: `config.debug`.

    Raises:
        ConfigError: a number of programs or workloads that is none.
    """
    if debug is None:
        return split
    workloads, count = debug["workloads"], debug["programs"]
    for name, value in (("workloads", workloads), ("programs", count)):
        if value is not None and value < 1:
            raise ConfigError(f"debug.{name}={value}: it must be at least 1, or null for all")
    parts = {part: few_rows(rows, programs.workload[rows], workloads, count) for part, rows in split.parts()}
    if debug["overfit"]:
        train = parts["train"]
        names = ", ".join(programs.workload_names[index] for index in np.unique(programs.workload[train]))
        logger.info("overfit: %d programs of %s are trained, validated and tested on", len(train), names)
        parts = dict.fromkeys(parts, train)
    else:
        told = ", ".join(f"{len(rows)} {part}" for part, rows in parts.items())
        logger.info("debug run: of %d programs only %s", len(programs), told)
    # such parts keep no rule and are never written
    return replace(split, train=parts["train"], valid=parts["valid"], test=parts["test"], rules=())


def few_rows(
    rows: Int64[np.ndarray, " rows"],
    workload: Int[np.ndarray, " rows"],
    workloads: int | None,
    programs: int | None,
) -> Int64[np.ndarray, " few"]:
    """At most so many rows of the workloads with the most, about equally many of each, in their order."""
    names, counts = np.unique(workload, return_counts=True)
    kept = names[np.argsort(-counts, kind="stable")][:workloads]
    chosen = np.flatnonzero(np.isin(workload, kept))
    if programs is not None:
        # the first of every workload, then the second ones, ...: several of each, so that there are pairs
        place = np.empty(len(chosen), dtype=np.int64)
        for name in kept:
            of_name = workload[chosen] == name
            place[of_name] = np.arange(np.count_nonzero(of_name))
        chosen = np.sort(chosen[np.argsort(place, kind="stable")][:programs])
    return rows[chosen]


@contextmanager
def profiled(config: DictConfig, run: TrackedRun) -> Iterator[None]:
    """Profiles the body if the debug run asks for it, into the run's folder and onto the tracked run."""
    if config.debug is None or not config.debug.profile:
        yield
        return
    from kernelcast.models.profiling import profile_into

    folder = Path(HydraConfig.get().runtime.output_dir, PROFILE_FOLDER)
    with profile_into(folder):
        yield
    run.artifact(folder, PROFILE_FOLDER)


def judge_overfitting(
    debug: Mapping[str, Any] | None, rows: Mapping[int, Mapping[str, float]], run: TrackedRun
) -> None:
    """Says whether the loss on the programs that were learned by heart went near zero, if that was asked for.

    Args:
        debug: `config.debug`.
        rows: the metrics of every epoch or tree; the validation programs are those of training.
        run: gets the verdict as a tag.

    Raises:
        ConfigError: the model logs no loss, so there is nothing to judge.
    """
    if debug is None or not debug["overfit"]:
        return
    curves: dict[str, list[float]] = {}
    for _, values in sorted(rows.items()):
        for name, value in values.items():
            if name.endswith(("valid/loss", "valid/kendall_tau")):
                curves.setdefault(name, []).append(value)
    losses = {name: curve for name, curve in sorted(curves.items()) if name.endswith("loss")}
    if not losses:
        raise ConfigError("debug=overfit: this model logs no loss, so nothing can be said of it; take another model")
    verdicts = {
        _verdict(name, curve, curves.get(f"{name.removesuffix('loss')}kendall_tau", []))
        for name, curve in losses.items()
    }
    run.tags({OVERFIT_TAG: ", ".join(sorted(verdicts))})


def _verdict(name: str, losses: list[float], taus: list[float]) -> str:
    """Logs how one loss went and returns it in short."""
    first, least = losses[0], min(losses)
    limit = max(NEAR_ZERO, NEAR_ZERO_SHARE * first)
    what = f"overfit: {name} went from {first:.4g} after the first epoch or tree to {least:.4g}"
    if least <= limit:
        logger.info("%s, near zero: the model can learn these programs by heart", what)
        return "loss near zero"
    if max(taus, default=0.0) >= RIGHT_ORDER:
        # what is stopped by its order need not go on to the end of its loss
        logger.info(
            "%s, not near zero (below %.4g), but it has their order by heart (Kendall's tau %.3f)",
            what,
            limit,
            max(taus),
        )
        return "order right"
    logger.warning(
        "%s, not near zero (below %.4g): the model, its features, its loss or its learning rate cannot learn these "
        "programs even by heart; trees cannot where a leaf wants about as many programs (min_child_samples)",
        what, limit,
    )  # fmt: skip
    return "not learned"
