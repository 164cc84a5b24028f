"""What a split is, what must hold of it, and what every splitter offers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits.rows import Rows

PARTS = ("train", "valid", "test")

EACH_PART = (("train",), ("valid",), ("test",))
"""What is together is in one part only."""

LEARNED_OR_TESTED = (("train", "valid"), ("test",))
"""What is tested on decides neither what is learned nor when learning stops."""

WHAT = ("program", "workload", "shape", "kind", "network", "target")


@dataclass(frozen=True)
class Rule:
    """What may not be on two sides of a split.

    Attributes:
        what: the thing that stays on one side, one of `WHAT`: a `program` is one scheduled module, on whatever target;
            a `shape` all workloads that compute the same on the same sizes (`shapes.shape_numbers`).
        sides: lists of parts.
        only: the members that the rule is about, as networks; all where there are none.
        shots: programs of each workload that are on the first side all the same; of the `target` rule only.
    """

    what: str
    sides: tuple[tuple[str, ...], ...] = EACH_PART
    only: tuple[str, ...] = ()
    shots: int = 0


@dataclass(frozen=True)
class Split:
    """Row numbers of three disjoint parts, each ascending, and of the rows that are in none.

    Attributes:
        train: what a model learns from.
        valid: what decides when it stops.
        test: what it is judged on.
        left_out: rows of no part, by the reason.
        rules: what holds of it, and is checked whenever it is read.
    """

    train: Int64[np.ndarray, " train_rows"]
    valid: Int64[np.ndarray, " valid_rows"]
    test: Int64[np.ndarray, " test_rows"]
    left_out: Mapping[str, Int64[np.ndarray, " left_rows"]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    def parts(self) -> Iterator[tuple[str, Int64[np.ndarray, " rows"]]]:
        """Name and rows of each part."""
        yield from (("train", self.train), ("valid", self.valid), ("test", self.test))


class Splitter(Protocol):
    """What `conf/splitter` instantiates."""

    def split(self, rows: Rows) -> Split:
        """Splits measured programs.

        Raises:
            ConfigError: these programs cannot be split so; the message says what they have.
        """


def split_of(
    test: np.ndarray, valid: np.ndarray, rules: tuple[Rule, ...], left_out: Mapping[str, np.ndarray] | None = None
) -> Split:
    """A split from one truth value a row; what is neither tested, validated on nor left out is learned from.

    Raises:
        ConfigError: a part is empty.
    """
    left_out = left_out or {}
    train = ~(test | valid)
    for rows in left_out.values():
        train &= ~rows
    numbers = {name: np.flatnonzero(rows) for name, rows in left_out.items() if rows.any()}
    split = Split(np.flatnonzero(train), np.flatnonzero(valid), np.flatnonzero(test), numbers, rules)
    empty = [part for part, rows in split.parts() if not len(rows)]
    if empty:
        raise ConfigError(
            f"split: no program is left for {' and '.join(empty)} ({len(test)} programs in all); measure more, or "
            "change what is held out (conf/splitter)"
        )
    return split


def check_share(name: str, share: float, zero: bool = False) -> None:
    """Makes sure that `share` is one, and leaves something.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not (0 < share < 1 or (zero and share == 0)):
        lowest = "0 or more" if zero else "above 0"
        raise ConfigError(f"split: {name} ({share}) must be {lowest} and below 1; change conf/splitter")


@dataclass(frozen=True)
class Shares:
    """The settings of a splitter that draws test and validation parts by share.

    Attributes:
        test_share: share that is tested on, 0 to 1.
        valid_share: share that decides when to stop, 0 to 1.
        seed: of the choice.
    """

    test_share: float
    valid_share: float
    seed: int

    def __post_init__(self) -> None:
        check_shares(self.test_share, self.valid_share)


def check_shares(test_share: float, valid_share: float) -> None:
    """Makes sure that both are shares and leave something to learn from.

    Raises:
        ConfigError: they do not.
    """
    check_share("test_share", test_share)
    check_share("valid_share", valid_share)
    if not test_share + valid_share < 1:
        raise ConfigError(
            f"split: test_share ({test_share}) and valid_share ({valid_share}) must be together below 1; "
            "change conf/splitter"
        )


def check_names(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """The names of a list in the configuration.

    Raises:
        ConfigError: it is none, or empty.
    """
    if isinstance(values, str) or not isinstance(values, Sequence) or not all(isinstance(each, str) for each in values):
        raise ConfigError(f"split: {name} must be a list of names such as [{values}], got {values!r}")
    if not values:
        raise ConfigError(f"split: {name} is empty; name at least one, or take another file of conf/splitter")
    return tuple(dict.fromkeys(values))
