"""From predictions, lower is faster, to what MetaSchedule takes: positive numbers, higher is faster.

MetaSchedule keeps the highest scores and takes negative ones for zero, so that plain predictions would become ties.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

MOST_EXPONENT = 700.0
"""Beyond, `exp` is no number any more."""


def as_scores(
    predicted: Float64[np.ndarray, " programs"], fastest: float | None = None
) -> Float64[np.ndarray, " programs"]:
    r"""Scores of one workload's programs, higher is faster.

    That is::

        score(x) = exp(fastest - predicted(x))

    Of ln(seconds) that is the speed in units of that of the fastest.

    Args:
        predicted: infinite where there is no prediction; these get 0.
        fastest: the prediction that gets 1; by default the least of these.
    """
    if fastest is None:
        fastest = fastest_of(predicted)
    scores: Float64[np.ndarray, " programs"] = np.exp(np.minimum(fastest - predicted, MOST_EXPONENT))
    return scores


def fastest_of(predicted: Float64[np.ndarray, " programs"]) -> float:
    """The least finite prediction; 0 where there is none."""
    return (
        float(np.min(predicted, where=np.isfinite(predicted), initial=np.inf)) if np.isfinite(predicted).any() else 0.0
    )
