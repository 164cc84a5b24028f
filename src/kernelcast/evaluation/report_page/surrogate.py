"""What the programs have in common of which a model is most wrong: a shallow decision tree over the size of its errors.

The tree is the explanation and no result: how much of the errors it accounts for in workloads that it was not fitted to
stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from kernelcast.evaluation.report_page.columns import COLUMNS, Column
from kernelcast.evaluation.report_page.explored import ORIGINS, Explored, Predicted
from kernelcast.evaluation.report_page.wrong import log_errors

DEPTH = 3
"""Conditions a sentence has at most: more are no explanation."""

LEAST_PROGRAMS = 60
"""Fewer tested programs explain nothing."""

SMALLEST_GROUP = 0.03
"""Share of the tested programs that a group has at least, and `LEAST_GROUP` of them."""

LEAST_GROUP = 15

LEAST_GAIN = 0.01
"""A condition has to take away this share of the variance of the errors' size, or it is none."""

MOST_GROUPS = 4

STANDS_OUT = 1.15
"""A group is told of where its median error factor is this many times that of all."""

FOLDS = 5


@dataclass(frozen=True)
class Group:
    """Programs that share conditions.

    Attributes:
        words: the conditions.
        rows: places among the explored.
        factor: median error factor of the group.
        slower: share of them that are slower than claimed.
        of_worst: how many of the worst tenth of all programs are among them.
    """

    words: str
    rows: Int64[np.ndarray, "programs"]
    factor: float
    slower: float
    of_worst: int


@dataclass(frozen=True)
class Explanation:
    """Where the errors of one model are.

    Attributes:
        groups: those that stand out, the largest median factor first.
        best: the group with the smallest median factor; None where the tree does not split.
        factor: median error factor of all tested programs.
        tested: how many these are.
        worst: how many the worst tenth are.
        explained: share of the variance of the errors' size that such a tree accounts for in workloads it was not
            fitted to; None with fewer than two workloads.
    """

    groups: tuple[Group, ...]
    best: Group | None
    factor: float
    tested: int
    worst: int
    explained: float | None


@dataclass(frozen=True)
class _Table:
    """What the tree may ask: numbers by column, and kinds and origins as one flag each."""

    values: Float64[np.ndarray, "programs columns"]
    columns: tuple[Column, ...]
    flags: tuple[str, ...]


def explain(explored: Explored, predicted: Predicted) -> Explanation | None:
    """Fits the tree and puts its leaves into words; None where the programs are too few.

    The tree predicts |ln(claimed / measured)|, least squares, of the columns that the explorer has, the operator's kind
    and the origin of the candidate.
    """
    from sklearn.tree import DecisionTreeRegressor

    rows = predicted.rows
    if len(rows) < LEAST_PROGRAMS:
        return None
    size = np.abs(log_errors(explored, predicted))
    table = _table(explored, rows)
    settings = {
        "max_depth": DEPTH,
        "min_samples_leaf": max(LEAST_GROUP, int(SMALLEST_GROUP * len(rows))),
        "min_impurity_decrease": LEAST_GAIN * float(size.var()),
        "random_state": 0,
    }
    tree = DecisionTreeRegressor(**settings).fit(table.values, size)
    leaf_of = tree.apply(table.values)
    worst = size >= np.quantile(size, 0.9)
    slower = log_errors(explored, predicted) < 0
    groups = [
        Group(
            words=_words(tree.tree_, leaf, table, leaf_of == leaf),
            rows=rows[leaf_of == leaf],
            factor=float(np.exp(np.median(size[leaf_of == leaf]))),
            slower=float(slower[leaf_of == leaf].mean()),
            of_worst=int(worst[leaf_of == leaf].sum()),
        )
        for leaf in np.unique(leaf_of).tolist()
    ]
    groups.sort(key=lambda group: -group.factor)
    whole = float(np.exp(np.median(size)))
    split = len(groups) > 1
    return Explanation(
        groups=tuple(group for group in groups if split and group.factor > STANDS_OUT * whole)[:MOST_GROUPS],
        best=groups[-1] if split else None,
        factor=whole,
        tested=len(rows),
        worst=int(worst.sum()),
        explained=_explained(settings, table.values, size, explored.workload[rows]),
    )


def _explained(
    settings: dict[str, Any], values: np.ndarray, size: np.ndarray, workload: Int64[np.ndarray, "programs"]
) -> float | None:
    """Share of the variance of `size` that trees account for in workloads that they were not fitted to."""
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.tree import DecisionTreeRegressor

    folds = min(FOLDS, len(np.unique(workload)))
    variance = float(size.var())
    if folds < 2 or variance == 0:
        return None
    told = cross_val_predict(
        DecisionTreeRegressor(**settings), values, size, groups=workload, cv=GroupKFold(n_splits=folds)
    )
    return 1.0 - float(np.mean((size - told) ** 2)) / variance


def _table(explored: Explored, rows: Int64[np.ndarray, "programs"]) -> _Table:
    columns = tuple(column for column in COLUMNS if column.name in explored.columns)
    parts: list[np.ndarray] = [explored.columns[column.name][rows].astype(np.float64) for column in columns]
    kind = np.asarray(explored.kinds, dtype=object)[explored.workload[rows]]
    flags = []
    for name in sorted(set(kind)):
        parts.append((kind == name).astype(np.float64))
        flags.append(f"of the kind {name}")
    for number in np.unique(explored.origin[rows]).tolist():
        parts.append((explored.origin[rows] == number).astype(np.float64))
        flags.append(f"of {ORIGINS[number]} origin")
    return _Table(np.stack(parts, axis=1), columns, tuple(flags))


def _words(tree: object, leaf: int, table: _Table, inside: Bool[np.ndarray, "programs"]) -> str:
    """The conditions on the way to a leaf: kinds first, then one phrase a column."""
    bounds: dict[int, tuple[float, float]] = {}
    for column, threshold, below in _path(tree, leaf):
        low, high = bounds.get(column, (-np.inf, np.inf))
        bounds[column] = (low, min(high, threshold)) if below else (max(low, threshold), high)
    count = len(table.columns)
    positive = [table.flags[column - count] for column, (low, _) in bounds.items() if column >= count and low > 0]
    negative = [table.flags[column - count] for column, (low, _) in bounds.items() if column >= count and low <= 0]
    phrases = [
        _phrase(table.columns[column], low, high, table.values[inside, column], table.values[:, column])
        for column, (low, high) in bounds.items()
        if column < count
    ]
    # of one kind: that it is not of another says nothing more
    told = positive or [f"not {flag}" for flag in negative]
    return " ".join(filter(None, [" and ".join(told), f"with {_listed(phrases)}" if phrases else ""])) or "of all sorts"


def _listed(phrases: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(phrases[:-1]), phrases[-1]]))


def _path(tree: object, leaf: int) -> list[tuple[int, float, bool]]:
    """Column, threshold and side of every decision from the root to `leaf`."""
    left, right = np.asarray(tree.children_left), np.asarray(tree.children_right)  # type: ignore[attr-defined]
    above = {child: (node, True) for node, child in enumerate(left.tolist()) if child >= 0}
    above |= {child: (node, False) for node, child in enumerate(right.tolist()) if child >= 0}
    steps = []
    node = leaf
    while node in above:
        node, below = above[node]
        steps.append((int(tree.feature[node]), float(tree.threshold[node]), below))  # type: ignore[attr-defined]
    return steps[::-1]


def _phrase(
    column: Column,
    low: float,
    high: float,
    inside: Float64[np.ndarray, "inside"],
    all_values: Float64[np.ndarray, "all"],
) -> str:
    """What the values of a group are in one column, by the values that there are and not by the tree's thresholds."""
    least, most = float(inside.min()), float(inside.max())
    if most <= 0 and column.none:
        return column.none
    label = column.label[0].lower() + column.label[1:]
    if least == most:
        return f"{label} {amount(least, column)}"
    if np.isfinite(low) and np.isfinite(high):
        return f"{label} {amount(least, column)} to {amount(most, column)}"
    if np.isfinite(high):
        return f"{label} at most {amount(most, column)}"
    if not (all_values[all_values <= low] > 0).any():
        return f"{label} above 0"
    return f"{label} at least {amount(least, column)}"


def amount(value: float, column: Column) -> str:
    """A value as a reader says it."""
    if column.share:
        return f"{value:.0%}" if value >= 0.01 or value == 0 else f"{value:.1%}"
    text = f"{value:.0f}" if value < 1000 and float(value).is_integer() else f"{value:.3g}"
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            text = f"{value / factor:.3g} {prefix}"
            return (
                text + column.unit
                if column.unit in ("B", "flop")
                else f"{text}{' ' if column.unit else ''}{column.unit}"
            )
    return f"{text} {column.unit}".strip()


def sentences(explanation: Explanation) -> Sequence[str]:
    """The explanation in words with counts."""
    whole = f"{explanation.factor:.2f}"
    said = [
        f"Programs {group.words}: median error factor {group.factor:.2f} (all: {whole}), {len(group.rows):,} of "
        f"{explanation.tested:,}; {group.of_worst} of the worst {explanation.worst} are among them, and "
        f"{group.slower:.0%} are slower than claimed."
        for group in explanation.groups
    ]
    if explanation.best is not None:
        best = explanation.best
        said.append(
            f"Best known: programs {best.words}, median error factor {best.factor:.2f}, {len(best.rows):,} of "
            f"{explanation.tested:,}."
        )
    return said


def trust_sentence(explanation: Explanation) -> str:
    """How far the explanation goes."""
    if explanation.explained is None:
        return "Programs of a single workload: whether this holds for others nobody can say."
    if explanation.explained < 0.02:
        return (
            "Such groups, found on some workloads, tell nothing about the errors on others: read them as a description "
            "of these programs, not as a rule."
        )
    return (
        f"Such groups account for {explanation.explained:.0%} of the variance of the errors' size on workloads that "
        "they were not found on; the rest has other causes."
    )
