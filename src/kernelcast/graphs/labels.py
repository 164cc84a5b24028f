"""From the raw repeats of a measurement to one label, the logarithm of the run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import ConfigError
from kernelcast.records import Outcome

FAILURE_SECONDS = 1e9
"""Times from here on are no times: tuners write 1e10 seconds where a program failed."""

LOW_QUANTILE = 0.1

LABELS: Mapping[str, Callable[[Float64[np.ndarray, " repeats"]], float]] = {
    "minimum": lambda seconds: float(np.min(seconds)),
    "median": lambda seconds: float(np.median(seconds)),
    "low_quantile": lambda seconds: float(np.quantile(seconds, LOW_QUANTILE)),
}
"""How the repeats of one program become one time. On a machine that others use too the minimum repeats best."""


def log_seconds(
    outcomes: Sequence[str], run_seconds: Sequence[Sequence[float] | None], label: str
) -> tuple[Float64[np.ndarray, " rows"], list[str]]:
    """The label of every row and the reason why a row has none.

    Args:
        outcomes: how each try ended, values of `Outcome`.
        run_seconds: raw repeats of each try.
        label: a key of `LABELS`.

    Returns:
        Natural logarithms of seconds, NaN where a row must be dropped; reasons, empty where it is kept. A try that was
        not measured has its outcome as reason; others `no_times`, `not_a_number`, `infinite`, `not_positive` or
        `failure_value`.

    Raises:
        ConfigError: `label` is unknown.
    """
    check_label(label)
    values = np.full(len(outcomes), np.nan)
    reasons = []
    for row, (outcome, repeats) in enumerate(zip(outcomes, run_seconds, strict=True)):
        seconds = np.asarray([] if repeats is None else repeats, dtype=np.float64)
        reason = outcome if outcome != Outcome.MEASURED else _fault(seconds)
        if not reason:
            values[row] = np.log(LABELS[label](seconds))
        reasons.append(str(reason))
    return values, reasons


def check_label(label: str) -> None:
    """Raises `ConfigError` when `label` is unknown."""
    if label not in LABELS:
        raise ConfigError(f"label: {label!r} is unknown; choose one of {', '.join(LABELS)}")


def _fault(seconds: Float64[np.ndarray, " repeats"]) -> str:
    """Why the repeats of one program give no label; a single bad repeat makes all of them doubtful."""
    if len(seconds) == 0:
        return "no_times"
    if np.isnan(seconds).any():
        return "not_a_number"
    if np.isinf(seconds).any():
        return "infinite"
    if seconds.min() <= 0:
        return "not_positive"
    if seconds.max() >= FAILURE_SECONDS:
        return "failure_value"
    return ""
