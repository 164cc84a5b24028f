"""Whether a program computes what its workload says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}
"""Largest error of one element, relative to itself plus the root mean square of its tensor.

A schedule sums in another order, which moves a float32 by 1e-7 times the root of the number of terms; a wrong one moves
whole elements by about their own size.
"""


def random_array(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random numbers for an argument: floats in -1 to 1, integers 0 or 1, which every index and flag may be."""
    if "float" in dtype:
        numbers: Any = np.asarray(generator.random(shape, dtype="float64" if dtype == "float64" else "float32"))
        numbers *= 2
        numbers -= 1
        return numbers.astype(np_dtype(dtype), copy=False)
    return generator.integers(0, 2, shape).astype(dtype)


def np_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's type of a TVM type."""
    if dtype in ("bfloat16",) or dtype.startswith("float8"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
    return np.dtype(dtype)


def write_results(path: Path, results: list[np.ndarray]) -> None:
    """Writes all arguments as they are after a run."""
    # the format does not know the types of ml_dtypes, and calls them bytes
    names = np.array([str(result.dtype) for result in results])
    with path.open("wb") as stream:
        np.savez(stream, names, *results)


def read_results(path: Path) -> list[np.ndarray]:
    """Reads what `write_results` wrote."""
    with np.load(path) as stored:
        names, *results = (stored[name] for name in stored.files)
        return [result.view(np_dtype(str(name))) for name, result in zip(names, results, strict=True)]


def difference(names: list[str], results: list[np.ndarray], expected: list[np.ndarray] | None) -> str:
    """What is wrong with the arguments after a run, in one line; empty when nothing is.

    Args:
        names: of the arguments.
        results: the arguments after the run.
        expected: the same of the unscheduled workload, on the same inputs; None: numbers only have to be finite.
    """
    for position, (name, result) in enumerate(zip(names, results, strict=True)):
        floating = np.issubdtype(result.dtype, np.floating) or str(result.dtype) in TOLERANCE
        wanted = None if expected is None else expected[position]
        if wanted is None:
            if floating and not np.isfinite(result.astype(np.float64)).all():
                return f"the results in `{name}` are not all finite numbers"
        elif wanted.shape != result.shape:
            return f"`{name}` has shape {result.shape}, the unscheduled workload has {wanted.shape}"
        elif floating:
            said = _float_difference(name, result, wanted)
            if said:
                return said
        elif not np.array_equal(result, wanted):
            wrong = int(np.count_nonzero(result != wanted))
            return f"{wrong} of {result.size} elements of `{name}` differ from the unscheduled workload's"
    return ""


def _float_difference(name: str, result: np.ndarray, wanted: np.ndarray) -> str:
    tolerance = TOLERANCE.get(str(result.dtype), 1e-1)
    found, right = result.astype(np.float64), wanted.astype(np.float64)
    # where the workload itself gives infinity or no number, the program has to as well
    usual = np.isfinite(right)
    scale = float(np.sqrt(np.mean(np.square(right[usual])))) if usual.any() else 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(found - right)
        wrong = np.where(usual, ~(apart <= tolerance * (np.abs(right) + scale)), _unequal(found, right))
    if not wrong.any():
        return ""
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = ", ".join(str(int(position)) for position in index)
    return (
        f"{int(np.count_nonzero(wrong))} of {result.size} elements of `{name}` differ from the unscheduled workload's; "
        f"the first, [{place}], is {found[index]:.6g}, not {right[index]:.6g}"
    )


def _unequal(found: np.ndarray, right: np.ndarray) -> np.ndarray:
    return ~((found == right) | (np.isnan(found) & np.isnan(right)))
