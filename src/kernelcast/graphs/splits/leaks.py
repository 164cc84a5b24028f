"""Checks that a split is one: every row once, and nothing on two sides that its rules keep on one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.splits.order import draws
from kernelcast.graphs.splits.protocol import Rule, Split, Splitter
from kernelcast.graphs.splits.rows import Rows, numbers_in

AGAIN = "run `dvc repro graphs` to make the split again"


def make_split(splitter: Splitter, rows: Rows) -> Split:
    """What the splitter makes of `rows`, checked.

    Raises:
        ConfigError: these programs cannot be split so.
        MalformedDataError: the splitter broke a rule of its own.
    """
    split = splitter.split(rows)
    check_no_leak(split, rows)
    return split


def check_no_leak(split: Split, rows: Rows) -> None:
    """Makes sure that each row is in one part, or left out, and that all rules of the split hold.

    Raises:
        MalformedDataError: names what is in two parts.
    """
    check_every_row_once(split, len(rows))
    for rule in split.rules:
        _check(rule, split, rows)


def check_every_row_once(split: Split, count: int) -> None:
    """Makes sure that the parts and what is left out are disjoint and cover the rows 0 to `count` - 1.

    Raises:
        MalformedDataError: a row is in two of them, or in none.
    """
    lists = {**dict(split.parts()), **{f"left out ({reason})": rows for reason, rows in split.left_out.items()}}
    owner = np.full(count, -1)
    for number, (name, rows) in enumerate(lists.items()):
        if len(rows) and not (rows.min() >= 0 and rows.max() < count):
            raise MalformedDataError(
                f"the part {name} of a split has rows that are none of the {count} there are; {AGAIN}"
            )
        taken = rows[owner[rows] >= 0]
        where = [list(lists)[owner[row]] for row in taken[:1]]
        if not len(taken) and len(rows):
            taken, where = np.flatnonzero(np.bincount(rows) > 1), [name]
        if len(taken):
            raise MalformedDataError(
                f"row {taken[0]} is in the parts {where[0]} and {name} of one split: the test would be no test; {AGAIN}"
            )
        owner[rows] = number
    if (owner < 0).any():
        raise MalformedDataError(f"row {int(np.flatnonzero(owner < 0)[0])} is in no part of a split; {AGAIN}")


def _check(rule: Rule, split: Split, rows: Rows) -> None:
    parts = dict(split.parts())
    sides = [np.concatenate([parts[part] for part in side]) for side in rule.sides]
    if rule.shots:
        sides[0] = _more_than_shots(rule, parts, rows)
    found = [_members(rule, rows, side) for side in sides]
    for later in range(1, len(found)):
        for earlier in range(later):
            both = np.intersect1d(found[earlier], found[later], assume_unique=True)
            if rule.what == "program":
                # equal numbers of two programs may be chance
                one_side, other_side = (_programs_of(rows.program_key[sides[side]], both) for side in (earlier, later))
                both = np.intersect1d(one_side, other_side)
            if len(both):
                more = f" (and {len(both) - 1} more)" if len(both) > 1 else ""
                one, other = (" and ".join(rule.sides[number]) for number in (earlier, later))
                raise MalformedDataError(
                    f"the {rule.what} {_shown(rule.what, both[0], rows)}{more} is in the parts {one} and {other} of "
                    f"one split: the test would be no test; {AGAIN}"
                )


def _more_than_shots(rule: Rule, parts: dict[str, np.ndarray], rows: Rows) -> np.ndarray:
    """The rows that are learned from beyond the shots that each workload and target has."""
    train = parts["train"]
    _, which, counts = np.unique(rows.stratum[train], return_inverse=True, return_counts=True)
    return np.concatenate([train[counts[which] > rule.shots], parts["valid"]])


def _members(rule: Rule, rows: Rows, numbers: np.ndarray) -> np.ndarray:
    """What of the rule's kind the rows `numbers` have, each once."""
    if rule.what == "program":
        drawn = np.sort(draws(rows.program_key[numbers], 0))  # np.unique takes ten times as long
        return drawn[np.r_[True, drawn[1:] != drawn[:-1]]] if len(drawn) else drawn
    if rule.what == "target":
        return numbers_in(rows.target[numbers])
    workloads = numbers_in(rows.workload[numbers])
    if rule.what == "shape":
        return np.unique(rows.shape_of_workload[workloads])
    described = [rows.workloads[number] for number in workloads.tolist()]
    if rule.what == "workload":
        names = {each.key for each in described}
    elif rule.what == "kind":
        names = {each.kind for each in described}
    else:
        names = {name for each in described for name in each.networks if not rule.only or name in rule.only}
    return np.array(sorted(names), dtype=np.str_)


def _programs_of(keys: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Those of `keys` whose numbers are `drawn`."""
    return np.unique(keys[np.isin(draws(keys, 0), drawn)]) if len(drawn) else keys[:0]


def _shown(what: str, member: Any, rows: Rows) -> str:
    if what == "program":
        return member.decode() if isinstance(member, bytes) else str(member)
    if what == "target":
        return json.dumps(rows.targets[int(member)])
    if what == "shape":
        alike = np.flatnonzero(rows.shape_of_workload == member).tolist()
        return " or ".join(dict.fromkeys(rows.workloads[number].name for number in alike))
    if what == "workload":
        return next(f"{each.name} ({each.key})" for each in rows.workloads if each.key == member)
    return str(member)
