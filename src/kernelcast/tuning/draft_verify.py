"""Draft, then verify: a cheap model ranks all candidates, and a better one looks again at those that it puts first.

What the better model looks at is built for these alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.tuning.trained import UNIT_OF_NOTHING, Judge, Judged

DRAFT_FOLDER, BETTER_FOLDER = "draft", "better"


@dataclass(frozen=True)
class DraftThenVerify:
    r"""Two judges as one.

    With d the draft's predictions and b the better ones of the share S that the draft puts first, in units of b::

        prediction(x) = b(x)                                                      in S
                        max over S of b + (d(x) - min over the rest of d) * slope_d / slope_b   else

    so that the rest keep the draft's order, behind those that were verified.

    Attributes:
        draft: ranks all.
        better: looks again at the first ones.
        verify_share: of the candidates, those that are verified; at least one.

    Raises:
        ConfigError: a share that cannot work.

    Source:
        Qiao et al. 2024 (Pruner, arXiv 2402.02361) have a draft model and a learned one so.
    """

    draft: Judge
    better: Judge
    verify_share: float

    def __post_init__(self) -> None:
        share = self.verify_share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ConfigError(f"verify_share={share}: a share of the candidates, above 0 and at most 1")

    @property
    def slope(self) -> float:
        """That of the better one, whose units the predictions have."""
        return self.better.slope

    @property
    def residual(self) -> float:
        """That of the better one."""
        return self.better.residual

    def require_target(self, target: Any) -> None:
        """See `Judge`."""
        self.draft.require_target(target)
        self.better.require_target(target)

    def judge(self, schedules: Sequence[Any], keys: Sequence[str], target: Any, with_rows: bool) -> Judged:
        """See `Judge`."""
        drafted = self.draft.judge(schedules, keys, target, with_rows)
        readable = int(np.isfinite(drafted.predicted).sum())
        if not readable:
            return drafted
        # stable, so that equals stay in the order of the search
        order = np.argsort(drafted.predicted, kind="stable")[:readable]
        first = np.sort(order[: math.ceil(self.verify_share * readable)])
        rest = np.setdiff1d(order, first)
        verified = self.better.judge(
            [schedules[row] for row in first], [keys[row] for row in first], target, with_rows=False
        )
        predicted = np.full(len(schedules), np.inf)
        predicted[first] = verified.predicted
        if len(rest):
            last = np.max(verified.predicted, where=np.isfinite(verified.predicted), initial=-np.inf)
            unit = (self.draft.slope or UNIT_OF_NOTHING) / (self.better.slope or UNIT_OF_NOTHING)
            behind = drafted.predicted[rest] - drafted.predicted[rest].min()
            # the first of the rest is behind the last of the others, not level with it
            predicted[rest] = np.nextafter(last, np.inf) + behind * unit
        return replace(drafted, predicted=predicted, faults=(*drafted.faults, *verified.faults))

    def save(self, directory: Path) -> None:
        """See `Judge`."""
        for name, judge in ((DRAFT_FOLDER, self.draft), (BETTER_FOLDER, self.better)):
            (directory / name).mkdir()
            judge.save(directory / name)

    def loaded(self, directory: Path) -> Self:
        """See `Judge`."""
        return replace(
            self,
            draft=self.draft.loaded(directory / DRAFT_FOLDER),
            better=self.better.loaded(directory / BETTER_FOLDER),
        )
