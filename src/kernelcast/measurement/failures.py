"""What to say about the tries that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kernelcast.errors import MeasurementError
from kernelcast.measurement.journal import Try
from kernelcast.measurement.plan import Plan
from kernelcast.records import Outcome


def too_many_failures(plan: Plan, tries: Sequence[Try]) -> bool:
    """Whether more of the tries have failed than the plan allows."""
    return sum(entry.has_failed for entry in tries) > plan.max_failure_share * len(tries)


def refuse_failures(plan: Plan, tries: Sequence[Try]) -> None:
    """Ends the campaign as failed when too many programs have failed.

    Raises:
        MeasurementError: with counts by outcome and the first message of each.
    """
    if not too_many_failures(plan, tries):
        return
    first = examples(plan, tries)
    raise MeasurementError(
        f"{counts(tries)}: more failed than max_failure_share={plan.max_failure_share:g} allows; "
        f"{'; '.join(first.values())}. {advice(set(first))} and run the same command again: it tries those again"
    )


def examples(plan: Plan, tries: Sequence[Try]) -> dict[Outcome, str]:
    """The first failure of each kind, in one line: `first crash (matmul): SIGABRT while running`."""
    return first_failures({workload.key: workload.name for workload in plan.workloads}, tries)


def first_failures(names: Mapping[str, str], tries: Sequence[Try]) -> dict[Outcome, str]:
    """The same for workloads whose names are given by key."""
    first: dict[Outcome, str] = {}
    for entry in tries:
        if entry.ending is not None and entry.has_failed:
            message = " ".join(entry.ending.message.split())
            outcome = entry.ending.outcome
            first.setdefault(outcome, f"first {outcome.value} ({names[entry.workload_key]}): {message}")
    return dict(sorted(first.items()))


def counts(tries: Sequence[Try]) -> str:
    """`6 of 8 programs measured, 1 crash, 1 run_timeout`."""
    outcomes = Counter(entry.outcome for entry in tries)
    parts = [f"{outcomes.pop(Outcome.MEASURED, 0)} of {len(tries)} programs measured"]
    untried = outcomes.pop(None, 0)
    parts += [f"{count} {outcome.value}" for outcome, count in sorted(outcomes.items()) if outcome is not None]
    if untried:
        parts.append(f"{untried} not tried")
    return ", ".join(parts)


def advice(kinds: set[Outcome]) -> str:
    """What to do against these failures, as the beginning of a sentence."""
    keys = {
        Outcome.BUILD_TIMEOUT: "raise runner.build_timeout_seconds",
        Outcome.RUN_TIMEOUT: "raise runner.run_timeout_seconds",
        Outcome.OUT_OF_MEMORY: "raise runner.memory_limit_bytes",
    }
    steps = [step for outcome, step in keys.items() if outcome in kinds]
    text = (
        ", ".join(steps)
        if steps
        else "remove the cause; `python scripts/measure.py --probe` tries one program step by step"
    )
    return text[0].upper() + text[1:]
