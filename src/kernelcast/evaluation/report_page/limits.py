"""What the results show, and what not: sentences that stand beside the numbers."""

from __future__ import annotations

from statistics import median

from kernelcast.evaluation.noise import Source
from kernelcast.evaluation.results import CEILINGS, Results, Role, SplitResult
from kernelcast.evaluation.terminal import MAIN_METRIC


def ceiling_note(results: Results) -> str:
    """What the row of the noise ceiling is; empty where there is none."""
    if results.noise is None:
        return ""
    name = CEILINGS[Source(results.noise.source)]
    if results.noise.source == Source.VISITS:
        return (
            f"{name} is the noise ceiling: a later measurement of the same programs, built and timed anew, as a "
            "prediction of the one that models learn from."
        )
    return (
        f"{name} stands for the noise ceiling, for want of programs that were measured again: the odd rounds of a "
        "measurement as a prediction of its even rounds."
    )


def verdict(result: SplitResult) -> str:
    """Which learned models rank better than chance, stated as it is."""
    learned = [model for model in result.models if model.role == Role.LEARNED and MAIN_METRIC in model.metrics]
    better = [model.model for model in learned if model.metrics[MAIN_METRIC].low > 0]
    others = [model.model for model in learned if model.metrics[MAIN_METRIC].low <= 0]
    text = f"On the {result.split} split, better than chance by more than the interval: {', '.join(better) or 'none'}"
    return text + (f"; not shown to be: {', '.join(others)}." if others else ".")


def caveat(result: SplitResult) -> str:
    """How much the test programs of one split can tell."""
    ranked = [name for name in result.test_workloads if name not in result.unranked]
    counts = {scores.workload: scores.programs for model in result.models for scores in model.per_workload}
    typical = int(median([counts[name] for name in ranked if name in counts] or [0]))
    text = (
        f"The {result.split} split has {result.test_programs:,} test programs of {len(result.test_workloads)} workloads"
    )
    if typical > 1:
        text += (
            f", typically {typical} a workload, where one pair in the wrong order costs "
            f"{4 / (typical * (typical - 1)):.3g} of the workload's tau"
        )
    if result.known_workloads:
        return (
            text + ". Its intervals tell how other programs of the same workloads would come out, not other workloads."
        )
    return text + (
        ". Its intervals draw workloads again; so few of them cannot show how much workloads differ, "
        "and the true uncertainty is larger than the interval."
    )
