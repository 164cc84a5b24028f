"""Whether a compiled network gives what torch gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kernelcast.measurement.checking import TOLERANCE

OTHER_FLOAT_TOLERANCE = 1e-1
"""Of floating types of 8 bits."""


@dataclass(frozen=True)
class OutputCheck:
    """One output of a network beside torch's.

    The difference of an element is |a - b| / (|b| + rms(b)), b being torch's: relative, but not beyond all measure
    where torch has a number close to zero. Integers must be equal: each that is not counts as 1.

    Attributes:
        output: its number.
        dtype: its type.
        tolerance: largest difference that is taken for rounding, `measurement.checking.TOLERANCE` of the type.
        largest_difference: of all elements; infinite where one of both is no number, or the shapes differ.
        place: index of that element.
    """

    output: int
    dtype: str
    tolerance: float
    largest_difference: float
    place: tuple[int, ...]

    @property
    def equal(self) -> bool:
        """Whether all elements are within the tolerance."""
        return self.largest_difference <= self.tolerance

    def as_json(self) -> dict[str, Any]:
        """Itself as JSON has it, which knows no infinity."""
        finite = self.largest_difference if np.isfinite(self.largest_difference) else None
        return {**asdict(self), "place": list(self.place), "largest_difference": finite, "equal": self.equal}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> OutputCheck:
        """Reads what `as_json` made."""
        difference = raw["largest_difference"]
        return cls(
            int(raw["output"]),
            str(raw["dtype"]),
            float(raw["tolerance"]),
            float("inf") if difference is None else float(difference),
            tuple(raw["place"]),
        )

    def __str__(self) -> str:
        place = ", ".join(map(str, self.place))
        return (
            f"output {self.output} ({self.dtype}): largest difference {self.largest_difference:.3g} at [{place}], "
            f"tolerance {self.tolerance:g}"
        )


def check_outputs(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> list[OutputCheck]:
    """Compares all outputs; a number of outputs that differs makes each that one side lacks infinitely different."""
    checks = []
    for number in range(max(len(found), len(expected))):
        if number >= len(found) or number >= len(expected):
            checks.append(OutputCheck(number, "missing", 0.0, float("inf"), ()))
        else:
            checks.append(_check(number, found[number], expected[number]))
    return checks


def _check(number: int, found: np.ndarray, expected: np.ndarray) -> OutputCheck:
    dtype = str(expected.dtype)
    floating = np.issubdtype(expected.dtype, np.floating) or dtype in TOLERANCE or dtype.startswith("float")
    tolerance = TOLERANCE.get(dtype, OTHER_FLOAT_TOLERANCE) if floating else 0.0
    if found.shape != expected.shape or str(found.dtype) != dtype:
        return OutputCheck(number, dtype, tolerance, float("inf"), ())
    if not expected.size:
        return OutputCheck(number, dtype, tolerance, 0.0, ())
    apart = _scaled(found, expected) if floating else (found != expected).astype(np.float64)
    place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return OutputCheck(number, dtype, tolerance, float(apart[place]), tuple(int(index) for index in place))


def _scaled(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    ours, right = found.astype(np.float64), expected.astype(np.float64)
    usual = np.isfinite(right)
    scale = float(np.sqrt(np.mean(np.square(right[usual])))) if usual.any() else 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(ours - right)
        relative = np.where(apart == 0.0, 0.0, apart / (np.abs(right) + scale))
    # where torch has infinity or no number, the network must have it too
    same = (ours == right) | (np.isnan(ours) & np.isnan(right))
    return np.where(usual & np.isfinite(ours), relative, np.where(same, 0.0, np.inf))
