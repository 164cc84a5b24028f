"""Operator kinds held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits.order import shapes_for
from kernelcast.graphs.splits.protocol import LEARNED_OR_TESTED, Rule, Split, check_names, check_share, split_of
from kernelcast.graphs.splits.rows import Rows

SAME_SHAPE = "same computation as a held-out kind"


@dataclass(frozen=True)
class KindSplit:
    """All workloads of some operator kinds are tested on: how well a model knows operators of a kind it has never seen.

    Workloads of another kind around the same computation (a convolution with its bias fused, while `conv2d` is held
    out) are in no part: they are neither the kind that is asked for nor unknown to it. More programs of the same
    workloads move no workload from its part.

    Attributes:
        kinds: names or shell patterns of the kinds to hold out: `*conv2d*` is every kernel with a convolution in it.
        valid_share: share of the remaining workloads that decides when to stop, 0 to 1.
        seed: of the choice of validation workloads.
    """

    kinds: Sequence[str]
    valid_share: float
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", check_names("kinds", self.kinds))
        check_share("valid_share", self.valid_share)

    def split(self, rows: Rows) -> Split:
        """Holds the kinds out.

        Raises:
            ConfigError: no program is of such a kind, or too little is left to learn from.
        """
        known = rows.kinds()
        missing = [pattern for pattern in self.kinds if not any(fnmatchcase(kind, pattern) for kind in known)]
        if missing:
            raise ConfigError(
                f"split: there is no operator kind {', '.join(missing)} in the measurements; choose from "
                f"{', '.join(known)} (`kinds` of the splitter)"
            )
        held = [
            number
            for number in rows.present
            if any(fnmatchcase(rows.workloads[number].kind, pattern) for pattern in self.kinds)
        ]
        test = rows.of_workloads(held)
        alike = np.isin(rows.shape, rows.shape_of_workload[held]) & ~test
        valid = np.isin(rows.shape, shapes_for(rows, ~test & ~alike, self.valid_share, self.seed)) & ~test & ~alike
        return split_of(test, valid, (Rule("shape"), Rule("kind", LEARNED_OR_TESTED)), {SAME_SHAPE: alike})
