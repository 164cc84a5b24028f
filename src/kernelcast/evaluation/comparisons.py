"""Paired tests between the models of one split: which of two is better, by how much, and can that be chance.

Two answers stand beside each other, since they doubt different things:

- The bootstrap interval of the difference draws programs (and unseen workloads) again, the same for both models, and
  the seeds of each. It covers what a model's luck with its seeds is worth.
- The randomisation test (Fisher, The Design of Experiments, 1935, section 21) asks whether the workloads agree: were
  both models equal, which of the two got which score on a workload would be a coin toss. p is the share of all sign
  patterns of the workloads' differences whose mean is at least as far from zero. It assumes no distribution, and tests
  the mean that is reported. Smucker, Allan and Carterette, A comparison of statistical significance tests for
  information retrieval evaluation (CIKM 2007), prefer it to Wilcoxon's test, which tests something else, for scores by
  topic, which are to a ranking of documents what workloads are here.

Many pairs are tested, so p is corrected for all pairs of one split and metric (Holm, A simple sequentially rejective
multiple test procedure, Scandinavian Journal of Statistics 6, 1979): whatever pair a reader picks afterwards, the
chance of a false claim anywhere in the table stays below the level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from jaxtyping import Float64

from kernelcast.evaluation.bootstrap import Bootstrap

SIGN_PATTERNS = 20_000
"""Random sign patterns of a test, where all of them are more: the smallest p is 1 over that."""

MOST_ENUMERATED = 14
"""Workloads of which all sign patterns are looked at; p is exact then."""

PAIRS_AT_ONCE = 32


@dataclass(frozen=True)
class Comparison:
    """Two models in one metric on one split.

    Attributes:
        model: the one that stands first in the split's order.
        other: the other one.
        metric: its name.
        difference: value of `model` minus that of `other`, workloads with equal weight, mean over the seeds.
        low: lower end of its paired bootstrap interval.
        high: upper end.
        workloads: that have the metric.
        p: of the randomisation test over these workloads.
        p_holm: the same, corrected for all pairs of this split and metric.
    """

    model: str
    other: str
    metric: str
    difference: float
    low: float
    high: float
    workloads: int
    p: float
    p_holm: float

    def shown(self, confidence: float) -> bool:
        """Whether a difference is shown: the interval excludes zero and the corrected p is below the level."""
        return (self.low > 0 or self.high < 0) and self.p_holm <= 1 - confidence


@dataclass(frozen=True)
class Standing:
    """One metric of one model, as comparisons need it.

    Attributes:
        value: over the workloads, mean over the seeds.
        drawn: the same of every bootstrap draw.
        by_workload: of every workload, mean over the seeds.
    """

    value: float
    drawn: Float64[np.ndarray, "samples"]
    by_workload: Float64[np.ndarray, "workloads"]


def compare(models: Mapping[str, Mapping[str, Standing]], bootstrap: Bootstrap) -> tuple[Comparison, ...]:
    """All pairs of models in all metrics that both have.

    Args:
        models: standing by model and metric; the models in the order of the split, scored on the same draws.
        bootstrap: how the draws were made.
    """
    metrics = dict.fromkeys(name for standings in models.values() for name in standings)
    return tuple(comparison for name in metrics for comparison in _compare_in(name, models, bootstrap))


def _compare_in(metric: str, models: Mapping[str, Mapping[str, Standing]], bootstrap: Bootstrap) -> list[Comparison]:
    standings = {name: standings[metric] for name, standings in models.items() if metric in standings}
    pairs = list(combinations(standings, 2))
    if not pairs:
        return []
    differences = np.stack([_differences(standings[a].by_workload, standings[b].by_workload) for a, b in pairs])
    p = randomisation_p(differences, bootstrap.seed)
    corrected = holm(p)
    found = []
    for (one, other), plain, holms in zip(pairs, p.tolist(), corrected.tolist(), strict=True):
        a, b = standings[one], standings[other]
        low, high = np.percentile(a.drawn - b.drawn, bootstrap.ends)
        workloads = differences.shape[1]
        found.append(
            Comparison(one, other, metric, a.value - b.value, float(low), float(high), workloads, plain, holms)
        )
    return found


def _differences(one: Float64[np.ndarray, "workloads"], other: Float64[np.ndarray, "workloads"]) -> np.ndarray:
    """Differences by workload; what rounding makes of equal values, such as means over different seeds, is none."""
    return np.where(np.isclose(one, other, rtol=1e-12, atol=1e-14), 0.0, one - other)


def randomisation_p(differences: Float64[np.ndarray, "pairs workloads"], seed: int) -> Float64[np.ndarray, "pairs"]:
    r"""Two-sided p of the paired randomisation test of every row.

    $$p = \frac{|\{s \in \{-1, 1\}^W : |\sum_w s_w d_w| \ge |\sum_w d_w|\}|}{2^W}$$

    Up to 14 workloads over all sign patterns; beyond, over 20,000 random ones, the observed one among them (Phipson and
    Smyth, Permutation p-values should never be zero, Statistical Applications in Genetics and Molecular Biology 9,
    2010). W workloads give no p below 2 / 2**W.

    Args:
        differences: of two models, by workload.
        seed: of the random sign patterns.
    """
    signs = sign_patterns(differences.shape[1], seed)
    # sums of the same numbers in another order may differ in their last digits
    observed = np.abs(differences.sum(axis=1)) - 1e-12 * np.abs(differences).sum(axis=1)
    p = np.empty(len(differences))
    # some pairs at a time: all at once would be gigabytes
    for start in range(0, len(differences), PAIRS_AT_ONCE):
        some = slice(start, start + PAIRS_AT_ONCE)
        p[some] = np.mean(np.abs(signs @ differences[some].T) >= observed[some], axis=0)
    return p


@lru_cache(maxsize=4)
def sign_patterns(workloads: int, seed: int) -> Float64[np.ndarray, "patterns workloads"]:
    """All patterns of signs where they are few, else random ones after the one that changes nothing."""
    if workloads <= MOST_ENUMERATED:
        return 1.0 - 2.0 * ((np.arange(2**workloads)[:, None] >> np.arange(workloads)) & 1)
    drawn = np.random.default_rng([seed, 3]).integers(2, size=(SIGN_PATTERNS - 1, workloads))
    return np.concatenate([np.ones((1, workloads)), 1.0 - 2.0 * drawn])


def holm(p: Sequence[float] | Float64[np.ndarray, "tests"]) -> Float64[np.ndarray, "tests"]:
    r"""The values of p corrected for the number of tests.

    $$\tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})$$

    with p_(1) the smallest of m.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    factors = len(values) - np.arange(len(values))
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, factors * values[order]))
    return corrected
