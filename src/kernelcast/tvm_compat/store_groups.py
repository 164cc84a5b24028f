"""What TVM's own cost models learn from, without a tuner around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

WatchEpoch = Callable[[int, Mapping[str, float], np.ndarray], None]
"""Called after every epoch (from 0) with TVM's losses by part and the scores of the held-out programs."""


@dataclass(frozen=True)
class StoreGroup:
    """Programs of one workload; TVM compares times within a group.

    Attributes:
        rows: TVM's features of every store of each program, one array a program; see `kernelcast.graphs.per_store`.
        run_seconds: the time of each.
    """

    rows: list[Float32[np.ndarray, "stores features"]]
    run_seconds: Float32[np.ndarray, "programs"]

    def with_stores(self) -> StoreGroup:
        """Without the programs that store nothing, which TVM does not learn from either."""
        kept = [place for place, rows in enumerate(self.rows) if len(rows)]
        return StoreGroup([self.rows[place] for place in kept], self.run_seconds[kept])


def filled_groups(groups: Sequence[StoreGroup]) -> list[StoreGroup]:
    """The groups without programs that store nothing, and without those that then have none."""
    return [group for group in (group.with_stores() for group in groups) if len(group.rows)]
