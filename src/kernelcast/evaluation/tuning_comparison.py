"""How tunings compare: trials and seconds to what TVM's own model reaches, area under the curve, how sure all that is.

Intervals draw the subjects (workloads, or networks) again, the same for every method, and the seeds of each method, as
`bootstrap` says. Differences are paired and tested as `comparisons` says.

A tuning that ended before it reached the target says only that it needs more than it had: it is censored, and medians
are those of Kaplan and Meier (Nonparametric estimation from incomplete observations, Journal of the American
Statistical Association 53, 1958). Where too few of the tunings reach the target there is no median, and it is given as
infinite: of trials where fewer than half do, all budgets being equal; wall times end at different times, and a median
can lie behind the end of some. The share that reaches the target stands beside each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float64

from kernelcast.errors import ConfigError
from kernelcast.evaluation.bootstrap import Bootstrap, Estimate, seed_shares, workload_draws
from kernelcast.evaluation.comparisons import Comparison, Standing, compare
from kernelcast.evaluation.tuning_curves import Run, Tunings, geometric_mean

REFERENCE = "tvm_xgb"
"""TVM's own cost model, trained as its tuner does: what it reaches at the end of its budget is the target."""

AREA, FINAL_SPEED = "area_under_curve", "final_speed"
"""Metrics that pairs of methods are compared in."""


@dataclass(frozen=True)
class Reach:
    """When the tunings of a method reached the target of their subject.

    Attributes:
        trials: until then; where it was never reached, all that were made.
        seconds: wall time until then; where it was never reached, all that there was.
        ratio: this wall time over that of the reference's whole tuning of the subject, the median of its seeds.
        reached: whether it was.
    """

    trials: Float64[np.ndarray, "seeds subjects"]
    seconds: Float64[np.ndarray, "seeds subjects"]
    ratio: Float64[np.ndarray, "seeds subjects"]
    reached: Bool[np.ndarray, "seeds subjects"]


@dataclass(frozen=True)
class ReachFigures:
    """The same as figures, each with its interval.

    Attributes:
        trials: median; infinite where too few of the tunings reach it.
        seconds: median of the wall time, likewise.
        ratio: median of the wall time over that of the reference's whole tuning, likewise.
        share: of the tunings that reach it.
    """

    trials: Estimate
    seconds: Estimate
    ratio: Estimate
    share: Estimate


@dataclass(frozen=True)
class MethodResult:
    """One method on all subjects.

    Attributes:
        method: its name.
        seeds: how many.
        area: mean over trials, subjects and seeds of the speed, the best time known over the best so far.
        final_speed: geometric mean over the subjects of the speed at the end of the budget, mean over the seeds.
        reach: when it reached what the reference reaches at the end; None where the reference did not tune.
        seconds: wall time of a tuning, search and measuring, median over subjects and seeds.
        model_share: of this time inside the cost model, of all tunings together.
    """

    method: str
    seeds: int
    area: Estimate
    final_speed: Estimate
    reach: ReachFigures | None
    seconds: float
    model_share: float


@dataclass(frozen=True)
class TuningComparison:
    """What `compare_tunings` found.

    Attributes:
        methods: in the order in which they came.
        pairs: every pair of methods, in `AREA` and `FINAL_SPEED`.
        reference: whose end is the target.
        subjects: names of what was compared.
        left_out: names of what was not: not every method tuned it with each of its seeds.
        budget: trials of the longest tuning.
        reference_trials: trials of the reference's tunings at most; None where it did not tune.
        confidence: of the intervals.
    """

    methods: tuple[MethodResult, ...]
    pairs: tuple[Comparison, ...]
    reference: str
    subjects: tuple[str, ...]
    left_out: tuple[str, ...]
    budget: int
    reference_trials: int | None
    confidence: float

    def of_method(self, method: str) -> MethodResult:
        """The result of one method.

        Raises:
            ConfigError: there is none of that name.
        """
        for result in self.methods:
            if result.method == method:
                return result
        known = ", ".join(result.method for result in self.methods)
        raise ConfigError(f"no tuning is by {method!r}; choose from {known}")


def compare_tunings(
    trials: pa.Table | Tunings, bootstrap: Bootstrap, reference: str = REFERENCE, within: float = 0.0
) -> TuningComparison:
    """Compares all methods of a table of trials.

    Args:
        trials: of `TRIALS_SCHEMA`, or the tunings made of it.
        bootstrap: how intervals are made.
        reference: whose best at the end of its budget, the median of its seeds, is the target of a subject.
        within: share by which a time may be above the target and counts as reaching it: the noise of measuring.

    Raises:
        MalformedDataError: there is nothing that every method tuned with each of its seeds.
    """
    tunings = trials if isinstance(trials, Tunings) else Tunings.of(trials)
    known = reference in tunings.seeds
    counts = _subject_counts(len(tunings.subjects), bootstrap)
    results, standings = [], {}
    for method in tunings.methods:
        speeds = tunings.speeds(method)
        shares = seed_shares(len(speeds), bootstrap, method)
        area, final = speeds.mean(axis=2), speeds[:, :, -1]
        area_drawn, final_drawn = _mean_draws(area, shares, counts), _geometric_draws(final, shares, counts)
        area_value = float(area.mean())
        final_value = float(geometric_mean(final[:, :, None]).mean())
        standings[method] = {
            AREA: Standing(area_value, area_drawn, area.mean(axis=0)),
            FINAL_SPEED: Standing(final_value, final_drawn, final.mean(axis=0)),
        }
        runs = [run for of_seed in tunings.of_method(method) for run in of_seed]
        seconds = np.array([run.wall_seconds[-1] for run in runs])
        results.append(
            MethodResult(
                method=method,
                seeds=len(speeds),
                area=_estimate(area_value, area_drawn, bootstrap),
                final_speed=_estimate(final_value, final_drawn, bootstrap),
                reach=_figures(reach(tunings, method, reference, within), shares, counts, bootstrap) if known else None,
                seconds=float(np.median(seconds)),
                model_share=sum(run.model_seconds for run in runs) / float(seconds.sum()),
            )
        )
    return TuningComparison(
        methods=tuple(results),
        pairs=compare(standings, bootstrap),
        reference=reference,
        subjects=tuple(tunings.subjects.values()),
        left_out=tunings.left_out,
        budget=tunings.budget,
        reference_trials=max(map(len, _of_all_seeds(tunings, reference))) if known else None,
        confidence=bootstrap.confidence,
    )


def reach(tunings: Tunings, method: str, reference: str = REFERENCE, within: float = 0.0) -> Reach:
    """When each tuning of `method` reached the best of `reference` at the end; see `compare_tunings`.

    The target is the median over the reference's seeds, so that about half of these reach it themselves.
    """
    found = [[_reached(run, tunings, reference, within) for run in of_seed] for of_seed in tunings.of_method(method)]
    trials, seconds, ratio, reached = np.moveaxis(np.array(found, dtype=np.float64), 2, 0)
    return Reach(trials, seconds, ratio, reached.astype(np.bool_))


def _reached(run: Run, tunings: Tunings, reference: str, within: float) -> tuple[float, float, float, float]:
    """Trials, seconds, and their ratio until the target, or until the end; and whether it was reached."""
    others = [tunings.runs[reference, seed, run.subject] for seed in tunings.seeds[reference]]
    target = float(np.quantile([other.best_seconds[-1] for other in others], 0.5, method="inverted_cdf"))
    # a target of infinity is none: the reference found no program that ran
    first = run.first_at(target * (1 + within)) if np.isfinite(target) else run.first_at(np.finfo(np.float64).max)
    place = len(run) - 1 if first is None else first
    seconds = float(run.wall_seconds[place])
    whole = float(np.median([other.wall_seconds[-1] for other in others]))
    return place + 1, seconds, seconds / whole, first is not None


def _of_all_seeds(tunings: Tunings, method: str) -> list[Run]:
    return [run for of_seed in tunings.of_method(method) for run in of_seed]


def _subject_counts(subjects: int, bootstrap: Bootstrap) -> Float64[np.ndarray, "samples subjects"]:
    """How often each draw has each subject; the same for all methods, so that differences are paired."""
    drawn, _ = workload_draws(subjects, bootstrap, 0)
    flat = drawn + subjects * np.arange(len(drawn))[:, None]
    return np.bincount(flat.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)


def _mean_draws(
    values: Float64[np.ndarray, "seeds subjects"],
    shares: Float64[np.ndarray, "samples seeds"],
    counts: Float64[np.ndarray, "samples subjects"],
) -> Float64[np.ndarray, "samples"]:
    return np.einsum("sr,rw,sw->s", shares, values, counts) / values.shape[1]


def _geometric_draws(
    speeds: Float64[np.ndarray, "seeds subjects"],
    shares: Float64[np.ndarray, "samples seeds"],
    counts: Float64[np.ndarray, "samples subjects"],
) -> Float64[np.ndarray, "samples"]:
    """The geometric mean over the drawn subjects, and the mean of that over the drawn seeds."""
    with np.errstate(divide="ignore"):
        logs = np.log(speeds)
    # a subject that is not drawn must not bring its infinite logarithm in
    drawn = counts[:, None, :] > 0
    sums = np.where(drawn, counts[:, None, :] * np.where(drawn, logs, 0.0), 0.0).sum(axis=2)
    return (shares * np.exp(sums / speeds.shape[1])).sum(axis=1)


def _figures(
    found: Reach,
    shares: Float64[np.ndarray, "samples seeds"],
    counts: Float64[np.ndarray, "samples subjects"],
    bootstrap: Bootstrap,
) -> ReachFigures:
    weights = (shares[:, :, None] * counts[:, None, :]).reshape(len(shares), -1)
    once = np.ones((1, found.reached.size))
    reached = found.reached.ravel()

    def median(values: Float64[np.ndarray, "seeds subjects"]) -> Estimate:
        value, drawn = (censored_quantile(values.ravel(), reached, each, 0.5) for each in (once, weights))
        return _estimate(float(value[0]), drawn, bootstrap)

    return ReachFigures(
        trials=median(found.trials),
        seconds=median(found.seconds),
        ratio=median(found.ratio),
        share=_estimate(
            float(found.reached.mean()), _mean_draws(found.reached.astype(np.float64), shares, counts), bootstrap
        ),
    )


def censored_quantile(
    values: Float64[np.ndarray, "runs"],
    reached: Bool[np.ndarray, "runs"],
    weights: Float64[np.ndarray, "samples runs"],
    share: float,
) -> Float64[np.ndarray, "samples"]:
    r"""The value by which `share` of the runs had reached their target, infinite where fewer ever do.

    $$S(t) = \prod_{i : t_i \le t,\ \mathrm{reached}} \frac{n_i - w_i}{n_i}, \qquad
    q = \min \{t : S(t) \le 1 - \mathrm{share}\}$$

    with n_i the weight of all runs that lasted until t_i or longer, those that come first of equal ones left out.

    Args:
        values: of each run, when it reached its target or ended without.
        reached: which of them.
        weights: how often each sample has each run.
        share: in (0, 1).

    Source: Kaplan and Meier, Journal of the American Statistical Association 53 (1958).
    """
    # a run that ends where another one reaches its target was still there
    order = np.lexsort((~reached, values))
    weights = weights[:, order]
    at_risk = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    events = weights * reached[order]
    remaining = np.divide(at_risk - events, at_risk, out=np.ones_like(at_risk), where=events > 0)
    # sums of shares may miss a half by their last digits
    done = np.cumprod(remaining, axis=1) <= 1 - share + 1e-9
    return np.where(done.any(axis=1), values[order][np.argmax(done, axis=1)], np.inf)


def _estimate(value: float, drawn: Float64[np.ndarray, "samples"], bootstrap: Bootstrap) -> Estimate:
    # between a number and infinity there is nothing to take the mean of
    low, high = np.percentile(drawn, bootstrap.ends, method="inverted_cdf")
    return Estimate(value, float(low), float(high))
