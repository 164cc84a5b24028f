"""The first lines of the page: which model to trust, how sure that is, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from kernelcast.evaluation.noise import Source
from kernelcast.evaluation.results import CEILINGS, ModelResult, Results, Role, SplitResult
from kernelcast.evaluation.shares import share_of
from kernelcast.evaluation.table import interval, number
from kernelcast.evaluation.terminal import MAIN_METRIC, best_against_others

NEAR_CEILING = 0.97
"""From this share of the noise ceiling's tau on, more cannot be told by measurements that repeat so well."""

NOISY = 1.1
"""Two measurements of a program that differ by this factor in the median say little about which model is better."""

CLEAR_GAP = 0.1
"""Kendall's tau that known workloads are ahead of unknown ones before it is called the limit."""


@dataclass(frozen=True)
class Headline:
    """What stands at the top.

    Attributes:
        split: that it is about: the hardest question first, workloads never seen.
        best: the model to trust; None where no model was evaluated.
        trust: which, in a sentence.
        sure: how sure.
        limit: what limits it.
    """

    split: str
    best: ModelResult | None
    trust: str
    sure: str
    limit: str


def main_split(results: Results) -> SplitResult | None:
    """The split that decides: unseen workloads where there is such a split, with the most test programs of these."""
    scored = [result for result in results.splits if best_of(result) is not None]
    return max(scored, key=lambda result: (not result.known_workloads, result.test_programs), default=None)


def best_of(result: SplitResult) -> ModelResult | None:
    """The model with the highest tau, the ceiling aside."""
    return next((m for m in result.models if m.role != Role.CEILING and MAIN_METRIC in m.metrics), None)


def headline(results: Results) -> Headline:
    """The summary of all results."""
    result = main_split(results)
    best = None if result is None else best_of(result)
    if result is None or best is None:
        return Headline("", None, "No model ranks any programs yet: nothing to trust.", "", "")
    return Headline(
        result.split,
        best,
        _trust(results, result, best),
        _sure(result, best, results.confidence),
        _limit(results, result, best),
    )


def too_noisy(results: Results) -> float | None:
    """The factor between two measurements of a program where it is too large to choose a model by; else None."""
    factor = 1.0 if results.noise is None else results.noise.ratio_median.value
    return factor if factor >= NOISY else None


def _trust(results: Results, result: SplitResult, best: ModelResult) -> str:
    tau = best.metrics[MAIN_METRIC]
    where = "workloads seen in training" if result.known_workloads else "workloads never seen in training"
    if tau.low <= 0:
        return f"Trust no model yet: on {where} the best, {best.model}, is not shown to rank better than chance."
    compared = best_against_others(result)
    if noise := too_noisy(results):
        text = (
            "Measure again before you trust any model: two measurements of the same program differ by "
            f"{noise - 1:.0%} in the median. So far {best.model} ranks best on {where}"
        )
    elif compared and not any(entry.shown(results.confidence) for entry in compared):
        text = f"No model is shown to be ahead: on {where} {best.model} ranks best"
    else:
        text = f"Trust {best.model}: on {where} it ranks best"
    text += f", Kendall's tau {interval(tau)}"
    top = best.metrics.get("top_1")
    if top is not None and top.value > 0:
        text += f"; the program that it puts first takes {_over(1 / top.value)}"
    return text + "."


def _over(ratio: float) -> str:
    return "no longer than the best one" if ratio < 1.005 else f"on average {ratio - 1:.0%} longer than the best one"


def _sure(result: SplitResult, best: ModelResult, confidence: float) -> str:
    compared = best_against_others(result)
    workloads = sum(MAIN_METRIC in scores.metrics for scores in best.per_workload)
    ground = f"{best.programs:,} test programs of {workloads} workload{'s' * (workloads != 1)}"
    alone = f"How sure: on {ground}, with {confidence:.0%} intervals"
    if not compared:
        return f"{alone}; there is no other model to compare it with."
    shown = [entry.other for entry in compared if entry.shown(confidence)]
    others = [entry.other for entry in compared if not entry.shown(confidence)]
    text = (
        f"{alone}, it is shown to be better than {_listed(shown)}"
        if shown
        else f"{alone}, it is shown to be better than none"
    )
    return text + (f"; not shown to be better than {_listed(others)}." if others else ".")


def _listed(names: list[str], most: int = 3) -> str:
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} others"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _limit(results: Results, result: SplitResult, best: ModelResult) -> str:
    """The nearest bound there is evidence for; at most two sentences."""
    tau = best.metrics[MAIN_METRIC]
    reasons = []
    ceiling = result.ceiling
    share = None if ceiling is None else share_of(MAIN_METRIC, best.metrics, ceiling.metrics)
    if results.noise is None:
        reasons.append("nothing was measured twice, so nobody knows how good a model could be")
    elif too_noisy(results):
        reasons.append(
            "the noise of the measurements: other work disturbed them; measure while the machine has nothing else to "
            "do, which `python scripts/doctor.py` can tell"
        )
    elif share is not None and share >= NEAR_CEILING:
        reasons.append(f"the noise of the measurements: it reaches {share:.0%} of what a second measurement does")
    elif share is not None:
        name = CEILINGS[Source(results.noise.source)]
        reasons.append(f"not the noise, of whose ceiling ({name}) it reaches {share:.0%}, but the model")
    known = _known(results, result, best)
    if known is not None and known - tau.value > CLEAR_GAP:
        reasons.append(
            f"what it has not seen: on known workloads its tau is {number(known)}, on unknown ones {number(tau.value)}"
        )
    per = [scores.metrics[MAIN_METRIC] for scores in best.per_workload if MAIN_METRIC in scores.metrics]
    if len(per) > 3 and min(per) < median(per) - 0.3:
        worst = min((s for s in best.per_workload if MAIN_METRIC in s.metrics), key=lambda s: s.metrics[MAIN_METRIC])
        reasons.append(
            f"single workloads: {worst.workload} has a tau of {number(min(per))}, the median one {number(median(per))}"
        )
    return f"What limits it: {'; '.join(reasons)}." if reasons else ""


def _known(results: Results, result: SplitResult, best: ModelResult) -> float | None:
    """Tau of the same model on workloads that it was trained on; None where this is that, or there is none."""
    if result.known_workloads:
        return None
    taus = [
        model.metrics[MAIN_METRIC].value
        for other in results.splits
        if other.known_workloads
        for model in other.models
        if model.model == best.model and MAIN_METRIC in model.metrics
    ]
    return max(taus, default=None)
