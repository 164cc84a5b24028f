"""From predictions, lower is faster, to what MetaSchedule takes: positive numbers, higher is faster.

MetaSchedule keeps the highest scores and takes negative ones for zero, so that plain predictions would become ties.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from scipy.special import ndtri

from kernelcast.errors import ConfigError

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


def require_breadth(key: str, breadth: float) -> None:
    """Makes sure that predictions can be doubted by so many standard deviations of the model's error.

    Raises:
        ConfigError: they cannot; names the key.
    """
    if isinstance(breadth, bool) or not isinstance(breadth, int | float) or not 0 <= breadth < np.inf:
        raise ConfigError(f"{key}={breadth}: a number from 0, in standard deviations of the model's error")


def normal_draws(keys: Sequence[str], seed: int) -> Float64[np.ndarray, " programs"]:
    """A standard normal draw for each program, decided by its structural hash and the seed alone.

    Args:
        keys: hashes of 64 bits, in hexadecimal.
        seed: of the search; another one gives every program another draw.

    Source: the mixing of the hash and the seed is SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom
    number generators, OOPSLA 2014).
    """
    mixed = np.array([int(key, 16) for key in keys], dtype=np.uint64)
    mixed += np.array([(seed + 1) * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.array([factor], dtype=np.uint64)
    mixed ^= mixed >> np.uint64(31)
    draws: Float64[np.ndarray, " programs"] = ndtri(((mixed >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)
    return draws
