"""How much of what the noise allows a model reaches."""

from __future__ import annotations

from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.summary import METRIC_BY_NAME


def ceiling_share(metric: str, value: float, ceiling: float) -> float | None:
    r"""Share of the noise ceiling: 1 is as good as a second measurement of the same programs, 0 is worthless.

    - Where chance has a value c (tau, Spearman, pairwise accuracy): $(x - c) / (x^* - c)$, so chance is 0.
    - Where more is better and chance has no fixed value (top-k scores): $x / x^*$.
    - For errors: $x^* / x$, the part of the error that the noise alone makes; 0 for an infinite error.

    It may exceed 1: the ceiling is an estimate from other, often fewer, programs, and a model that has averaged the
    noise of many labels can be nearer to the truth than one more measurement is.

    Args:
        metric: its name.
        value: x, of the model.
        ceiling: x*, of a second measurement.

    Returns:
        None where the ceiling leaves nothing to have a share of: it is chance or below, or both errors are 0.
    """
    found = METRIC_BY_NAME[metric]
    if not found.higher_is_better:
        return ceiling / value if value > 0 else None
    chance = found.by_chance or 0.0
    return (value - chance) / (ceiling - chance) if ceiling > chance else None


def share_of(metric: str, estimates: dict[str, Estimate], ceilings: dict[str, Estimate]) -> float | None:
    """The share of the ceiling that `metric` of a model has; None where either has no such metric."""
    if metric not in estimates or metric not in ceilings:
        return None
    return ceiling_share(metric, estimates[metric].value, ceilings[metric].value)
