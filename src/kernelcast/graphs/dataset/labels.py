"""From the raw repeats of a measurement to one label, the logarithm of the run time.

Labels come from visit 0 alone: later visits say how well a measurement repeats, and would make a program that was
measured again look faster, as the minimum of more repeats. A program that was cut short keeps its label, of the few
repeats that it has: it is hopelessly slow, and so is its label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float64

from kernelcast.errors import ConfigError
from kernelcast.graphs.dataset.repeats import FIRST_VISIT, Repeats
from kernelcast.records import Outcome

FAILURE_SECONDS = 1e9
"""Times from here on are no times: tuners write 1e10 seconds where a program failed."""

LABELS: Mapping[str, float] = {"minimum": 0.0, "low_quantile": 0.1, "median": 0.5}
"""How the repeats of one program become one time, as quantiles. On a machine that others use too the minimum repeats
best."""

CORRECTIONS = ("none", "divide")
"""`divide`: each repeat times the campaign's best reference time over the reference time of the same round."""

SPREAD_ABOVE_LIMIT = "spread_above_limit"


@dataclass(frozen=True)
class Labelling:
    """How repeats become labels.

    Attributes:
        label: a key of `LABELS`.
        reference_correction: one of `CORRECTIONS`.
        spread_limit: programs whose repeats spread more (interquartile range over median) are flagged; None flags none.
        drop_flagged: whether flagged programs are left out.

    Raises:
        ConfigError: a value that cannot work; the message names the key.
    """

    label: str = "minimum"
    reference_correction: str = "none"
    spread_limit: float | None = None
    drop_flagged: bool = False

    def __post_init__(self) -> None:
        if self.label not in LABELS:
            raise ConfigError(f"label: {self.label!r} is unknown; choose one of {', '.join(LABELS)}")
        if self.reference_correction not in CORRECTIONS:
            raise ConfigError(
                f"reference_correction: {self.reference_correction!r} is unknown; choose one of "
                f"{', '.join(CORRECTIONS)}"
            )
        if self.spread_limit is not None and not 0 < self.spread_limit < math.inf:
            raise ConfigError(f"spread_limit={self.spread_limit} must be above 0, or null for no limit")
        if self.drop_flagged and self.spread_limit is None:
            raise ConfigError("drop_flagged=true needs a spread_limit, for example spread_limit=1")


@dataclass(frozen=True)
class Labels:
    """The labels of all rows of a table.

    Attributes:
        log_seconds: natural logarithm of seconds, NaN where a row must be dropped.
        reasons: why a row must be dropped, empty where it is kept. A try that was not measured has its outcome as
            reason; others `no_times`, `not_a_number`, `infinite`, `not_positive`, `failure_value` or
            `spread_above_limit`.
        flagged: rows with a valid time whose repeats spread more than the limit.
        uncorrected: rows that were to be corrected, but one of whose repeats has no reference time: their label is the
            one without correction.
    """

    log_seconds: Float64[np.ndarray, " rows"]
    reasons: np.ndarray
    flagged: Bool[np.ndarray, " rows"]
    uncorrected: Bool[np.ndarray, " rows"]


def labels_of(table: pa.Table, labelling: Labelling) -> Labels:
    """The label of every row of `table` (columns of `MEASUREMENT_SCHEMA`) from its first visit.

    Raises:
        ConfigError: a correction is asked for and no repeat has a reference time.
        MalformedDataError: the lists of a row differ in length.
    """
    repeats = Repeats.of(table)
    first = repeats.select(repeats.visit == FIRST_VISIT)
    reasons = faults(first)
    outcomes = np.asarray(table["outcome"].to_numpy(), dtype=object)
    missed = outcomes != Outcome.MEASURED.value
    reasons[missed] = outcomes[missed]
    seconds, uncorrected = seconds_of(
        first.select((reasons == "")[first.row]), labelling, best_reference(repeats, labelling)
    )
    flagged = flagged_rows(spread_of(table, first), labelling.spread_limit) & (reasons == "")
    if labelling.drop_flagged:
        reasons[flagged] = SPREAD_ABOVE_LIMIT
        seconds[flagged] = np.nan
    return Labels(np.log(seconds), reasons, flagged, uncorrected)


def faults(repeats: Repeats) -> np.ndarray:
    """Why the repeats of each row give no label, empty where they do; a single bad one makes all doubtful."""
    seconds = repeats.run_seconds
    reasons = np.full(repeats.rows, "", dtype=object)
    # the last one stays where several apply
    for reason, bad in (
        ("failure_value", seconds >= FAILURE_SECONDS),
        ("not_positive", seconds <= 0),
        ("infinite", np.isinf(seconds)),
        ("not_a_number", np.isnan(seconds)),
    ):
        reasons[repeats.any_of(bad)] = reason
    reasons[repeats.counts == 0] = "no_times"
    return reasons


def seconds_of(
    repeats: Repeats, labelling: Labelling, best: float
) -> tuple[Float64[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
    """One time for each row, NaN where it has no repeat, and the rows that could not be corrected.

    A row is corrected as a whole or not at all: a minimum over corrected and uncorrected repeats would mean nothing.

    Args:
        repeats: valid ones.
        labelling: which label.
        best: the campaign's best reference time, of `best_reference`.
    """
    uncorrected = np.zeros(repeats.rows, dtype=np.bool_)
    if labelling.reference_correction == "divide":
        uncorrected = repeats.any_of(~known_reference(repeats))
        factor = np.ones(len(repeats))
        corrected = ~uncorrected[repeats.row]
        factor[corrected] = best / repeats.reference_seconds[corrected]
        repeats = Repeats(**{**vars(repeats), "run_seconds": repeats.run_seconds * factor})
    (seconds,) = repeats.quantiles(LABELS[labelling.label])
    return seconds, uncorrected


def best_reference(repeats: Repeats, labelling: Labelling) -> float:
    """The shortest reference time of the whole campaign in seconds; NaN where no correction is asked for.

    One faulty short one scales all labels alike, which changes no order.

    Raises:
        ConfigError: a correction is asked for and there is none.
    """
    if labelling.reference_correction == "none":
        return math.nan
    known = repeats.reference_seconds[known_reference(repeats)]
    if not len(known):
        raise ConfigError(
            f"reference_correction={labelling.reference_correction} needs the times of a reference kernel and no "
            "repeat has one, as in imported databases; set reference_correction=none"
        )
    return float(known.min())


def known_reference(repeats: Repeats) -> Bool[np.ndarray, " repeats"]:
    """Which repeats have a reference time."""
    return np.isfinite(repeats.reference_seconds) & (repeats.reference_seconds > 0)


def spread_of(table: pa.Table, first: Repeats) -> Float64[np.ndarray, " rows"]:
    """Interquartile range over median of each row's first visit: as recorded, else of its repeats; NaN without any."""
    low, median, high = first.select((faults(first) == "")[first.row]).quantiles(0.25, 0.5, 0.75)
    recorded = np.asarray(pc.cast(table["spread"], pa.float64()).to_numpy(), dtype=np.float64)
    return np.where(np.isnan(recorded), (high - low) / median, recorded)


def flagged_rows(spread: Float64[np.ndarray, " rows"], limit: float | None) -> Bool[np.ndarray, " rows"]:
    """Which rows spread more than `limit`."""
    return spread > (math.inf if limit is None else limit)
